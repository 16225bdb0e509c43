// The mixers: Kimi Delta Attention and latent attention.
#include "backend/cuda/cuda.h"
#include "backend/cuda/work.h"
#include "base/error.h"
#include "base/types.h"

#include <algorithm>
#include <cmath>

namespace spk::cuda {
namespace {

constexpr int64_t kThreads = gpu::kThreads;
constexpr int64_t kLeastRopeRows = 16;
constexpr int64_t kSegmentsAtOnce = 32;

int64_t blocks(int64_t n, int64_t per_block = kThreads) { return ceil_div(n, per_block); }

}  // namespace

// ---- KDA ----

void CudaBackend::conv_step(const Rows& q, const Rows& k, const Rows& v, const Kda& w,
                            const LayerState& state) {
  gpu::ConvArgs a{};
  const Rows* const in[3] = {&q, &k, &v};
  const Weight* const taps[3] = {&w.conv_q, &w.conv_k, &w.conv_v};
  for (int s = 0; s < 3; ++s) {
    SPK_CHECK(taps[s]->rows == in[s]->cols && taps[s]->cols == shape_.conv_kernel);
    a.x[s] = view_of(*in[s]);
    a.taps[s] = floats_of(*taps[s]);
  }
  a.tail = view_of(state.conv_tail);
  a.record = view_of(state.record_in);
  a.step = step_info();
  a.n = static_cast<int>(q.rows);
  a.channels = static_cast<int>(q.cols);
  launch(plain_kernel("kda", "conv_step", shape_.conv_kernel), {blocks(q.cols), 3}, kThreads, a);
  count_tails(state);
}

void CudaBackend::count_tails(const LayerState& state) {
  counters_.state_bytes +=
      static_cast<uint64_t>(2 * state.conv_tail.rows * state.conv_tail.cols) * sizeof(float);
}
void CudaBackend::count_states(const LayerState& state) {
  counters_.state_bytes +=
      static_cast<uint64_t>(2 * state.kda_state.rows * state.kda_state.cols) * sizeof(float);
}

void CudaBackend::kda_gate(const Rows& f, const Rows& b, const Kda& w) {
  launch(
      plain_kernel("kda", "kda_gate", shape_.head_dim), {blocks(f.cols), f.rows}, kThreads,
      gpu::KdaGateArgs{view_of(f), view_of(b), floats_of(w.a_log), floats_of(w.dt_bias),
                       static_cast<int>(shape_.heads), static_cast<float>(shape_.kda_lower_bound)});
}

void CudaBackend::fold(const LayerState& state, int64_t rows) {
  if (rows == 0) return;
  launch(
      plain_kernel("kda", "fold_state", shape_.head_dim),
      {shape_.heads, shape_.head_dim / gpu::kKdaColumns}, kThreads,
      gpu::FoldStateArgs{view_of(state.kda_state), view_of(state.record_k), view_of(state.record_u),
                         view_of(state.record_g), static_cast<int>(rows)});
}

void CudaBackend::commit(const LayerState& state, int64_t rows) {
  if (!state.kda_state.buffer || rows == 0) return;
  launch(plain_kernel("kda", "fold_tail", shape_.conv_kernel), {blocks(state.conv_tail.cols), 3},
         kThreads,
         gpu::FoldTailArgs{view_of(state.conv_tail), view_of(state.record_in),
                           static_cast<int>(state.conv_tail.cols), static_cast<int>(rows)});
  fold(state, rows);
  count_states(state);
}

void CudaBackend::kda_mix(const Rows& q, const Rows& k, const Rows& v, const Rows& g,
                          const Rows& beta, const LayerState& state, const Rows& o) {
  fold(state, step_.fold);
  count_states(state);
  // Pieces end on the grid of chunks; up to eight rows of one go through the recurrence, wherever
  // they stand in the step, so that cutting a prompt on the grid does not show in the bits.
  const bool prefill = step_.kind == StepKind::kPrefill;
  for (int64_t at = 0; at < q.rows;) {
    const int64_t offset = (step_.first_position + at) % gpu::kKdaChunk, left = q.rows - at;
    const auto part = [&](const Rows& r, int64_t n) { return r.slice_rows(at, n); };
    int64_t n = prefill ? std::min<int64_t>(gpu::kKdaChunk - offset, left) : left;
    if (!prefill || n <= gpu::kMaxVerifyRows) {
      kda_recurrence(part(q, n), part(k, n), part(v, n), part(g, n), part(beta, n), state,
                     part(o, n));
    } else {
      n = std::min<int64_t>(gpu::kKdaSlab - offset, left);
      if (const int64_t last = (offset + n) % gpu::kKdaChunk;
          n > last && last <= gpu::kMaxVerifyRows)
        n -= last;
      kda_chunks(part(q, n), part(k, n), part(v, n), part(g, n), part(beta, n), state, part(o, n),
                 step_.first_position + at);
    }
    at += n;
  }
}

void CudaBackend::kda_recurrence(const Rows& q, const Rows& k, const Rows& v, const Rows& g,
                                 const Rows& beta, const LayerState& state, const Rows& o) {
  gpu::KdaArgs a{};
  a.q = view_of(q), a.k = view_of(k), a.v = view_of(v), a.g = view_of(g);
  a.beta = view_of(beta), a.o = view_of(o), a.state = view_of(state.kda_state);
  a.record_k = view_of(state.record_k);
  a.record_u = view_of(state.record_u);
  a.record_g = view_of(state.record_g);
  a.step = step_info();
  a.n = static_cast<int>(q.rows);
  launch(plain_kernel("kda", "kda_rows", shape_.head_dim),
         {shape_.heads, shape_.head_dim / gpu::kKdaColumns}, kThreads, a);
}

void CudaBackend::kda_chunks(const Rows& q, const Rows& k, const Rows& v, const Rows& g,
                             const Rows& beta, const LayerState& state, const Rows& o,
                             int64_t first_position) {
  const int64_t d = shape_.head_dim, heads = shape_.heads, rows = q.rows * heads;
  const int64_t chunks = ceil_div(first_position % gpu::kKdaChunk + q.rows, gpu::kKdaChunk);
  gpu::KdaChunkArgs a{};
  Sections sections;
  sections.add(a.q_start, rows * d);
  sections.add(a.k_start, rows * d);
  sections.add(a.k_end, rows * d);
  sections.add(a.unit_q, rows * d);
  sections.add(a.unit_k, rows * d);
  sections.add(a.a, rows * gpu::kKdaChunk);
  sections.add(a.p, rows * gpu::kKdaChunk);
  sections.add(a.decay, chunks * heads * d);
  sections.place(work_space(sections.bytes()));
  a.q = view_of(q), a.k = view_of(k), a.v = view_of(v), a.g = view_of(g);
  a.beta = view_of(beta), a.o = view_of(o), a.state = view_of(state.kda_state);
  a.first_position = first_position;
  a.n = static_cast<int>(q.rows);
  a.heads = static_cast<int>(heads);
  launch(plain_kernel("kda_chunk", "kda_prepare", d), {heads, chunks}, kThreads, a);
  launch(plain_kernel("kda_chunk", "kda_scan", d), {heads, d / gpu::kKdaColumns}, kThreads, a);
}

// ---- MLA ----

// Once a step, when the first verb asks for it.
void CudaBackend::fill_rope_table(int64_t rows) {
  if (rows > rope_rows_) {
    rope_rows_ = std::max(rows, kLeastRopeRows);
    rope_table_ = take(static_cast<size_t>(rope_rows_ * shape_.rope) * sizeof(float), "rope table");
    rope_ready_ = false;
  }
  if (rope_ready_) return;
  rope_ready_ = true;
  const int64_t half = shape_.rope / 2;
  gpu::RopeTableArgs a{};
  a.turns = pointer_to<const double>(rope_turns_);
  a.cosine = {pointer_to<float>(rope_table_), half};
  a.sine = {a.cosine.data + rope_rows_ * half, half};
  a.step = step_info();
  a.half = static_cast<int>(half);
  a.factor = shape_.rope_factor;
  // All rows of the step, whoever asked.
  launch(plain_kernel("latent", "rope_table"), {std::max(rows, std::min(step_.rows, rope_rows_))},
         gpu::kWarp, a);
}

gpu::RopeArgs CudaBackend::rope_args(const Rows& q) {
  fill_rope_table(std::max(q.rows, step_.rows));
  const int64_t half = shape_.rope / 2;
  float* table = pointer_to<float>(rope_table_);
  return {view_of(q),
          {table, half},
          {table + rope_rows_ * half, half},
          static_cast<int>(shape_.heads),
          static_cast<int>(shape_.nope + shape_.rope),
          static_cast<int>(shape_.nope),
          static_cast<int>(half)};
}
gpu::LatentAppendArgs CudaBackend::append_args(const Rows& kv, const Weight& kv_a_norm,
                                               const LayerState& state) {
  SPK_CHECK(step_.first_position + kv.rows <= state.latent.rows);
  fill_rope_table(std::max(kv.rows, step_.rows));
  const int64_t half = shape_.rope / 2;
  float* table = pointer_to<float>(rope_table_);
  counters_.state_bytes += static_cast<uint64_t>(kv.rows * kv.cols) * sizeof(float);
  return {view_of(kv),
          view_of(state.latent),
          {table, half},
          {table + rope_rows_ * half, half},
          floats_of(kv_a_norm),
          step_info(),
          static_cast<int>(shape_.latent),
          static_cast<int>(half),
          static_cast<float>(shape_.eps)};
}
gpu::AbsorbArgs CudaBackend::absorb_args(const Rows& q, const Weight& kv_b, const Rows& q_latent) {
  const int64_t per_head = shape_.nope + shape_.v_dim;
  gpu::AbsorbArgs a{};
  a.w = matrix_of(kv_b);
  a.q = view_of(q);
  a.q_latent = view_of(q_latent);
  a.n = static_cast<int>(q.rows);
  a.heads = static_cast<int>(shape_.heads);
  a.nope = static_cast<int>(shape_.nope);
  a.width = static_cast<int>(shape_.nope + shape_.rope);
  a.per_head = static_cast<int>(per_head);
  a.latent = static_cast<int>(shape_.latent);
  count(kv_b, shape_.nope, per_head);
  return a;
}

void CudaBackend::rope(const Rows& q) {
  const gpu::RopeArgs a = rope_args(q);
  launch(plain_kernel("latent", "rope"), {q.rows}, kThreads, a);
}
void CudaBackend::latent_append(const Rows& kv, const Weight& kv_a_norm, const LayerState& state) {
  const gpu::LatentAppendArgs a = append_args(kv, kv_a_norm, state);
  launch(plain_kernel("latent", "latent_append"), {kv.rows}, kThreads, a);
}
void CudaBackend::latent_absorb(const Rows& q, const Weight& kv_b, const Rows& q_latent) {
  launch(absorb_kernel(kv_b.format),
         {blocks(shape_.latent, gpu::kAbsorbColumns), shape_.heads,
          blocks(q.rows, gpu::kMaxRowsInvariant)},
         kThreads, absorb_args(q, kv_b, q_latent));
}
void CudaBackend::latent_query(const Rows& q, const Rows& kv, const Mla& w, const LayerState& state,
                               const Rows& q_latent) {
  const gpu::LatentQueryArgs a{rope_args(q), append_args(kv, w.kv_a_norm, state),
                               absorb_args(q, w.kv_b, q_latent)};
  launch(latent_query_kernel(w.kv_b.format),
         {blocks(shape_.latent, gpu::kAbsorbColumns), shape_.heads + 1}, kThreads, a);
}

void CudaBackend::latent_attend(const Rows& q_latent, const Rows& q, const LayerState& state,
                                const Rows& z) {
  const int64_t positions = step_.first_position + q.rows, heads = shape_.heads;
  const auto most = static_cast<int64_t>(device_->info().shared);
  SPK_CHECK((shape_.latent + shape_.rope) % 4 != 0 ||
            (state.latent.stride % 4 == 0 && state.latent.offset % 4 == 0));  // loads of 16 bytes
  gpu::AttendArgs a{};
  a.q_latent = view_of(q_latent);
  a.q = view_of(q);
  a.latent = view_of(state.latent);
  a.z = view_of(z);
  a.step = step_info();
  a.n = static_cast<int>(q.rows);
  a.heads = static_cast<int>(heads);
  a.nope = static_cast<int>(shape_.nope);
  a.width = static_cast<int>(shape_.nope + shape_.rope);
  a.positions = static_cast<int>(state.latent.rows);
  a.scale = 1.f / std::sqrt(static_cast<float>(shape_.nope + shape_.rope));
  counters_.state_bytes += static_cast<uint64_t>(positions * state.latent.cols) * sizeof(float);
  const int64_t tiles = blocks(heads, gpu::kAttendHeads);
  const int64_t shared = 4 * gpu::attend_floats(static_cast<int>(shape_.latent + shape_.rope));
  const auto whole = [&] {
    launch(attend_kernel(shape_, false), {1, tiles, q.rows, shared}, kThreads, a);
  };
  if (q.rows > gpu::kMaxRowsInvariant) {
    whole();
    return;
  }
  // Sized for the whole cache at once and asked for by the first step, so that no answer fails for
  // want of it when its context grows past a segment.
  const int64_t pieces =
      (gpu::segment_of(state.latent.rows - 1) + 1) * gpu::kMaxRowsInvariant * heads;
  Sections sections;
  sections.add(a.piece_z, pieces * shape_.latent);
  sections.add(a.piece_top, pieces);
  sections.add(a.piece_sum, pieces);
  sections.place(work_space(sections.bytes()));
  if (positions <= gpu::kAttendStep) {
    whole();
    return;
  }
  // Room for some more segments, whose blocks end at once: fewer graphs as a context grows.
  const int64_t segments = round_up(gpu::segment_of(positions - 1) + 1, kSegmentsAtOnce);
  // A multiprocessor takes two tiles of heads at once. When all have theirs, two share a block, so
  // that latents come from the L2 for both.
  const int64_t all = segments * tiles * q.rows;
  const bool pairs = tiles > 1 && all > 2 * device_->info().multiprocessors && 2 * shared <= most;
  const int64_t together = pairs ? gpu::kAttendTiles : 1;
  launch(attend_kernel(shape_, true),
         {segments, blocks(tiles, together), q.rows, together * shared},
         static_cast<int>(together * kThreads), a);
  launch(attend_merge_kernel(shape_), {heads, blocks(shape_.latent, gpu::kMergeColumns), q.rows},
         kThreads, a);
}

}  // namespace spk::cuda
