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
constexpr int64_t kRowVectors = 4;     // of a row in the recurrence: q, k, decay, decayed k
constexpr int64_t kStateColumns = 64;  // 128 * 64 floats of a state are 32 KiB
static_assert(kMaxVerify <= kDirectRows && kMaxVerify <= kRecurrentRows);
constexpr int64_t kMaxPast = 7;  // convolution taps before the newest, as loops_mix.h allows

}  // namespace

// Moves `rows` recorded inputs of stream s into the tail, for channels [first, first + n).
void CpuBackend::fold_tail(const LayerState& state, int64_t s, int64_t rows, int64_t first,
                           int64_t n) {
  const int64_t past = shape_.conv_kernel - 1;
  for (int64_t j = 0; j < past && rows > 0; ++j) {
    const int64_t from = j + rows;  // index into [tail, records]
    const float* source = from < past ? row_of(state.conv_tail, s * past + from)
                                      : row_of(state.record_in, s * kMaxVerify + from - past);
    std::copy_n(source + first, n, row_of(state.conv_tail, s * past + j) + first);
  }
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
  SPK_DCHECK(x.cols % kLanes == 0 && taps[s]->rows == x.cols && n <= kChannelBlock);
  fold_tail(state, s, step_.fold, first, n);
  Conv c{row_of(x, 0),
         x.rows,
         x.stride,
         row_of(state.conv_tail, s * past),
         state.conv_tail.stride,
         floats_of(*taps[s]),
         taps[s]->rows,
         shape_.conv_kernel};
  float copy[kMaxPast * kChannelBlock];  // a verify pass leaves the tail as it is
  if (step_.kind == StepKind::kVerify) {
    for (int64_t i = 0; i < c.rows; ++i)
      std::copy_n(row_of(x, i) + first, n, row_of(state.record_in, s * kMaxVerify + i) + first);
    for (int64_t j = 0; j < past; ++j)
      std::copy_n(c.tail + j * c.tail_stride + first, n, copy + j * kChannelBlock);
    c.tail = copy - first;  // conv adds the channel to it
    c.tail_stride = kChannelBlock;
  }
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
// kRecurrentRows) from `row` on. A tile of columns takes all rows while it is in the nearest cache;
// a verify pass moves on to a private copy of it. work: recurrent_floats().
void CpuBackend::kda_rows(const KdaRows& h, int64_t row, int64_t rows, int64_t first, int64_t last,
                          float* work) {
  const int64_t d = shape_.head_dim, at = h.head * d;
  Delta x[kRecurrentRows];
  for (int64_t i = 0; i < rows; ++i, work += kRowVectors * d) {
    float *q = work, *k = q + d, *alpha = k + d, *decayed_k = alpha + d;
    kernels_.unit(row_of(h.q, row + i) + at, 1.f / std::sqrt(static_cast<float>(d)), d, q);
    kernels_.unit(row_of(h.k, row + i) + at, 1.f, d, k);
    kernels_.exp_of(row_of(h.g, row + i) + at, alpha, d);
    float* u = nullptr;
    if (h.record) {
      u = row_of(h.record->record_u, row + i) + at;
      // The parts of a head write the same bytes here; each writes its own columns only.
      std::copy_n(k + first, last - first, row_of(h.record->record_k, row + i) + at + first);
      std::copy_n(row_of(h.g, row + i) + at + first, last - first,
                  row_of(h.record->record_g, row + i) + at + first);
    }
    const float qk = kernels_.dot(q, k, d);
    std::copy_n(k, d, decayed_k);
    kernels_.multiply(alpha, decayed_k, d);
    kernels_.multiply(alpha, q, d);
    x[i] = {h.state,
            h.state_stride,
            h.state,
            h.state_stride,
            d,
            first,
            last,
            k,
            alpha,
            decayed_k,
            q,
            qk,
            row_of(h.beta, row + i)[h.head],
            row_of(h.v, row + i) + at,
            row_of(h.o, row + i) + at,
            u};
  }
  for (int64_t c = first; c < last; c += kStateColumns) {
    const int64_t n = std::min(kStateColumns, last - c);
    for (int64_t i = 0; i < rows; ++i) {
      x[i].first = c;
      x[i].last = c + n;
      if (h.record) {
        float* const copy = work - c;  // columns keep their numbers
        if (i > 0) x[i].from = copy, x[i].from_stride = n;
        x[i].to = i + 1 < rows ? copy : nullptr;
        x[i].to_stride = n;
      }
      kernels_.delta(x[i]);
    }
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
          step_.kind == StepKind::kVerify ? &state : nullptr};
}

// Memory of kda_rows for one task.
int64_t CpuBackend::recurrent_floats() const {
  return shape_.head_dim * (kRowVectors * kRecurrentRows + kStateColumns);
}

// Value columns [first, last) of one head take `rows` records. work: kMaxVerify * D floats.
void CpuBackend::fold_state(const LayerState& state, int64_t rows, int64_t head, int64_t first,
                            int64_t last, float* work) {
  if (rows == 0) return;
  const int64_t d = shape_.head_dim, at = head * d;
  Fold f{row_of(state.kda_state, at), state.kda_state.stride, d, first, last, rows, {}, {}, {}};
  for (int64_t i = 0; i < rows; ++i) {
    kernels_.exp_of(row_of(state.record_g, i) + at, work + i * d, d);
    f.k[i] = row_of(state.record_k, i) + at;
    f.alpha[i] = work + i * d;
    f.u[i] = row_of(state.record_u, i) + at;
  }
  kernels_.fold(f);
}

void CpuBackend::commit(const LayerState& state, int64_t rows) {
  if (!state.kda_state.buffer) return;
  const int64_t d = shape_.head_dim;
  for (int64_t s = 0; s < 3; ++s) fold_tail(state, s, rows, 0, state.conv_tail.cols);
  reserve_workers(kMaxVerify * d);
  run_tasks(shape_.heads, rows * shape_.heads * d * d, [&](int64_t head, int worker) {
    fold_state(state, rows, head, 0, d, worker_floats(worker, kMaxVerify * d));
  });
  counters_.state_bytes += static_cast<uint64_t>(2 * shape_.heads * d * d) * sizeof(float);
}

void CpuBackend::mix_head(const KdaRows& h, int64_t first, int64_t last, float* work) {
  const bool chunked = step_.kind == StepKind::kPrefill && h.q.rows > kRecurrentRows;
  for (int64_t row = 0; row < h.q.rows;) {
    const int64_t to_grid = kChunk - (step_.first_position + row) % kChunk;
    const int64_t rows = std::min(chunked ? to_grid : kRecurrentRows, h.q.rows - row);
    if (rows > kRecurrentRows) {
      kda_chunk(h, row, rows, first, last, work);
    } else {
      kda_rows(h, row, rows, first, last, work);
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
    mix_head(kda_rows_of(q, k, v, g, beta, o, state, task / parts), first, first + columns,
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
    fold_state(state, step_.fold, head, 0, d, work);
    mix_head(kda_rows_of(q, k, v, t.f, t.beta, o, state, head), 0, d, work);
    for (int64_t i = 0; i < q.rows; ++i)
      norm_gate_head(row_of(o, i), row_of(t.g, i), head, w.o_norm);
  });
  count_tails(state);
  count_states();
  matmul(o, w.o, t.o);
}

}  // namespace spk::cpu
