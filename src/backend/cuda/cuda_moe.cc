// The mixture of experts: the router's choice, work items, the routed experts and the shared one.
#include "backend/cuda/cuda.h"
#include "backend/cuda/work.h"
#include "backend/device_tools.h"
#include "base/error.h"
#include "base/types.h"

#include <algorithm>

namespace spk::cuda {
namespace {

constexpr int64_t kThreads = gpu::kThreads;

int64_t blocks(int64_t n, int64_t per_block = kThreads) { return ceil_div(n, per_block); }

Rows rows_of(float* data, int64_t rows, int64_t cols) {
  return {{data, static_cast<size_t>(rows * cols) * sizeof(float)}, 0, rows, cols, cols};
}

}  // namespace

void CudaBackend::route(const Rows& h, const Moe& moe, const Ints& forced, const Ints& ids,
                        const Rows& weights) {
  float* scores = nullptr;
  Sections sections;
  sections.add(scores, h.rows * shape_.experts);
  sections.place(work_space(sections.bytes()));
  const Rows products = rows_of(scores, h.rows, shape_.experts);
  matmul(h, moe.router, products);
  gpu::RouteArgs a{};
  a.scores = view_of(products);
  a.bias = floats_of(moe.bias);
  a.forced = view_of(forced);
  a.ids = view_of(ids);
  a.weights = view_of(weights);
  a.n = static_cast<int>(h.rows);
  a.experts = static_cast<int>(shape_.experts);
  a.top_k = static_cast<int>(shape_.top_k);
  a.groups = static_cast<int>(shape_.groups);
  a.keep_groups = static_cast<int>(shape_.keep_groups);
  a.scale = static_cast<float>(shape_.routed_scale);
  launch(plain_kernel("moe", "route"), {h.rows}, kThreads, a);
}

// Addresses of a layer's experts, on the device; made when the layer is first seen.
const CudaBackend::ExpertTable& CudaBackend::expert_table(const Moe& moe) {
  ExpertTable& table = expert_tables_[moe.experts.front().gate.data.handle];
  if (table.device) return table;
  std::vector<gpu::ExpertWeights> all;
  all.reserve(moe.experts.size());
  const Ffn& first = moe.experts.front();
  for (const Ffn& f : moe.experts) {
    // One instantiation for all: a layer whose experts differ in format is refused at load.
    SPK_CHECK(f.gate.format == first.gate.format && f.up.format == first.gate.format &&
              f.down.format == first.down.format);
    all.push_back({matrix_of(f.gate), matrix_of(f.up), matrix_of(f.down)});
  }
  table.up_format = first.gate.format;
  table.down_format = first.down.format;
  table.bytes = static_cast<uint64_t>(first.gate.bytes + first.up.bytes + first.down.bytes);
  const size_t bytes = all.size() * sizeof(gpu::ExpertWeights);
  table.device = take(bytes, "expert table");
  upload_bytes(table.device, all.data(), bytes);
  return table;
}

void CudaBackend::experts(const Rows& h, const Moe& moe, const Ints& ids, const Rows& weights,
                          const Rows& o) {
  for (int64_t at = 0; at < h.rows; at += gpu::kExpertSlab) {
    const int64_t n = std::min<int64_t>(gpu::kExpertSlab, h.rows - at);
    routed(h.slice_rows(at, n), moe, ids.slice_rows(at, n), weights.slice_rows(at, n),
           o.slice_rows(at, n));
  }
  if (!moe.shared.gate) return;
  count(moe.shared.gate);
  count(moe.shared.up);
  count(moe.shared.down);
  ++counters_.plain_experts;
}

void CudaBackend::routed(const Rows& h, const Moe& moe, const Ints& ids, const Rows& weights,
                         const Rows& o) {
  const int64_t n = h.rows, top_k = shape_.top_k, pairs = n * top_k;
  const auto experts = static_cast<int64_t>(moe.experts.size());
  const ExpertTable& table = expert_table(moe);
  const int64_t width = moe.experts.front().gate.rows, hidden = shape_.hidden;
  const int64_t shared_width = moe.shared.gate ? moe.shared.gate.rows : 0;
  // An expert with c pairs makes ceil(c / bucket) items, so never more than this.
  const int64_t bucket = row_bucket(n);
  const int64_t most_items = std::min(pairs, experts + pairs / bucket);
  gpu::ExpertsArgs a{};
  int *items = nullptr, *item_count = nullptr;
  float* shared_up = nullptr;
  // The shared expert is one more item of each bucket of rows, where a kernel for the two formats
  // exists.
  const bool has_shared = shared_width > 0;
  const bool joined = has_shared && shared_joins(table.up_format, moe.shared.gate.format) &&
                      moe.shared.up.format == moe.shared.gate.format &&
                      shared_joins(table.down_format, moe.shared.down.format);
  const int64_t shared_items = joined ? ceil_div(n, bucket) : 0;
  Sections sections;
  sections.add(items, most_items * gpu::kItemInts);
  sections.add(item_count, 1);
  sections.add(a.act, pairs * width);
  sections.add(a.out, pairs * hidden);
  sections.add(a.shared_act, n * shared_width);
  sections.add(shared_up, n * shared_width);
  sections.add(a.shared_out, has_shared ? n * hidden : 0);
  sections.place(work_space(sections.bytes()));

  const char* few =
      n <= gpu::kMaxRowsInvariant && pairs <= kThreads ? "few_expert_items" : "expert_items";
  launch(plain_kernel("moe", few), {1}, kThreads,
         gpu::ItemsArgs{view_of(ids), items, item_count,
                        pointer_to<unsigned long long>(expert_totals_), table.bytes,
                        static_cast<int>(n), static_cast<int>(experts), static_cast<int>(top_k),
                        static_cast<int>(bucket)});
  a.experts = pointer_to<const gpu::ExpertWeights>(table.device);
  a.items = items;
  a.count = item_count;
  a.x = view_of(h);
  a.n = static_cast<int>(n);
  a.top_k = static_cast<int>(top_k);
  a.width = static_cast<int>(width);
  a.hidden = static_cast<int>(hidden);
  a.limit = static_cast<float>(moe.routed_limit);
  a.shared_item = static_cast<int>(most_items);
  a.shared_limit = static_cast<float>(moe.shared_limit);
  if (joined) {
    a.shared = {matrix_of(moe.shared.gate), matrix_of(moe.shared.up), matrix_of(moe.shared.down)};
    a.shared_width = static_cast<int>(shared_width);
  }
  const int64_t group = gpu::group_rows(static_cast<int>(bucket));
  const int64_t units = std::max(width, joined ? shared_width : 0);
  const Format up_beside = joined ? moe.shared.gate.format : table.up_format;
  const Format down_beside = joined ? moe.shared.down.format : table.down_format;
  launch(expert_up_kernel(table.up_format, up_beside, bucket),
         {blocks(units, group / 2), most_items + shared_items}, kThreads, a);
  launch(expert_down_kernel(table.down_format, down_beside, bucket),
         {blocks(hidden, group), most_items + shared_items}, kThreads, a);
  if (has_shared && !joined) {
    const Rows gate = rows_of(a.shared_act, n, shared_width);
    const Rows up = rows_of(shared_up, n, shared_width);
    product(h, moe.shared.gate, gate, {});
    product(h, moe.shared.up, up, {});
    swiglu(gate, up, moe.shared_limit);
    product(gate, moe.shared.down, rows_of(a.shared_out, n, hidden), {});
  }
  launch(plain_kernel("moe", "expert_sum"), {blocks(hidden), n}, kThreads,
         gpu::ExpertSumArgs{a.out, view_of(weights), has_shared ? a.shared_out : nullptr,
                            view_of(o), static_cast<int>(top_k), static_cast<int>(hidden)});
}

}  // namespace spk::cuda

namespace spk {

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options) {
  return std::make_unique<cuda::CudaBackend>(cuda::make_driver_device(0, options.graphs), options);
}

}  // namespace spk
