// Experts with int8 activations of up to eight rows by bulk copies (copied.cuh): which calls take
// them, and how the last product's rows are cut.
#include "backend/cuda/cuda.h"
#include "backend/cuda/expert_run.h"
#include "base/types.h"

#include <algorithm>
#include <numeric>

namespace spk::cuda {
namespace {

// Shared memory of a block where kCopiedBlocks of them are on a multiprocessor; the device takes
// 1 KiB of each.
int64_t memory_of_block(const DeviceInfo& device) {
  constexpr int64_t kTaken = 1 << 10;
  return (static_cast<int64_t>(device.shared) + kTaken) / gpu::kCopiedBlocks - kTaken;
}
// The last product's rows of a block: as many blocks as there are at once, scales that copies can
// bring, and the shared expert's are one tile.
int64_t down_rows(int64_t hidden, int64_t width, int64_t blocks) {
  constexpr int64_t kBytes = 16;
  const int64_t unit = kBytes / std::gcd(kBytes, width / gpu::kQuantGroup);
  return std::min<int64_t>(round_up(ceil_div(hidden, blocks), unit), gpu::kCopiedDownRows);
}
int64_t down_stages(const gpu::CopiedArgs& a, int64_t memory) {
  const auto bytes = [&](int stages) {
    return gpu::copied_down_bytes(a.e.n * a.e.top_k, a.e.width, a.down_rows, stages);
  };
  int stages = gpu::kCopiedStages;
  while (stages > 0 && bytes(stages) > memory) --stages;
  return stages;
}

}  // namespace

gpu::CopiedArgs CudaBackend::copied_args(const ExpertRun& run) const {
  gpu::CopiedArgs a{};
  a.e = run.a;
  a.x = run.x;
  a.act = run.act;
  a.shared_blocks = static_cast<int>(ceil_div(a.e.shared_width, gpu::kSharedUnits));
  a.most_items = static_cast<int>(run.most_items);
  a.table_bytes = static_cast<int>(shape_.experts * sizeof(gpu::ExpertWeights));
  const int64_t blocks = int64_t{device_->info().multiprocessors} * gpu::kCopiedBlocks;
  a.down_rows = static_cast<int>(down_rows(a.e.hidden, a.e.width, blocks));
  a.down_stages = static_cast<int>(down_stages(a, memory_of_block(device_->info())));
  return a;
}

bool CudaBackend::takes_copies(const Moe& moe, const ExpertTable& table,
                               const ExpertRun& run) const {
  const DeviceInfo& device = device_->info();
  const bool able = device.overlaps && device.multiprocessors > 0 && options_.copies;
  if (!able || run.n > gpu::kMaxRowsInvariant || !table.up_packed || !table.down_packed ||
      run.shared_up_format != Format::kFp8 || run.shared_down_format != Format::kFp8)
    return false;
  const int64_t hidden = shape_.hidden, width = moe.experts.front().gate.rows;
  if (hidden % (gpu::kQuantGroup * gpu::kCopiedQuad) != 0 || width % gpu::kPackedUnits != 0)
    return false;
  const int64_t memory = memory_of_block(device);
  return gpu::copied_up_bytes(static_cast<int>(run.bucket), static_cast<int>(hidden)) <= memory &&
         gpu::copied_down_bytes(static_cast<int>(run.pairs), static_cast<int>(width),
                                gpu::kCopiedDownRows, 1) <= memory;
}

void CudaBackend::copied_up(const ExpertRun& run) {
  const gpu::CopiedArgs a = copied_args(run);
  const int64_t tiles = a.shared_blocks + run.most_items * (a.e.width / gpu::kPackedUnits);
  const int64_t blocks = int64_t{device_->info().multiprocessors} * gpu::kCopiedBlocks;
  // The shared expert's blocks are among the first that there are.
  const int64_t grid = std::max<int64_t>(std::min(tiles, blocks), a.shared_blocks);
  launch(copied_up_kernel(run.bucket),
         {grid, 1, 1, gpu::copied_up_bytes(static_cast<int>(run.bucket), a.e.hidden)},
         gpu::kThreads, a);
}

CudaBackend::CopiedDown CudaBackend::copied_down(const ExpertRun& run, const Rows& weights,
                                                 const Rows& o) const {
  gpu::CopiedArgs a = copied_args(run);
  a.weights = view_of(weights);
  a.o = view_of(o);
  const int64_t blocks = int64_t{device_->info().multiprocessors} * gpu::kCopiedBlocks;
  return {
      copied_down_kernel(run.bucket),
      {std::min(ceil_div(int64_t{a.e.hidden}, int64_t{a.down_rows}), blocks), 1, 1,
       gpu::copied_down_bytes(static_cast<int>(run.pairs), a.e.width, a.down_rows, a.down_stages)},
      a};
}

}  // namespace spk::cuda
