// Launches that do the work of several verbs of a decode step, with the verbs' bits.
#include "backend/cuda/cuda.h"
#include "backend/cuda/expert_run.h"
#include "backend/cuda/work.h"
#include "base/error.h"
#include "base/types.h"

#include <algorithm>
#include <utility>

namespace spk::cuda {
namespace {

constexpr int64_t kThreads = gpu::kThreads;

bool same(const Rows& a, const Rows& b) {
  return a.buffer.handle == b.buffer.handle && a.offset == b.offset && a.rows == b.rows &&
         a.cols == b.cols && a.stride == b.stride;
}

}  // namespace

bool CudaBackend::fuses(Block block) const {
  return options_.fuse && (block == Block::kMoe || block == Block::kMla ||
                           (block == Block::kKda && has_kda_block(shape_)));
}

FusionPlan CudaBackend::plan() const {
  FusionPlan plan;
  if (!options_.fuse) return plan;
  const bool kda = fuses(Block::kKda);
  plan.fused[static_cast<int>(Block::kKda)] = kda;
  for (const Block block : {Block::kMla, Block::kMoe})
    plan.fused[static_cast<int>(block)] = fuses(block);
  plan.text = cat(kda ? "KDA by heads from convolution to gated norm, " : "",
                  "MLA's queries with its cache, values with their gates, routes with the items of "
                  "experts, their sum with the norm behind it");
  if (options_.resident != Resident::kOff)
    plan.text += stays() ? ", KDA layers of one row by blocks that stay"
                         : "; no blocks that stay on this device with this shape";
  return plan;
}

void CudaBackend::fused(Block block, const Layer& layer, const LayerState& state,
                        const Scratch& t) {
  SPK_CHECK(t.h.rows <= kMaxVerify && fuses(block));
  if (block == Block::kKda) return fused_kda(layer, state, t);
  block == Block::kMla ? fused_mla(layer.mla, state, t) : fused_moe(layer.moe, t);
}

// ---- KDA ----

gpu::KdaBlockArgs CudaBackend::kda_args(const Kda& w, const LayerState& state,
                                        const Scratch& t) const {
  const int64_t n = shape_.heads * shape_.head_dim;
  gpu::KdaBlockArgs a{};
  const Rows* const streams[3] = {&t.q, &t.k, &t.v};
  const Weight* const taps[3] = {&w.conv_q, &w.conv_k, &w.conv_v};
  for (int s = 0; s < 3; ++s) {
    SPK_CHECK(taps[s]->rows == n && taps[s]->cols == shape_.conv_kernel);
    a.x[s] = view_of(*streams[s]);
    a.taps[s] = floats_of(*taps[s]);
  }
  a.f = view_of(t.f), a.b = view_of(t.beta), a.gate = view_of(t.g), a.o = view_of(t.mix);
  a.a_log = floats_of(w.a_log);
  a.dt_bias = floats_of(w.dt_bias);
  a.o_norm = floats_of(w.o_norm);
  SPK_CHECK(state.kda_state.stride == shape_.head_dim);
  a.state = view_of(state.kda_state).data;
  a.tail = view_of(state.conv_tail);
  a.record_in = view_of(state.record_in);
  a.record_k = view_of(state.record_k);
  a.record_u = view_of(state.record_u);
  a.record_g = view_of(state.record_g);
  a.step = step_info();
  a.n = static_cast<int>(t.h.rows);
  a.heads = static_cast<int>(shape_.heads);
  a.lower_bound = static_cast<float>(shape_.kda_lower_bound);
  a.eps = static_cast<float>(shape_.eps);
  return a;
}

void CudaBackend::fused_kda(const Layer& layer, const LayerState& state, const Scratch& t) {
  if (resident_kda(layer, state, t)) return;
  const Kda& w = layer.kda;
  const int64_t n = shape_.heads * shape_.head_dim;
  const Rows q = t.q.slice_cols(0, n), k = t.k.slice_cols(0, n), v = t.v.slice_cols(0, n);
  const Rows o = t.mix.slice_cols(0, n);
  const Weight* in[] = {&w.q, &w.k, &w.v, &w.f, &w.g, &w.b};
  const Rows out[] = {q, k, v, t.f, t.g, t.beta};
  matmul_many(t.h, in, out);
  gpu::KdaBlockArgs a = kda_args(w, state, t);
  launch(kda_block_kernel(shape_), {shape_.heads},
         gpu::kda_block_threads(static_cast<int>(shape_.head_dim)), a);
  count_tails(state);
  count_states(state);
  matmul(o, w.o, t.o);
}

// ---- MLA ----

void CudaBackend::fused_mla(const Mla& w, const LayerState& state, const Scratch& t) {
  const Rows q = t.q.slice_cols(0, shape_.heads * (shape_.nope + shape_.rope));
  const Rows o = t.mix.slice_cols(0, shape_.heads * shape_.v_dim);
  const bool lora = shape_.q_lora != 0;
  const Weight* in[] = {&w.kv_a, &w.g, lora ? &w.q_a : &w.q};
  const Rows out[] = {t.kv, t.beta, lora ? t.q_a : q};
  matmul_many(t.h, in, out);
  if (lora) {
    rms_norm(t.q_a, w.q_a_norm, t.q_a);
    matmul(t.q_a, w.q_b, q);
  }
  latent_query(q, t.kv, w, state, t.q_latent);
  latent_attend(t.q_latent, q, state, t.z);
  expand(t.z, w.kv_b, o, view_of(t.beta));
  matmul(o, w.dense, t.o);
}

// ---- experts ----

void CudaBackend::fused_moe(const Moe& w, const Scratch& t) {
  if (resident_moe(w, t)) return;
  const int64_t n = t.h.rows, top_k = shape_.top_k;
  const auto columns = [&](const Ints& table) {
    return table ? table.slice_cols(w.index * top_k, top_k) : Ints{};
  };
  const Ints forced = columns(step_.routes_in), kept = columns(step_.routes_out);
  const Ints ids = kept ? kept : t.route_id;
  ExpertRun run;
  float* scores = nullptr;
  Sections sections;
  plan_run(t.h, w, run, sections);
  sections.add(scores, n * shape_.experts);
  sections.place(work_space(sections.bytes()));
  const ExpertTable& table = expert_table(w);
  const Rows products{{scores, static_cast<size_t>(n * shape_.experts) * sizeof(float)},
                      0,
                      n,
                      shape_.experts,
                      shape_.experts};
  gpu::RouteItemsArgs a{};
  a.route = route_args(products, w, forced, ids, t.route_weight);
  a.items = items_args(ids, table, run);
  a.x = {view_of(t.h), run.x};
  a.arrived = pointer_to<int>(rows_routed_);
  if (!front(w, a, t.h)) {
    matmul(t.h, w.router, products);
    const int threads = gpu::route_threads(static_cast<int>(shape_.experts));
    // Without packed experts no row is quantised: no columns, no blocks.
    a.x_blocks = static_cast<int>(ceil_div(run.x.cols, gpu::kQuantGroup * threads / gpu::kWarp));
    launch(plain_kernel("route", "route_items"), {n * (1 + a.x_blocks)}, threads, a);
  }
  run_experts(t.h, w, table, run);
  count_shared(w);
  pending_ = PendingSum{sum_args(run, t.route_weight, t.o), t.o, {}};
}

// ---- the pending sum ----

// Only what has the experts behind it gains: a norm that nobody takes is a launch as before.
bool CudaBackend::hold_norm(const Rows& x, const Rows& o, const Weight& w, const Rows& y) {
  if (!options_.fuse || step_.kind == StepKind::kPrefill || x.rows > gpu::kMaxRowsInvariant ||
      x.cols > gpu::kFrontColumns)
    return false;
  // Behind a resident layer's mixer both stay open.
  const bool joins = !resident_.empty() && open_ == Open::kExperts && !pending_norm_ &&
                     !resident_.back().feeds && resident_.back().out.y.data == view_of(o).data;
  if (!joins) flush_sum();
  pending_norm_ = PendingNorm{{view_of(x), view_of(o), view_of(y), floats_of(w),
                               static_cast<int>(x.cols), static_cast<float>(shape_.eps)},
                              y,
                              true};
  return true;
}

void CudaBackend::launch_norm() {
  const PendingNorm p = *std::exchange(pending_norm_, std::nullopt);
  launch(rms_norm_kernel(p.adds), {p.y.rows}, kThreads, p.args);
}

bool CudaBackend::front(const Moe& w, const gpu::RouteItemsArgs& route, const Rows& h) {
  if (!pending_norm_ || !pending_norm_->adds || !same(h, pending_norm_->y) ||
      !has_front(w.router.format, w.router.cols, shape_.experts))
    return false;
  const int threads = gpu::route_threads(static_cast<int>(shape_.experts));
  const int64_t of_row = ceil_div(shape_.experts, threads / gpu::kWarp);
  // A multiprocessor takes one block of 512 threads: more rows than run at once would wait.
  if (h.rows > 1 && h.rows * of_row > device_->info().multiprocessors) return false;
  gpu::FrontArgs a{std::exchange(pending_norm_, std::nullopt)->args, matrix_of(w.router), route};
  launch(front_kernel(w.router.format, threads), {of_row, h.rows}, threads, a);
  count(w.router);
  return true;
}

// As the verbs would have done it.
void CudaBackend::launch_sum() {
  const PendingSum p = *std::exchange(pending_, std::nullopt);
  launch(plain_kernel("moe", "expert_sum"), {ceil_div(p.o.cols, kThreads), p.o.rows}, kThreads,
         p.args);
  if (p.x) add(*p.x, p.o);
}

bool CudaBackend::add_pending(const Rows& x, const Rows& o) {
  if (!pending_ || pending_->x || !same(o, pending_->o)) return false;
  SPK_CHECK(x.rows == o.rows && x.cols == o.cols);
  pending_->x = x;
  return true;
}

bool CudaBackend::norm_pending(const Rows& x, const Weight& w, const Rows& y) {
  if (!pending_ || !pending_->x || !same(x, *pending_->x) || x.cols > gpu::kSumNormColumns)
    return false;
  const PendingSum p = *std::exchange(pending_, std::nullopt);
  launch(plain_kernel("moe", "sum_norm"), {x.rows}, gpu::kSumNormThreads,
         gpu::SumNormArgs{p.args,
                          {view_of(x),
                           {},
                           view_of(y),
                           floats_of(w),
                           static_cast<int>(x.cols),
                           static_cast<float>(shape_.eps)}});
  return true;
}

}  // namespace spk::cuda
