// Gated latent attention without the attention itself (cpu_attend.cc): rotation, appending, and the
// two projections between heads and the latent, which read kv_b in place.
#include "backend/cpu/cpu.h"
#include "base/error.h"
#include "base/types.h"

#include <algorithm>
#include <cmath>

namespace spk::cpu {
namespace {

constexpr int64_t kAbsorbRows = 16;     // weight rows decoded at a time: 16 * 512 floats are 32 KiB
constexpr int64_t kAbsorbTogether = 4;  // rows of x that meet rounded weights at once
constexpr int64_t kFewPositions = 512;  // 512 * 576 floats of cached rows stay near a processor
constexpr int64_t kAbsorbColumns =
    128;  // least columns of a task: decode() starts at multiples of 128

}  // namespace

// Angles in double: at position 10^6 a float angle would be off by 0.06 radians.
void CpuBackend::update_rope_table(int64_t rows) {
  if (rope_first_ == step_.first_position && rope_rows_ >= rows) return;
  const int64_t half = shape_.rope / 2;
  rope_cos_.resize(static_cast<size_t>(rows * half));
  rope_sin_.resize(static_cast<size_t>(rows * half));
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < half; ++j) {
      const double angle =
          static_cast<double>(step_.first_position + i) * shape_.rope_freq[static_cast<size_t>(j)];
      const auto at = static_cast<size_t>(i * half + j);
      rope_cos_[at] = static_cast<float>(std::cos(angle) * shape_.rope_factor);
      rope_sin_[at] = static_cast<float>(std::sin(angle) * shape_.rope_factor);
    }
  rope_first_ = step_.first_position;
  rope_rows_ = rows;
}

void CpuBackend::rotate(float* x, int64_t row) {
  const int64_t half = shape_.rope / 2;
  const float* c = rope_cos_.data() + row * half;
  const float* s = rope_sin_.data() + row * half;
  for (int64_t j = 0; j < half; ++j) {
    const float even = x[2 * j], odd = x[2 * j + 1];
    x[2 * j] = even * c[j] - odd * s[j];
    x[2 * j + 1] = odd * c[j] + even * s[j];
  }
}

void CpuBackend::rope(const Rows& q) {
  update_rope_table(q.rows);
  run_each(q.rows, shape_.heads * shape_.rope * 2, [&](int64_t i, int) {
    for (int64_t h = 0; h < shape_.heads; ++h) rope_head(q, i, h);
  });
}

void CpuBackend::rope_head(const Rows& q, int64_t row, int64_t head) {
  rotate(row_of(q, row) + head * (shape_.nope + shape_.rope) + shape_.nope, row);
}

void CpuBackend::latent_append(const Rows& kv, const Weight& kv_a_norm, const LayerState& state) {
  update_rope_table(kv.rows);
  SPK_CHECK(step_.first_position + kv.rows <= state.latent.rows);
  const float* weights = floats_of(kv_a_norm);
  const auto eps = static_cast<float>(shape_.eps);
  run_each(kv.rows, kv.cols * 2, [&](int64_t i, int) {
    float* to = row_of(state.latent, step_.first_position + i);
    kernels_.rms_norm(row_of(kv, i), weights, eps, shape_.latent, to);
    std::copy_n(row_of(kv, i) + shape_.latent, shape_.rope, to + shape_.latent);
    rotate(to + shape_.latent, i);
  });
  counters_.state_bytes += static_cast<uint64_t>(kv.rows * kv.cols) * sizeof(float);
}

// q_latent[h] = sum over nope rows of W_UK[h], weighted by q: weight rows are decoded a few at a
// time and multiplied from the left, so that they need no transposition. Columns [first, first +
// columns) of the latent; decoded: absorb_floats(columns).
void CpuBackend::absorb(const Matrix& kv_b, const Rows& q, const Rows& q_latent, int64_t head,
                        int64_t first, int64_t columns, float* decoded) {
  const int64_t row = head * (shape_.nope + shape_.v_dim);
  if (bf16_ && kv_b.format == Format::kFp8 && shape_.nope % kBf16Columns == 0 &&
      row % kBf16Columns == 0) {
    auto* const rounded = reinterpret_cast<uint16_t*>(decoded);
    for (int64_t i = 0; i < q.rows; i += kAbsorbTogether) {
      const int64_t n = std::min(kAbsorbTogether, q.rows - i);
      const uint16_t* x[kAbsorbTogether];
      float* y[kAbsorbTogether];
      for (int64_t j = 0; j < n; ++j) {
        x[j] = rounded + j * shape_.nope;
        y[j] = row_of(q_latent, i + j) + head * shape_.latent + first;
        bf16_->round(row_of(q, i + j) + head * (shape_.nope + shape_.rope), shape_.nope,
                     rounded + j * shape_.nope);
      }
      bf16_->matvec_across(kv_b, row, shape_.nope, first, first + columns, x, n, y);
    }
    return;
  }
  // Many rows want their sums in registers to the end: fewer columns, and as many weight rows as
  // fit the same memory.
  const int64_t piece = q.rows > kDirectRows ? std::min(columns, kAbsorbColumns) : columns;
  const int64_t together = kAbsorbRows * (columns / piece);
  for (int64_t c = 0; c < columns; c += piece)
    for (int64_t d = 0; d < shape_.nope; d += together) {
      const int64_t n = std::min(piece, columns - c), count = std::min(together, shape_.nope - d);
      for (int64_t r = 0; r < count; ++r)
        kernels_.decode(kv_b, row + d + r, first + c, first + c + n, decoded + r * n);
      kernels_.gemm({q.rows, n, count, row_of(q, 0) + head * (shape_.nope + shape_.rope) + d,
                     q.stride, 1, decoded, n,
                     row_of(q_latent, 0) + head * shape_.latent + first + c, q_latent.stride,
                     d == 0 ? Accumulate::kSet : Accumulate::kAdd});
    }
}

int64_t CpuBackend::absorb_floats(int64_t columns) const {
  return std::max(kAbsorbRows * columns, kAbsorbTogether * shape_.nope / 2);
}

void CpuBackend::latent_absorb(const Rows& q, const Weight& kv_b, const Rows& q_latent) {
  const int64_t per_head = shape_.nope + shape_.v_dim, latent = shape_.latent;
  const Matrix w = matrix_of(kv_b);
  int64_t parts = 1;
  while (shape_.heads * parts < 2 * team_.size() && latent % (2 * parts * kAbsorbColumns) == 0)
    parts *= 2;
  const int64_t columns = latent / parts;
  reserve_workers(absorb_floats(columns));
  const int64_t work = q.rows * shape_.heads * shape_.nope * latent;
  run_tasks(shape_.heads * parts, work, [&](int64_t task, int worker) {
    const int64_t h = task / parts, first = task % parts * columns;
    absorb(w, q, q_latent, h, first, columns, worker_floats(worker, absorb_floats(columns)));
  });
  counters_.weight_bytes += static_cast<uint64_t>(kv_b.bytes * shape_.nope / per_head);
}

void CpuBackend::latent_expand(const Rows& z, const Weight& kv_b, const Rows& o) {
  const int64_t per_head = shape_.nope + shape_.v_dim, n = z.rows, heads = shape_.heads;
  const Matrix w = matrix_of(kv_b);
  x_.resize(static_cast<size_t>(heads * n));
  y_.resize(static_cast<size_t>(heads * n));
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t i = 0; i < n; ++i) {
      x_[static_cast<size_t>(h * n + i)] = row_of(z, i) + h * shape_.latent;
      y_[static_cast<size_t>(h * n + i)] = row_of(o, i) + h * shape_.v_dim;
    }
  const bool few = direct(n);
  Inputs in{x_.data()};
  if (takes_rounded(kv_b)) in.rounded = round_rows(x_, kv_b.cols).data();
  const int64_t block = std::min(round_up(shape_.v_dim, kLanes),
                                 block_rows(heads * shape_.v_dim, shape_.latent, few));
  const int64_t blocks = ceil_div(shape_.v_dim, block);
  reserve_workers(panel_floats(block, shape_.latent));
  run_tasks(heads * blocks, n * heads * shape_.v_dim * shape_.latent,
            [&](int64_t task, int worker) {
              const int64_t h = task / blocks, first = task % blocks * block;
              const int64_t last = std::min(first + block, shape_.v_dim);
              const int64_t row = h * per_head + shape_.nope;
              multiply_block(w, row + first, row + last, in.from(h * n), n, y_.data() + h * n,
                             first, few, worker);
            });
  // What latent_absorb left, so that both together count the matrix to the byte.
  counters_.weight_bytes += static_cast<uint64_t>(kv_b.bytes - kv_b.bytes * shape_.nope / per_head);
}

// Everything between the products that take the layer's input and the output projection: a task
// takes some heads of all rows from their low-rank queries to their gated values.
void CpuBackend::fused_mla(const Mla& w, const LayerState& state, const Scratch& t) {
  const int64_t heads = shape_.heads, width = shape_.nope + shape_.rope, v = shape_.v_dim;
  const int64_t latent = shape_.latent, n = t.h.rows, positions = step_.first_position + n;
  const bool low_rank = shape_.q_lora > 0;
  const Rows q = t.q.slice_cols(0, heads * width), o = t.mix.slice_cols(0, heads * v);
  const Weight* in[] = {&w.kv_a, &w.g, low_rank ? &w.q_a : &w.q};
  const Rows out[] = {t.kv, t.beta, low_rank ? t.q_a : q};
  matmul_many(t.h, in, out);
  latent_append(t.kv, w.kv_a_norm, state);  // the rope table too
  const float* queries[kMaxVerify];
  Inputs low{queries};
  if (low_rank) {
    rms_norm(t.q_a, w.q_a_norm, t.q_a);
    for (int64_t i = 0; i < n; ++i) queries[i] = row_of(t.q_a, i);
    if (takes_rounded(w.q_b))
      low.rounded = round_rows({queries, static_cast<size_t>(n)}, shape_.q_lora).data();
    count(w.q_b);
  }
  // While the cached rows are few, small tasks even out the workers; of many, each worker should
  // pass over them once.
  const int64_t fair = ceil_div(heads, team_.size() * (positions <= kFewPositions ? 4 : 1));
  const int64_t group = std::min(fair, kAttendTile);
  const bool rounded = takes_rounded(w.kv_b);
  const int64_t rounded_floats = bf16_size(latent) / 2;
  const int64_t floats = std::max(
      {absorb_floats(latent), attend_floats(kAttendTile, false), rounded ? n * rounded_floats : 0});
  reserve_workers(floats);
  const Matrix kv_b = matrix_of(w.kv_b);
  const int64_t work =
      heads * (2 * n * latent * (shape_.nope + v) + n * positions * (2 * latent + shape_.rope));
  run_tasks(ceil_div(heads, group), work, [&](int64_t task, int worker) {
    float* memory = worker_floats(worker, floats);
    const int64_t first = task * group, last = std::min(first + group, heads);
    float* y[kMaxVerify];
    if (low_rank) {
      for (int64_t i = 0; i < n; ++i) y[i] = row_of(q, i);
      multiply_block(matrix_of(w.q_b), first * width, last * width, low, n, y, first * width, true,
                     worker);
    }
    for (int64_t h = first; h < last; ++h) {
      for (int64_t i = 0; i < n; ++i) rope_head(q, i, h);
      absorb(kv_b, q, t.q_latent, h, 0, latent, memory);
    }
    const Attention a{t.q_latent, q, state.latent, t.z, kAttendTile, false, first, last - first};
    const int64_t count = n * (last - first);
    for (int64_t u = 0; u < count; u += kAttendTile)
      attend_tile(a, u, std::min(kAttendTile, count - u), memory);
    for (int64_t h = first; h < last; ++h) {
      const float* x[kMaxVerify];
      uint16_t* x_rounded[kMaxVerify];
      for (int64_t i = 0; i < n; ++i) {
        x[i] = row_of(t.z, i) + h * latent;
        x_rounded[i] = reinterpret_cast<uint16_t*>(memory + i * rounded_floats);
        if (rounded) bf16_->round(x[i], latent, x_rounded[i]);
        y[i] = row_of(o, i) + h * v;
      }
      const int64_t row = h * (shape_.nope + v) + shape_.nope;
      multiply_block(kv_b, row, row + v, {x, rounded ? x_rounded : nullptr}, n, y, 0, true, worker);
      for (int64_t i = 0; i < n; ++i) gate_value(row_of(o, i), row_of(t.beta, i), h);
    }
  });
  count(w.kv_b);
  counters_.state_bytes += static_cast<uint64_t>(attended_bytes(n, state));
  matmul(o, w.dense, t.o);
}

}  // namespace spk::cpu
