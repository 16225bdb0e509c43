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
  float *q, *k;              // [16] normalised
  float *chunk_q, *chunk_k;  // [C] q_i exp(G_i), k_i exp(G_i)
  float* to_now;             // [C] k_j exp(G_now - G_j), "now" moving on with the sub-blocks
  float* x;                  // [C]
  // [16] of the sub-block: q_i, k_i times exp of the sum from its start or its middle up to i, and
  // k_j times exp of minus the latter.
  float *start_q, *start_k, *middle_q, *middle_k, *right;
  float *decay, *block_decay;  // [1] exp(G_now), exp of the block's sum
  float *a, *p;                // [C, C]

  Work(float* at, int64_t d) {
    const auto take = [&](int64_t floats) {
      float* here = at;
      at += floats;
      return here;
    };
    for (float** rows : {&chunk_q, &chunk_k, &to_now, &x}) *rows = take(kChunk * d);
    for (float** rows : {&q, &k, &start_q, &start_k, &middle_q, &middle_k, &right})
      *rows = take(kSubBlock * d);
    decay = take(d);
    block_decay = take(d);
    a = take(kChunk * kChunk);
    p = take(kChunk * kChunk);
  }
};

}  // namespace

int64_t CpuBackend::kda_chunk_floats(int64_t d) {
  return (4 * kChunk + 7 * kSubBlock + 2) * d + 2 * kChunk * kChunk;
}

void CpuBackend::kda_chunk(const KdaRows& h, int64_t row, int64_t rows, int64_t first, int64_t last,
                           float* work) {
  const int64_t d = shape_.head_dim, at = h.head * d, columns = last - first;
  const Work w(work, d);
  const float q_scale = 1.f / std::sqrt(static_cast<float>(d));
  std::fill_n(w.decay, d, 1.f);
  const float *from_start[2 * kSubBlock], *from_middle[2 * kSubBlock];
  float* sums_to[2 * kSubBlock];

  for (int64_t b = 0; b < rows; b += kSubBlock) {
    const int64_t n = std::min(kSubBlock, rows - b);
    for (int64_t i = 0; i < n; ++i) {
      kernels_.unit(row_of(h.q, row + b + i) + at, q_scale, d, w.q + i * d);
      kernels_.unit(row_of(h.k, row + b + i) + at, 1.f, d, w.k + i * d);
      from_start[i] = w.start_q + i * d;
      from_start[n + i] = w.start_k + i * d;
      from_middle[i] = w.middle_q + i * d;
      from_middle[n + i] = w.middle_k + i * d;
      sums_to[i] = w.p + (b + i) * kChunk;
      sums_to[n + i] = w.a + (b + i) * kChunk;
    }
    kernels_.kda_decay({n, d, row_of(h.g, row + b) + at, h.g.stride, w.q, w.k, w.start_q, w.start_k,
                        w.chunk_q + b * d, w.chunk_k + b * d, w.middle_q, w.middle_k, w.right,
                        w.to_now + b * d, w.decay, w.block_decay});
    // Against earlier sub-blocks, and against the state: factors from the block's start. Inside:
    // from the middle row.
    if (b > 0) kernels_.dots(w.to_now, d, b, d, from_start, 2 * n, sums_to, 0);
    kernels_.dots(w.right, d, n, d, from_middle, 2 * n, sums_to, b);
    for (int64_t i = 0; i < n; ++i) {
      float* p = sums_to[i];
      float* a = sums_to[n + i];
      const float beta = row_of(h.beta, row + b + i)[h.head];
      kernels_.scale(beta, a, a, b + i);
      std::fill_n(a + b + i, n - i, 0.f);
      std::fill_n(p + b + i + 1, n - i - 1, 0.f);
    }
    // Carry earlier keys to the block's end.
    for (int64_t j = 0; j < b; ++j) kernels_.multiply(w.block_decay, w.to_now + j * d, d);
  }

  // X, by forward substitution: earlier sub-blocks as one product, then row by row.
  float* x = w.x;
  for (int64_t i = 0; i < rows; ++i)
    std::copy_n(row_of(h.v, row + i) + at + first, columns, x + i * columns);
  kernels_.gemm({rows, columns, d, w.chunk_k, d, 1, h.state + first, h.state_stride, x, columns,
                 Accumulate::kSubtract});
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
  kernels_.gemm({rows, columns, d, w.chunk_q, d, 1, h.state + first, h.state_stride, o, h.o.stride,
                 Accumulate::kSet});
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
