// What gated latent attention does before it attends: rotation of the queries, appending to the
// cache, absorption of the up-projection into the queries. Each for itself, and for up to eight
// rows all in one launch.
#pragma once

#include "kernels/weights.cuh"

namespace spk::gpu {

// Grid: rows. Angles in double: at position 10^6 a float angle would be off by 0.06 radians; in
// half turns, so that the reduction of the argument is exact.
template <int = 0>
__global__ void rope_table(const RopeTableArgs a) {
  start_after_previous();
  const double position = static_cast<double>(a.step->first_position + blockIdx.x);
  for (int j = threadIdx.x; j < a.half; j += blockDim.x) {
    const double turns = position * a.turns[j];
    row_at(a.cosine, blockIdx.x)[j] = static_cast<float>(cospi(turns) * a.factor);
    row_at(a.sine, blockIdx.x)[j] = static_cast<float>(sinpi(turns) * a.factor);
  }
}

SPK_DEVICE void rotate(const float* x, float cosine, float sine, float* y) {
  const float even = x[0], odd = x[1];
  y[0] = fmaf(even, cosine, -(odd * sine));
  y[1] = fmaf(odd, cosine, even * sine);
}

// One row, by the block: the last columns of each head, interleaved pairs.
SPK_DEVICE void rotate_heads(const RopeArgs& a, int row) {
  for (int t = threadIdx.x; t < a.heads * a.half; t += kThreads) {
    const int h = t / a.half, j = t % a.half;
    float* x = row_at(a.q, row) + h * a.width + a.nope + 2 * j;
    rotate(x, row_of(a.cosine, row)[j], row_of(a.sine, row)[j], x);
  }
}
// Grid: rows.
template <int = 0>
__global__ void __launch_bounds__(kThreads) rope(const RopeArgs a) {
  start_after_previous();
  rotate_heads(a, blockIdx.x);
}

// By the block: kv = [latent | key] of one row: the normed latent and the rotated key, at the row's
// position.
SPK_DEVICE void append_row(const LatentAppendArgs& a, int row) {
  const float* kv = row_of(a.kv, row);
  float* to = row_at(a.latent, a.step->first_position + row);
  float sum = 0.f;
  for (int c = threadIdx.x; c < a.latent_dim; c += kThreads) sum = fmaf(kv[c], kv[c], sum);
  const float scale = 1.f / sqrtf(block_sum(sum) / static_cast<float>(a.latent_dim) + a.eps);
  for (int c = threadIdx.x; c < a.latent_dim; c += kThreads) to[c] = a.w[c] * (kv[c] * scale);
  for (int j = threadIdx.x; j < a.half; j += kThreads)
    rotate(kv + a.latent_dim + 2 * j, row_of(a.cosine, row)[j], row_of(a.sine, row)[j],
           to + a.latent_dim + 2 * j);
}
// Grid: rows.
template <int = 0>
__global__ void __launch_bounds__(kThreads) latent_append(const LatentAppendArgs a) {
  start_after_previous();
  append_row(a, blockIdx.x);
}

// q_latent[h][c] = sum over m of q[h][m] W[h * per_head + m][c]: a warp takes a part of the m for
// 128 columns, and the parts are summed in order.
template <int F>
struct Absorption {
  static constexpr int kPerLane = kAbsorbColumns / kWarp, kAtOnce = 8;

  const AbsorbArgs& a;
  int h, first_column;  // of the block
  int first, last;      // weight rows of the warp
  // Four columns of FP8 are one word, and rows are padded to whole ones. All of a turn's are asked
  // for before the first is used.
  unsigned word[kAtOnce];
  float scale[kAtOnce];

  SPK_DEVICE Absorption(const AbsorbArgs& args, int head, int column)
      : a(args), h(head), first_column(column) {
    const int share = (a.nope + kWarps - 1) / kWarps;
    first = static_cast<int>(threadIdx.x) / kWarp * share;
    last = min(first + share, a.nope);
  }
  SPK_DEVICE int column() const {
    return first_column + static_cast<int>(threadIdx.x) % kWarp * kPerLane;
  }
  SPK_DEVICE i64 weight_row(int m) const { return static_cast<i64>(h) * a.per_head + m; }
  // Of weight rows from m0 on: reads weights only.
  SPK_DEVICE void load(int m0) {
    if constexpr (F == kFp8) {
      const int at = min(column(), (a.latent - 1) / kPerLane * kPerLane);
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const i64 row = weight_row(min(m0 + k, last - 1));
        word[k] = *reinterpret_cast<const unsigned*>(a.w.codes + row * a.w.row_bytes + at);
        scale[k] = scale_of<F>(a.w, row, at) * decode_factor<F>();
      }
    }
  }
  // The first weights, and where there are more, their lines: before anything of this step is
  // there.
  SPK_DEVICE void begin() {
    load(first);
    const int behind = first + kAtOnce + static_cast<int>(threadIdx.x) % kWarp;
    if (behind < last)
      ask_for_line(a.w.codes + weight_row(behind) * a.w.row_bytes +
                   static_cast<i64>(a.w.row_bytes) * first_column / a.latent);
  }
  // Rows [row0, row0 + n), behind begin(). `parts`: [kWarps, kAbsorbColumns].
  SPK_DEVICE void run(int row0, int n, float* parts) {
    float sum[kMaxRowsInvariant][kPerLane] = {};
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, c0 = column();
    for (int m0 = first; m0 < last; m0 += kAtOnce) {
      if (m0 > first) load(m0);
      float w[kAtOnce][kPerLane];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if constexpr (F == kFp8) {
          decode<F>(word[k], w[k]);
#pragma unroll
          for (int j = 0; j < kPerLane; ++j) w[k][j] *= scale[k];
        } else {
#pragma unroll
          for (int j = 0; j < kPerLane; ++j)
            w[k][j] =
                weight_at<F>(a.w, weight_row(min(m0 + k, last - 1)), min(c0 + j, a.latent - 1));
        }
      }
#pragma unroll
      for (int i = 0; i < kMaxRowsInvariant; ++i) {
        if (i >= n) break;
        const float* from = row_of(a.q, row0 + i) + h * a.width;
        float q[kAtOnce];
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) q[k] = from[min(m0 + k, last - 1)];
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k)
#pragma unroll
          for (int j = 0; j < kPerLane; ++j) {  // no branch: it would part the loads of q
            const float more = fmaf(q[k], w[k][j], sum[i][j]);
            sum[i][j] = m0 + k < last ? more : sum[i][j];
          }
      }
    }
#pragma unroll
    for (int i = 0; i < kMaxRowsInvariant; ++i) {
      if (i >= n) break;
#pragma unroll
      for (int j = 0; j < kPerLane; ++j)
        parts[warp * kAbsorbColumns + lane * kPerLane + j] = sum[i][j];
      __syncthreads();
      for (int t = threadIdx.x; t < kAbsorbColumns; t += kThreads) {
        float total = parts[t];
#pragma unroll
        for (int w = 1; w < kWarps; ++w) total += parts[w * kAbsorbColumns + t];
        const int c = first_column + t;
        if (c < a.latent) row_at(a.q_latent, row0 + i)[h * a.latent + c] = total;
      }
      __syncthreads();
    }
  }
};

// Grid: (latent / kAbsorbColumns, heads, n / kMaxRowsInvariant).
template <int F>
__global__ void __launch_bounds__(kThreads) absorb(const __grid_constant__ AbsorbArgs a) {
  SPK_SHARED(float, parts, kWarps* kAbsorbColumns);
  let_next_start();
  Absorption<F> of(a, blockIdx.y, static_cast<int>(blockIdx.x) * kAbsorbColumns);
  of.begin();
  wait_for_previous();
  const int row0 = blockIdx.z * kMaxRowsInvariant;
  of.run(row0, min(a.n - row0, kMaxRowsInvariant), parts);
}

// Up to kMaxRowsInvariant rows: rope, latent_append and absorb. Grid: (latent / kAbsorbColumns,
// heads + 1); the blocks behind those of the heads append and rotate.
template <int F>
__global__ void SPK_MANY_REGISTERS latent_query(const __grid_constant__ LatentQueryArgs a) {
  SPK_SHARED(float, parts, kWarps* kAbsorbColumns);
  let_next_start();
  const int h = blockIdx.y, n = a.absorb.n;
  if (h == a.absorb.heads) {
    wait_for_previous();
    const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
    for (int row = 0; row < n; ++row) {  // other columns of the queries than those absorbed
      if (row % blocks == block) append_row(a.append, row);
      if ((row + 1) % blocks == block) rotate_heads(a.rope, row);
    }
    return;
  }
  Absorption<F> of(a.absorb, h, static_cast<int>(blockIdx.x) * kAbsorbColumns);
  of.begin();
  wait_for_previous();
  of.run(0, n, parts);
}

}  // namespace spk::gpu
