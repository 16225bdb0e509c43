// Kimi Delta Attention: convolution, gates, and the choice between the recurrence of one row and
// the chunked form.
//
// A few rows go through the recurrence one after the other, so that a row's bits do not depend on
// its neighbours (what a verify pass needs). A prompt goes in chunks that end at absolute multiples
// of kChunk: the same prompt cut in the same places gives the same bits, however it is scheduled.
#include "backend/cpu/cpu.h"
#include "backend/cpu/kda.h"
#include "base/error.h"
#include "base/types.h"

#include <algorithm>
#include <cmath>

namespace spk::cpu {
namespace {

constexpr int64_t kChannelBlock = 128;  // convolution task: 8 cache lines of each row
constexpr int64_t kExpCost = 16;
constexpr int64_t kRowVectors = 4;  // of a row in the recurrence: q, k, decay, decayed k
static_assert(kMaxVerify <= kDirectRows && kMaxVerify <= kRecurrentRows);
static_assert(kRecurrentRows <= kDirectRows);

}  // namespace

// Input `index` of stream s: of the tail, and of what a verify pass recorded behind it.
const float* CpuBackend::past_input(const LayerState& state, int64_t s, int64_t index) const {
  const int64_t past = shape_.conv_kernel - 1;
  return index < past ? row_of(state.conv_tail, s * past + index)
                      : row_of(state.record_in, s * kMaxVerify + index - past);
}

// Moves `rows` recorded inputs of stream s into the tail.
void CpuBackend::fold_tail(const LayerState& state, int64_t s, int64_t rows) {
  const int64_t past = shape_.conv_kernel - 1;
  for (int64_t j = 0; j < past && rows > 0; ++j)
    std::copy_n(past_input(state, s, j + rows), state.conv_tail.cols,
                row_of(state.conv_tail, s * past + j));
}

void CpuBackend::conv_step(const Rows& q, const Rows& k, const Rows& v, const Kda& w,
                           const LayerState& state) {
  const Rows* const in[3] = {&q, &k, &v};
  const int64_t blocks = ceil_div(q.cols, kChannelBlock);
  run_tasks(3 * blocks, 3 * q.rows * q.cols * kExpCost, [&](int64_t task, int) {
    const int64_t s = task / blocks, first = task % blocks * kChannelBlock;
    conv_channels(*in[s], s, w, state, first, std::min(kChannelBlock, q.cols - first));
  });
  count_tails(state);
}

void CpuBackend::count_tails(const LayerState& state) {
  counters_.state_bytes +=
      static_cast<uint64_t>(2 * state.conv_tail.rows * state.conv_tail.cols) * sizeof(float);
}

// Channels [first, first + n) of stream s (q, k, v), at most kChannelBlock.
void CpuBackend::conv_channels(const Rows& x, int64_t s, const Kda& w, const LayerState& state,
                               int64_t first, int64_t n) {
  const Weight* const taps[3] = {&w.conv_q, &w.conv_k, &w.conv_v};
  const int64_t past = shape_.conv_kernel - 1;
  SPK_CHECK(past <= kMostPast);
  SPK_DCHECK(x.cols % kLanes == 0 && taps[s]->rows == x.cols && n <= kChannelBlock);
  const bool verify = step_.kind == StepKind::kVerify;
  Conv c{};
  c.x = row_of(x, 0);
  c.rows = x.rows;
  c.stride = x.stride;
  // The accepted rows of the pass before are not in the tail yet.
  for (int64_t j = 0; j < past; ++j) c.past[j] = past_input(state, s, j + step_.fold);
  // A verify pass leaves the tail as it is, but for what was accepted before.
  if (!verify || step_.fold > 0) {
    c.tail = row_of(state.conv_tail, s * past);
    c.tail_stride = state.conv_tail.stride;
    c.tail_rows = verify ? 0 : x.rows;
  }
  if (verify) {
    c.record = row_of(state.record_in, s * kMaxVerify);
    c.record_stride = state.record_in.stride;
  }
  c.taps = floats_of(*taps[s]);
  c.channels = taps[s]->rows;
  c.kernel = shape_.conv_kernel;
  kernels_.conv(c, first, first + n);
}

void CpuBackend::gate_head(float* f, int64_t head, const Kda& w) const {
  const int64_t d = shape_.head_dim;
  float rate;
  kernels_.exp_of(floats_of(w.a_log) + head, &rate, 1);
  kernels_.gate(f + head * d, floats_of(w.dt_bias) + head * d, rate,
                static_cast<float>(shape_.kda_lower_bound), d);
}

void CpuBackend::kda_gate(const Rows& f, const Rows& b, const Kda& w) {
  run_each(f.rows, f.cols * kExpCost, [&](int64_t i, int) {
    for (int64_t h = 0; h < shape_.heads; ++h) gate_head(row_of(f, i), h, w);
    kernels_.sigmoid(row_of(b, i), b.cols);
  });
}

// Value columns [first, last) of one head through the recurrence, `rows` of them (at most
// kRecurrentRows) from `row` on; before them the state takes the records of `fold` rows. A tile of
// columns takes all rows while it is in the nearest cache; a verify pass moves on in a private copy
// of it. work: recurrent_floats().
void CpuBackend::kda_rows(const KdaRows& h, int64_t row, int64_t rows, int64_t fold, int64_t first,
                          int64_t last, float* work) {
  const int64_t d = shape_.head_dim, at = h.head * d;
  Deltas x;
  x.state = h.state;
  x.stride = h.state_stride;
  x.d = d;
  x.first = first;
  x.last = last;
  x.fold.rows = fold;
  if (fold > 0) work = fold_of(*h.record_before, h.head, x.fold, work);
  x.rows = rows;
  for (int64_t i = 0; i < rows; ++i, work += kRowVectors * d) {
    float *q = work, *k = q + d, *alpha = k + d, *decayed_k = alpha + d;
    kernels_.unit(row_of(h.q, row + i) + at, 1.f / std::sqrt(static_cast<float>(d)), d, q);
    kernels_.unit(row_of(h.k, row + i) + at, 1.f, d, k);
    kernels_.exp_of(row_of(h.g, row + i) + at, alpha, d);
    const float qk = kernels_.dot(q, k, d);
    std::copy_n(k, d, decayed_k);
    kernels_.multiply(alpha, decayed_k, d);
    kernels_.multiply(alpha, q, d);
    x.row[i] = {k,
                alpha,
                decayed_k,
                q,
                qk,
                row_of(h.beta, row + i)[h.head],
                row_of(h.v, row + i) + at,
                row_of(h.o, row + i) + at,
                h.record ? row_of(h.record->record_u, row + i) + at : nullptr};
  }
  x.moving = h.record ? work : nullptr;
  kernels_.deltas(x);
  if (!h.record) return;
  // Not before: the fold reads the records of the pass before from the same places. (u is the
  // kernel's to write: it has read that of a column by then.) The parts of a head write the same
  // bytes; each writes its own columns only.
  for (int64_t i = 0; i < rows; ++i) {
    std::copy_n(x.row[i].k + first, last - first, row_of(h.record->record_k, row + i) + at + first);
    std::copy_n(row_of(h.g, row + i) + at + first, last - first,
                row_of(h.record->record_g, row + i) + at + first);
  }
}

CpuBackend::KdaRows CpuBackend::kda_rows_of(const Rows& q, const Rows& k, const Rows& v,
                                            const Rows& g, const Rows& beta, const Rows& o,
                                            const LayerState& state, int64_t head) const {
  return {q,
          k,
          v,
          g,
          beta,
          o,
          row_of(state.kda_state, head * shape_.head_dim),
          state.kda_state.stride,
          head,
          step_.kind == StepKind::kVerify ? &state : nullptr,
          &state};
}

// Memory of kda_rows for one task.
int64_t CpuBackend::recurrent_floats() const {
  return shape_.head_dim * (kMaxVerify + kRowVectors * kRecurrentRows + kStateColumns);
}

// The records of the first rows of the last verify pass, of one head. work: f.rows * D floats of
// kMaxVerify * D; returns what is behind them.
float* CpuBackend::fold_of(const LayerState& state, int64_t head, Fold& f, float* work) const {
  const int64_t d = shape_.head_dim, at = head * d;
  for (int64_t i = 0; i < f.rows; ++i) {
    kernels_.exp_of(row_of(state.record_g, i) + at, work + i * d, d);
    f.k[i] = row_of(state.record_k, i) + at;
    f.alpha[i] = work + i * d;
    f.u[i] = row_of(state.record_u, i) + at;
  }
  return work + f.rows * d;
}

// Value columns [first, last) of one head take `rows` records. work: kMaxVerify * D floats.
void CpuBackend::fold_state(const LayerState& state, int64_t rows, int64_t head, int64_t first,
                            int64_t last, float* work) {
  if (rows == 0) return;
  const int64_t d = shape_.head_dim;
  Deltas x;
  x.state = row_of(state.kda_state, head * d);
  x.stride = state.kda_state.stride;
  x.d = d;
  x.first = first;
  x.last = last;
  x.fold.rows = rows;
  fold_of(state, head, x.fold, work);
  kernels_.fold(x);
}

void CpuBackend::commit(const LayerState& state, int64_t rows) {
  if (!state.kda_state.buffer) return;
  const int64_t d = shape_.head_dim;
  for (int64_t s = 0; s < 3; ++s) fold_tail(state, s, rows);
  reserve_workers(kMaxVerify * d);
  run_tasks(shape_.heads, rows * shape_.heads * d * d, [&](int64_t head, int worker) {
    fold_state(state, rows, head, 0, d, worker_floats(worker, kMaxVerify * d));
  });
  counters_.state_bytes += static_cast<uint64_t>(2 * shape_.heads * d * d) * sizeof(float);
}

void CpuBackend::mix_head(const KdaRows& h, int64_t fold, int64_t first, int64_t last,
                          float* work) {
  const bool chunked = step_.kind == StepKind::kPrefill && h.q.rows > kRecurrentRows;
  for (int64_t row = 0; row < h.q.rows;) {
    const int64_t to_grid = kChunk - (step_.first_position + row) % kChunk;
    const int64_t rows = std::min(chunked ? to_grid : kRecurrentRows, h.q.rows - row);
    if (rows > kRecurrentRows) {
      kda_chunk(h, row, rows, first, last, work);
    } else {
      kda_rows(h, row, rows, fold, first, last, work);
      fold = 0;
    }
    row += rows;
  }
}

void CpuBackend::kda_mix(const Rows& q, const Rows& k, const Rows& v, const Rows& g,
                         const Rows& beta, const LayerState& state, const Rows& o) {
  const int64_t d = shape_.head_dim, heads = shape_.heads;
  // Value columns are independent: split heads between workers when there are fewer heads than
  // workers.
  int64_t parts = 1;
  while (heads * parts < team_.size() && d / (2 * parts) >= kLanes && d % (2 * parts * kLanes) == 0)
    parts *= 2;
  const int64_t columns = d / parts;
  // A column is one task's in the fold and in what follows, so the fold may come first, in the same
  // task: but the records of ALL columns' k and g are read by it, so nobody may overwrite them
  // before everybody has folded. Hence two loops when there is something to fold.
  reserve_workers(std::max(kda_chunk_floats(d), recurrent_floats()));
  if (step_.fold > 0) {
    run_tasks(heads * parts, step_.fold * heads * d * d * 2, [&](int64_t task, int worker) {
      const int64_t first = task % parts * columns;
      fold_state(state, step_.fold, task / parts, first, first + columns,
                 worker_floats(worker, recurrent_floats()));
    });
  }
  run_tasks(heads * parts, q.rows * heads * d * d * 4, [&](int64_t task, int worker) {
    const int64_t first = task % parts * columns;
    mix_head(kda_rows_of(q, k, v, g, beta, o, state, task / parts), 0, first, first + columns,
             worker_floats(worker, recurrent_floats()));
  });
  count_states();
}

void CpuBackend::count_states() {
  counters_.state_bytes +=
      static_cast<uint64_t>(2 * shape_.heads * shape_.head_dim * shape_.head_dim) * sizeof(float);
}

// Everything between the two products, a head a task. A head's records are this task's alone, so
// that it may fold them and then write them again.
void CpuBackend::fused_kda(const Kda& w, const LayerState& state, const Scratch& t) {
  const int64_t d = shape_.head_dim, heads = shape_.heads, n = heads * d;
  const Rows q = t.q.slice_cols(0, n), k = t.k.slice_cols(0, n), v = t.v.slice_cols(0, n);
  const Rows o = t.mix.slice_cols(0, n);
  const Weight* in[] = {&w.q, &w.k, &w.v, &w.f, &w.g, &w.b};
  const Rows out[] = {q, k, v, t.f, t.g, t.beta};
  matmul_many(t.h, in, out);
  for (int64_t i = 0; i < t.beta.rows; ++i) kernels_.sigmoid(row_of(t.beta, i), t.beta.cols);
  const Rows* const streams[3] = {&q, &k, &v};
  reserve_workers(recurrent_floats());
  run_tasks(heads, q.rows * n * (4 * d + 6 * kExpCost), [&](int64_t head, int worker) {
    const int64_t at = head * d;
    float* work = worker_floats(worker, recurrent_floats());
    for (int64_t s = 0; s < 3; ++s)
      for (int64_t c = 0; c < d; c += kChannelBlock)
        conv_channels(*streams[s], s, w, state, at + c, std::min(kChannelBlock, d - c));
    for (int64_t i = 0; i < q.rows; ++i) gate_head(row_of(t.f, i), head, w);
    mix_head(kda_rows_of(q, k, v, t.f, t.beta, o, state, head), step_.fold, 0, d, work);
    for (int64_t i = 0; i < q.rows; ++i)
      norm_gate_head(row_of(o, i), row_of(t.g, i), head, w.o_norm);
  });
  count_tails(state);
  count_states();
  matmul(o, w.o, t.o);
}

}  // namespace spk::cpu
