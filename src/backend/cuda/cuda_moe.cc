// The mixture of experts: the router's choice, work items, the routed experts and the shared one.
#include "backend/cuda/cuda.h"
#include "backend/cuda/expert_run.h"
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
  launch(plain_kernel("route", "route"), {h.rows},
         gpu::route_threads(static_cast<int>(shape_.experts)),
         route_args(products, moe, forced, ids, weights));
}

gpu::RouteArgs CudaBackend::route_args(const Rows& scores, const Moe& moe, const Ints& forced,
                                       const Ints& ids, const Rows& weights) const {
  gpu::RouteArgs a{};
  a.scores = view_of(scores);
  a.bias = floats_of(moe.bias);
  a.forced = view_of(forced);
  a.ids = view_of(ids);
  a.weights = view_of(weights);
  a.n = static_cast<int>(scores.rows);
  a.experts = static_cast<int>(shape_.experts);
  a.top_k = static_cast<int>(shape_.top_k);
  a.groups = static_cast<int>(shape_.groups);
  a.keep_groups = static_cast<int>(shape_.keep_groups);
  a.scale = static_cast<float>(shape_.routed_scale);
  return a;
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
              f.down.format == first.down.format && f.gate.packed == first.gate.packed &&
              f.up.packed == first.up.packed && f.down.packed == first.down.packed);
    all.push_back({matrix_of(f.gate), matrix_of(f.up), matrix_of(f.down)});
  }
  table.up_format = first.gate.format;
  table.down_format = first.down.format;
  table.up_packed = first.gate.packed && first.up.packed;
  table.down_packed = first.down.packed;
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
  count_shared(moe);
}

void CudaBackend::count_shared(const Moe& moe) {
  if (!moe.shared.gate) return;
  count(moe.shared.gate);
  count(moe.shared.up);
  count(moe.shared.down);
  const bool packed = expert_table(moe).down_packed && moe.shared.down.packed;
  ++(packed ? counters_.packed_experts : counters_.plain_experts);
}

// The pieces of a run, asked for.
void CudaBackend::plan_run(const Rows& h, const Moe& moe, ExpertRun& run, Sections& sections) {
  const int64_t n = h.rows, top_k = shape_.top_k, pairs = n * top_k;
  const auto experts = static_cast<int64_t>(moe.experts.size());
  const ExpertTable& table = expert_table(moe);
  const int64_t width = moe.experts.front().gate.rows, hidden = shape_.hidden;
  const int64_t shared_width = moe.shared.gate ? moe.shared.gate.rows : 0;
  run.shared_width = shared_width;
  gpu::ExpertsArgs& a = run.a;
  run.n = n;
  run.pairs = pairs;
  run.bucket = row_bucket(n);
  // An expert with c pairs makes ceil(c / bucket) items, so never more than this.
  run.most_items = std::min(pairs, experts + pairs / run.bucket);
  // The shared expert is one more item of each bucket of rows, where a kernel for the two formats
  // exists.
  const bool has_shared = shared_width > 0;
  const auto joins = [](Format routed, bool packed, const Weight& shared) {
    // Beside packed ones an MXFP4 matrix runs packed too, an FP8 one on the matrix unit.
    const bool fits =
        !packed ||
        (shared.format == Format::kMxfp4 ? shared.packed : takes_tiles(shared.format, shared.cols));
    return fits && shared_joins(routed, shared.format);
  };
  const bool joined = has_shared && joins(table.up_format, table.up_packed, moe.shared.gate) &&
                      joins(table.up_format, table.up_packed, moe.shared.up) &&
                      moe.shared.up.format == moe.shared.gate.format &&
                      joins(table.down_format, table.down_packed, moe.shared.down);
  if (joined) {
    run.shared_items = ceil_div(n, run.bucket);
    run.shared_up_format = moe.shared.gate.format;
    run.shared_down_format = moe.shared.down.format;
  }
  const auto quantised = [&](gpu::QuantRows& to, bool wanted, int64_t rows, int64_t cols) {
    if (!wanted) return;
    to.cols = static_cast<int>(cols);
    sections.add(to.codes, rows * cols);
    sections.add(to.groups, rows * cols / gpu::kQuantGroup * 2);
  };
  sections.add(run.items, run.most_items * gpu::kItemInts);
  sections.add(run.item_count, 1);
  // Between two packed products there are no floats.
  if (!table.up_packed || !table.down_packed) sections.add(a.act, pairs * width);
  sections.add(a.out, pairs * hidden);
  sections.add(a.shared_act, n * shared_width);
  sections.add(run.shared_up, joined ? 0 : n * shared_width);
  sections.add(a.shared_out, has_shared ? n * hidden : 0);
  quantised(run.x, table.up_packed, n, hidden);
  quantised(run.act, table.down_packed, pairs, width);
  quantised(run.shared_act, joined && table.down_packed && moe.shared.down.packed, n, shared_width);
  a.experts = pointer_to<const gpu::ExpertWeights>(table.device);
  a.x = view_of(h);
  a.n = static_cast<int>(n);
  a.top_k = static_cast<int>(top_k);
  a.width = static_cast<int>(width);
  a.hidden = static_cast<int>(hidden);
  a.limit = static_cast<float>(moe.routed_limit);
  a.shared_item = static_cast<int>(run.most_items);
  a.shared_limit = static_cast<float>(moe.shared_limit);
  if (joined) {
    a.shared = {matrix_of(moe.shared.gate), matrix_of(moe.shared.up), matrix_of(moe.shared.down)};
    a.shared_width = static_cast<int>(shared_width);
  }
}

void CudaBackend::routed(const Rows& h, const Moe& moe, const Ints& ids, const Rows& weights,
                         const Rows& o) {
  ExpertRun run;
  Sections sections;
  plan_run(h, moe, run, sections);
  sections.place(work_space(sections.bytes()));
  const ExpertTable& table = expert_table(moe);
  make_items(h, items_args(ids, table, run), table, run);
  run_experts(h, moe, table, run);
  launch(plain_kernel("moe", "expert_sum"), {blocks(shape_.hidden), run.n}, kThreads,
         sum_args(run, weights, o));
}

// All between the items and the sum.
void CudaBackend::run_experts(const Rows& h, const Moe& moe, const ExpertTable& table,
                              ExpertRun& run) {
  run.a.items = run.items;
  run.a.count = run.item_count;
  run_up(table, run);
  run_down(table, run);
  if (run.shared_width == 0 || run.shared_items > 0) return;
  const Rows gate = rows_of(run.a.shared_act, run.n, run.shared_width);
  const Rows up = rows_of(run.shared_up, run.n, run.shared_width);
  product(h, moe.shared.gate, gate, {});
  product(h, moe.shared.up, up, {});
  swiglu(gate, up, moe.shared_limit);
  product(gate, moe.shared.down, rows_of(run.a.shared_out, run.n, shape_.hidden), {});
}

gpu::ExpertSumArgs CudaBackend::sum_args(const ExpertRun& run, const Rows& weights,
                                         const Rows& o) const {
  return {run.a.out,
          view_of(weights),
          run.shared_width > 0 ? run.a.shared_out : nullptr,
          view_of(o),
          static_cast<int>(shape_.top_k),
          static_cast<int>(shape_.hidden)};
}

gpu::ItemsArgs CudaBackend::items_args(const Ints& ids, const ExpertTable& table,
                                       const ExpertRun& run) const {
  auto* totals = pointer_to<unsigned long long>(expert_totals_);
  if (table.up_packed && table.down_packed) totals += 2;
  return {view_of(ids),
          run.items,
          run.item_count,
          totals,
          table.bytes,
          static_cast<int>(run.n),
          static_cast<int>(shape_.experts),
          static_cast<int>(shape_.top_k),
          static_cast<int>(run.bucket)};
}

void CudaBackend::quantise(const Rows& x, const gpu::QuantRows& to) {
  launch(plain_kernel("packed", "quantise_rows"),
         {blocks(to.cols, gpu::kQuantGroup * gpu::kWarps), x.rows}, kThreads,
         gpu::QuantiseArgs{view_of(x), to});
}

// The work items, and x as the packed kernels read it.
void CudaBackend::make_items(const Rows& h, const gpu::ItemsArgs& items, const ExpertTable& table,
                             const ExpertRun& run) {
  const bool few = run.n <= gpu::kMaxRowsInvariant && run.pairs <= kThreads;
  if (few && table.up_packed) {
    const int64_t per_row = blocks(run.x.cols, gpu::kQuantGroup * gpu::kWarps);
    launch(plain_kernel("packed", "few_items_and_rows"), {1 + per_row * run.n}, kThreads,
           gpu::PackedItemsArgs{items, {view_of(h), run.x}});
    return;
  }
  launch(plain_kernel("moe", few ? "few_expert_items" : "expert_items"), {1}, kThreads, items);
  if (table.up_packed) quantise(h, run.x);
}

// Blocks of a bucket of the shared expert, and of an item.
void CudaBackend::launch_packed(const KernelName& kernel, const ExpertRun& run,
                                int64_t shared_blocks, int64_t item_blocks) {
  gpu::PackedArgs p{};
  p.e = run.a;
  p.x = run.x;
  p.act = run.act;
  p.shared_act = run.shared_act;
  p.shared_blocks = static_cast<int>(shared_blocks);
  p.shared_buckets = static_cast<int>(run.shared_items);
  p.blocks = static_cast<int>(item_blocks);
  launch(kernel, {run.shared_items * shared_blocks + run.most_items * item_blocks}, kThreads, p);
}

void CudaBackend::run_up(const ExpertTable& table, const ExpertRun& run) {
  const gpu::ExpertsArgs& a = run.a;
  const bool joined = run.shared_items > 0;
  const int64_t per_group = gpu::group_rows(static_cast<int>(run.bucket)) / 2;
  if (table.up_packed) {
    const Format shared = joined ? run.shared_up_format : Format::kMxfp4;
    const int64_t units = shared == Format::kMxfp4 ? gpu::kPackedUnits : gpu::kSharedUnits;
    launch_packed(packed_up_kernel(shared, run.bucket), run, blocks(a.shared_width, units),
                  blocks(a.width, gpu::kPackedUnits));
    return;
  }
  launch(expert_up_kernel(table.up_format, joined ? run.shared_up_format : table.up_format,
                          run.bucket),
         {blocks(std::max(a.width, a.shared_width), per_group), run.most_items + run.shared_items},
         kThreads, a);
  if (!run.act.codes) return;
  quantise(rows_of(a.act, run.pairs, a.width), run.act);
  if (run.shared_act.codes) quantise(rows_of(a.shared_act, run.n, a.shared_width), run.shared_act);
}

void CudaBackend::run_down(const ExpertTable& table, const ExpertRun& run) {
  const gpu::ExpertsArgs& a = run.a;
  const bool joined = run.shared_items > 0;
  const int64_t per_group = gpu::group_rows(static_cast<int>(run.bucket));
  if (table.down_packed) {
    const Format shared = joined ? run.shared_down_format : Format::kMxfp4;
    const int64_t rows = shared == Format::kMxfp4 ? gpu::kPackedDownRows : gpu::kSharedDownRows;
    launch_packed(packed_down_kernel(shared, run.bucket), run, blocks(a.hidden, rows),
                  blocks(a.hidden, gpu::kPackedDownRows));
    return;
  }
  launch(expert_down_kernel(table.down_format, joined ? run.shared_down_format : table.down_format,
                            run.bucket),
         {blocks(a.hidden, per_group), run.most_items + run.shared_items}, kThreads, a);
}

}  // namespace spk::cuda

namespace spk {

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options) {
  return std::make_unique<cuda::CudaBackend>(cuda::make_driver_device(0, options.graphs), options);
}

}  // namespace spk
