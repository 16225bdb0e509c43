// Launches that do the work of several verbs of a decode step, with the verbs' bits.
#include "backend/cuda/cuda.h"
#include "base/error.h"

namespace spk::cuda {

FusionPlan CudaBackend::plan() const {
  FusionPlan plan;
  if (!options_.fuse || !has_kda_block(shape_)) return plan;
  plan.fused[static_cast<int>(Block::kKda)] = true;
  plan.text = "KDA by heads from convolution to gated norm";
  return plan;
}

void CudaBackend::fused(Block block, const Layer& layer, const LayerState& state,
                        const Scratch& t) {
  SPK_CHECK(block == Block::kKda && t.h.rows <= kMaxVerify);
  const Kda& w = layer.kda;
  const int64_t n = shape_.heads * shape_.head_dim;
  const Rows q = t.q.slice_cols(0, n), k = t.k.slice_cols(0, n), v = t.v.slice_cols(0, n);
  const Rows o = t.mix.slice_cols(0, n);
  const Weight* in[] = {&w.q, &w.k, &w.v, &w.f, &w.g, &w.b};
  const Rows out[] = {q, k, v, t.f, t.g, t.beta};
  matmul_many(t.h, in, out);
  gpu::KdaBlockArgs a{};
  const Rows* const streams[3] = {&q, &k, &v};
  const Weight* const taps[3] = {&w.conv_q, &w.conv_k, &w.conv_v};
  for (int s = 0; s < 3; ++s) {
    SPK_CHECK(taps[s]->rows == n && taps[s]->cols == shape_.conv_kernel);
    a.x[s] = view_of(*streams[s]);
    a.taps[s] = floats_of(*taps[s]);
  }
  a.f = view_of(t.f), a.b = view_of(t.beta), a.gate = view_of(t.g), a.o = view_of(o);
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
  a.n = static_cast<int>(q.rows);
  a.lower_bound = static_cast<float>(shape_.kda_lower_bound);
  a.eps = static_cast<float>(shape_.eps);
  launch(kda_block_kernel(shape_), {shape_.heads},
         gpu::kda_block_threads(static_cast<int>(shape_.head_dim)), a);
  count_tails(state);
  count_states(state);
  matmul(o, w.o, t.o);
}

}  // namespace spk::cuda
