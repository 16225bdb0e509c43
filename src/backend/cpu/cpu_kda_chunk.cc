// The delta rule over a chunk of up to 64 rows (docs/MODEL.md, the chunked form), for one head and
// some value columns:
//
//   A_ij = beta_i sum_d k_i k_j exp(G_i - G_j), j < i      P_ij = sum_d q_i k_j exp(G_i - G_j), j
//   <= i (I + A) X = beta (V - (K exp(G)) S)                    O = (Q exp(G)) S + P X S' =
//   exp(G_C) S + (K exp(G_C - G))^T X
//
// with G the running sum of the log decays from the start of the chunk. exp(-G_j) alone would leave
// float after 18 rows at the lower bound of -5, so no factor ever spans more than half a sub-block
// of 16 upwards: inside a sub-block both factors refer to its middle row (exponents within +-40),
// and keys of earlier sub-blocks are carried to the current block's start by factors <= 1. Sums of
// g are taken inside a sub-block only, where they stay small and exact enough
// (|G| <= 80, one ulp 4e-6); over 64 rows an ulp would be 3e-5, and that would be the error of
// every product.
#include "backend/cpu/cpu.h"
#include "backend/cpu/kda.h"
#include "base/error.h"

#include <algorithm>
#include <cmath>

namespace spk::cpu {
namespace {

// Scratch of one chunk, all rows of D floats unless said otherwise.
struct Work {
  float *q, *k;         // [C] normalised
  float* from_start_q;  // [C] q_i exp(G_i)
  float* from_start_k;  // [C] k_i exp(G_i)
  float* to_now;        // [C] k_j exp(G_now - G_j), "now" moving on with the sub-blocks
  float* sums;          // [16] running sums of g inside the sub-block
  float *left_q,
      *left_k;   // [16] q_i, k_i times exp of the sum up to i, from the block's start or middle
  float* right;  // [16] k_j times exp of minus that, from the middle
  float *decay, *block_decay, *zeros;  // [1] exp(G_now), exp of the block's sum, zeros
  float *a, *p;                        // [C, C]
  float* x;                            // [C]

  Work(float* at, int64_t d) {
    const auto take = [&](int64_t floats) {
      float* here = at;
      at += floats;
      return here;
    };
    q = take(kChunk * d);
    k = take(kChunk * d);
    from_start_q = take(kChunk * d);
    from_start_k = take(kChunk * d);
    to_now = take(kChunk * d);
    x = take(kChunk * d);
    sums = take(kSubBlock * d);
    left_q = take(kSubBlock * d);
    left_k = take(kSubBlock * d);
    right = take(kSubBlock * d);
    decay = take(d);
    block_decay = take(d);
    zeros = take(d);
    a = take(kChunk * kChunk);
    p = take(kChunk * kChunk);
  }
};

}  // namespace

int64_t CpuBackend::kda_chunk_floats(int64_t d) {
  return (6 * kChunk + 4 * kSubBlock + 3) * d + 2 * kChunk * kChunk;
}

void CpuBackend::kda_chunk(const KdaRows& h, int64_t row, int64_t rows, int64_t first, int64_t last,
                           float* work) {
  const int64_t d = shape_.head_dim, at = h.head * d, columns = last - first;
  const Work w(work, d);
  const float q_scale = 1.f / std::sqrt(static_cast<float>(d));
  std::fill_n(w.zeros, d, 0.f);
  std::fill_n(w.decay, d, 1.f);
  const float* left[2 * kSubBlock];
  float* sums_to[2 * kSubBlock];

  for (int64_t b = 0; b < rows; b += kSubBlock) {
    const int64_t n = std::min(kSubBlock, rows - b);
    float* sums = w.sums;
    for (int64_t i = 0; i < n; ++i) {
      const float* g = row_of(h.g, row + b + i) + at;
      std::copy_n(g, d, sums + i * d);
      if (i > 0) kernels_.add(sums + i * d, sums + (i - 1) * d, d);
      kernels_.unit(row_of(h.q, row + b + i) + at, q_scale, d, w.q + (b + i) * d);
      kernels_.unit(row_of(h.k, row + b + i) + at, 1.f, d, w.k + (b + i) * d);
      left[i] = w.left_q + i * d;
      left[n + i] = w.left_k + i * d;
      sums_to[i] = w.p + (b + i) * kChunk;
      sums_to[n + i] = w.a + (b + i) * kChunk;
    }
    // Against earlier sub-blocks, and against the state: factors from the block's start.
    for (int64_t i = 0; i < n; ++i) {
      kernels_.decay(sums + i * d, w.zeros, w.q + (b + i) * d, w.left_q + i * d, d);
      kernels_.decay(sums + i * d, w.zeros, w.k + (b + i) * d, w.left_k + i * d, d);
      std::copy_n(w.left_q + i * d, d, w.from_start_q + (b + i) * d);
      std::copy_n(w.left_k + i * d, d, w.from_start_k + (b + i) * d);
      kernels_.multiply(w.decay, w.from_start_q + (b + i) * d, d);
      kernels_.multiply(w.decay, w.from_start_k + (b + i) * d, d);
    }
    if (b > 0) kernels_.dots(w.to_now, d, b, d, left, 2 * n, sums_to, 0);
    // Inside: factors from the middle row.
    const float* middle = sums + n / 2 * d;
    for (int64_t i = 0; i < n; ++i) {
      kernels_.decay(sums + i * d, middle, w.q + (b + i) * d, w.left_q + i * d, d);
      kernels_.decay(sums + i * d, middle, w.k + (b + i) * d, w.left_k + i * d, d);
      kernels_.decay(middle, sums + i * d, w.k + (b + i) * d, w.right + i * d, d);
    }
    kernels_.dots(w.right, d, n, d, left, 2 * n, sums_to, b);
    for (int64_t i = 0; i < n; ++i) {
      float* p = sums_to[i];
      float* a = sums_to[n + i];
      const float beta = row_of(h.beta, row + b + i)[h.head];
      kernels_.scale(beta, a, a, b + i);
      std::fill_n(a + b + i, n - i, 0.f);
      std::fill_n(p + b + i + 1, n - i - 1, 0.f);
    }
    // Carry keys and decay to the block's end.
    const float* total = sums + (n - 1) * d;
    kernels_.exp_of(total, w.block_decay, d);
    for (int64_t j = 0; j < b; ++j) kernels_.multiply(w.block_decay, w.to_now + j * d, d);
    for (int64_t i = 0; i < n; ++i)
      kernels_.decay(total, sums + i * d, w.k + (b + i) * d, w.to_now + (b + i) * d, d);
    kernels_.multiply(w.block_decay, w.decay, d);
  }

  // X, by forward substitution: earlier sub-blocks as one product, then row by row.
  float* x = w.x;
  for (int64_t i = 0; i < rows; ++i)
    std::copy_n(row_of(h.v, row + i) + at + first, columns, x + i * columns);
  kernels_.gemm({rows, columns, d, w.from_start_k, d, 1, h.state + first, h.state_stride, x,
                 columns, Accumulate::kSubtract});
  for (int64_t i = 0; i < rows; ++i) {
    float* xi = x + i * columns;
    kernels_.scale(row_of(h.beta, row + i)[h.head], xi, xi, columns);
  }
  for (int64_t b = 0; b < rows; b += kSubBlock) {
    const int64_t n = std::min(kSubBlock, rows - b);
    if (b > 0)
      kernels_.gemm({n, columns, b, w.a + b * kChunk, kChunk, 1, x, columns, x + b * columns,
                     columns, Accumulate::kSubtract});
    for (int64_t i = b + 1; i < b + n; ++i)
      kernels_.gemm({1, columns, i - b, w.a + i * kChunk + b, kChunk, 1, x + b * columns, columns,
                     x + i * columns, columns, Accumulate::kSubtract});
  }

  float* o = row_of(h.o, row) + at + first;
  kernels_.gemm({rows, columns, d, w.from_start_q, d, 1, h.state + first, h.state_stride, o,
                 h.o.stride, Accumulate::kSet});
  for (int64_t b = 0; b < rows; b += kSubBlock) {
    const int64_t n = std::min(kSubBlock, rows - b);
    kernels_.gemm({n, columns, b + n, w.p + b * kChunk, kChunk, 1, x, columns, o + b * h.o.stride,
                   h.o.stride, Accumulate::kAdd});
  }
  for (int64_t c = 0; c < d; ++c) {
    float* s = h.state + c * h.state_stride + first;
    kernels_.scale(w.decay[c], s, s, columns);
  }
  kernels_.gemm({d, columns, rows, w.to_now, 1, d, x, columns, h.state + first, h.state_stride,
                 Accumulate::kAdd});
}

}  // namespace spk::cpu
