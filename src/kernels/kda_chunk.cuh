// The delta rule over chunks of up to 64 rows that end on a grid of absolute positions, for
// prompts:
//
//   A_ij = beta_i sum_d k_i k_j exp(G_i - G_j), j < i      P_ij = sum_d q_i k_j exp(G_i - G_j), j
//   <= i (I + A) X = beta (V - (K exp(G)) S)    O = (Q exp(G)) S + P X    S' = exp(G_C) S + (K
//   exp(G_C - G))^T X
//
// with G the running sum of the log decays from the start of the chunk. exp(-G_j) alone leaves
// float after 18 rows at the lower bound of -5, so nothing is factored: each pair's decay is the
// exponential of its own sum g_{j+1} + ... + g_i, which is never positive and exact where it
// matters. That costs an exponential per pair and channel: 64 * 64 / 2 * 128 a head and chunk, 131
// thousand a token and layer of flash, about 1 us a token on an H200.
//
// Two kernels: what does not need the state, for all chunks at once; then the chunks in order.
#pragma once

#include "kernels/kda.cuh"

namespace spk::gpu {

// Rows of chunk `index` of a launch: chunks end at multiples of kKdaChunk.
SPK_DEVICE void chunk_rows(i64 first_position, int n, int index, int& first, int& count) {
  const int offset = static_cast<int>(first_position % kKdaChunk);
  first = index == 0 ? 0 : index * kKdaChunk - offset;
  const int end = (index + 1) * kKdaChunk - offset;
  count = (end < n ? end : n) - first;
}

// Grid: (heads, chunks).
template <int D>
__global__ void SPK_MANY_REGISTERS kda_prepare(const KdaChunkArgs a) {
  start_after_previous();
  const int h = blockIdx.x, lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  int first, count;
  chunk_rows(a.first_position, a.n, blockIdx.y, first, count);
  const auto at = [&](int row) { return (static_cast<i64>(first + row) * a.heads + h); };
  for (int i = warp; i < count; i += kWarps) {
    unit_vector<D>(row_of(a.q, first + i) + h * D, 1.f / sqrtf(static_cast<float>(D)),
                   a.unit_q + at(i) * D);
    unit_vector<D>(row_of(a.k, first + i) + h * D, 1.f, a.unit_k + at(i) * D);
  }
  __syncthreads();
  for (int d = threadIdx.x; d < D; d += kThreads) {
    float sum = 0.f;
    for (int i = 0; i < count; ++i) {
      sum += row_of(a.g, first + i)[h * D + d];
      const float decay = expf(sum);
      a.q_start[at(i) * D + d] = a.unit_q[at(i) * D + d] * decay;
      a.k_start[at(i) * D + d] = a.unit_k[at(i) * D + d] * decay;
    }
    a.decay[(static_cast<i64>(blockIdx.y) * a.heads + h) * D + d] = expf(sum);
    sum = 0.f;
    for (int i = count - 1; i >= 0; --i) {
      a.k_end[at(i) * D + d] = a.unit_k[at(i) * D + d] * expf(sum);
      sum += row_of(a.g, first + i)[h * D + d];
    }
  }
  // Column j of A and P by one warp: the sum of g grows with i.
  constexpr int kLaneKeys = D / kWarp;
  for (int j = warp; j < count; j += kWarps) {
    float key[kLaneKeys], sum[kLaneKeys];
#pragma unroll
    for (int m = 0; m < kLaneKeys; ++m) {
      key[m] = a.unit_k[at(j) * D + m * kWarp + lane];
      sum[m] = 0.f;
    }
    for (int i = j; i < count; ++i) {
      float dot_k = 0.f, dot_q = 0.f;
#pragma unroll
      for (int m = 0; m < kLaneKeys; ++m) {
        const int d = m * kWarp + lane;
        if (i > j) sum[m] += row_of(a.g, first + i)[h * D + d];
        const float reached = key[m] * expf(sum[m]);
        dot_k = fmaf(a.unit_k[at(i) * D + d], reached, dot_k);
        dot_q = fmaf(a.unit_q[at(i) * D + d], reached, dot_q);
      }
      dot_k = warp_sum(dot_k);
      dot_q = warp_sum(dot_q);
      if (lane == 0) {
        a.a[at(i) * kKdaChunk + j] = row_of(a.beta, first + i)[h] * dot_k;
        a.p[at(i) * kKdaChunk + j] = dot_q;
      }
    }
  }
}

// Grid: (heads, D / kKdaColumns). Lane = value column; rows and keys are shared out over warps.
template <int D>
__global__ void __launch_bounds__(kThreads) kda_scan(const KdaChunkArgs a) {
  start_after_previous();
  SPK_SHARED(float, state, D* kKdaColumns);
  SPK_SHARED(float, x, kKdaChunk* kKdaColumns);
  const int h = blockIdx.x, lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int column = blockIdx.y * kKdaColumns + lane;
  const i64 head = static_cast<i64>(h) * D;
  for (int d = warp; d < D; d += kWarps)
    state[d * kKdaColumns + lane] = row_of(a.state, head + d)[column];
  __syncthreads();
  const int offset = static_cast<int>(a.first_position % kKdaChunk);
  const int chunks = (offset + a.n + kKdaChunk - 1) / kKdaChunk;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    int first, count;
    chunk_rows(a.first_position, a.n, chunk, first, count);
    const auto at = [&](int row) { return (static_cast<i64>(first + row) * a.heads + h); };
    for (int i = warp; i < count; i += kWarps) {
      const float* k = a.k_start + at(i) * D;
      float seen = 0.f;
      for (int d = 0; d < D; ++d) seen = fmaf(k[d], state[d * kKdaColumns + lane], seen);
      x[i * kKdaColumns + lane] =
          row_of(a.beta, first + i)[h] * (row_of(a.v, first + i)[head + column] - seen);
    }
    // Forward substitution: once row j is final, it leaves all later rows. Row i is warp i % 8's.
    for (int j = 0; j + 1 < count; ++j) {
      __syncthreads();
      const float xj = x[j * kKdaColumns + lane];
      for (int i = j + 1 + (warp + kWarps - (j + 1) % kWarps) % kWarps; i < count; i += kWarps) {
        float* xi = x + i * kKdaColumns + lane;
        *xi = fmaf(-a.a[at(i) * kKdaChunk + j], xj, *xi);
      }
    }
    __syncthreads();
    for (int i = warp; i < count; i += kWarps) {
      const float* q = a.q_start + at(i) * D;
      const float* p = a.p + at(i) * kKdaChunk;
      float out = 0.f;
      for (int d = 0; d < D; ++d) out = fmaf(q[d], state[d * kKdaColumns + lane], out);
      for (int j = 0; j <= i; ++j) out = fmaf(p[j], x[j * kKdaColumns + lane], out);
      row_at(a.o, first + i)[head + column] = out;
    }
    __syncthreads();
    const float* decay = a.decay + (static_cast<i64>(chunk) * a.heads + h) * D;
    for (int d = warp; d < D; d += kWarps) {
      float s = decay[d] * state[d * kKdaColumns + lane];
      for (int j = 0; j < count; ++j)
        s = fmaf(a.k_end[at(j) * D + d], x[j * kKdaColumns + lane], s);
      state[d * kKdaColumns + lane] = s;
    }
    __syncthreads();
  }
  for (int d = warp; d < D; d += kWarps)
    row_at(a.state, head + d)[column] = state[d * kKdaColumns + lane];
}

}  // namespace spk::gpu
