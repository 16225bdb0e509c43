// Products of a few rows with a stored matrix: a warp takes four weight rows and streams them once,
// sixteen bytes a lane and load, for up to eight rows of x.
//
// Row-invariant: the number of row i is the sum over a lane's columns in ascending order, then the
// butterfly over lanes. Neither the rows that share the pass, nor the instantiation, nor the grid
// changes it.
#pragma once

#include "kernels/weights.cuh"

namespace spk::gpu {

struct WeightRow {
  Matrix m;
  i64 row;
};

// Four numbers of x; numbers from `left` on count as zero and are not read.
SPK_DEVICE float4 load_x(const float* x, bool aligned, int left) {
  if (aligned && left >= 4) return *reinterpret_cast<const float4*>(x);
  float4 v;
  v.x = left > 0 ? x[0] : 0.f;
  v.y = left > 1 ? x[1] : 0.f;
  v.z = left > 2 ? x[2] : 0.f;
  v.w = left > 3 ? x[3] : 0.f;
  return v;
}

// The codes without their first `N` words.
template <int N>
SPK_DEVICE uint4 next_words(const uint4& codes) {
  if constexpr (N == 1) return {codes.y, codes.z, codes.w, 0};
  if constexpr (N == 2) return {codes.z, codes.w, 0, 0};
  return codes;
}

// sum[w][i] = row w of the weights times x[i], i < n; all lanes get it.
template <int F, int R>
SPK_DEVICE void dots(const WeightRow (&w)[kWeightRows], const float* const (&x)[R], int n,
                     bool aligned, float (&sum)[kWeightRows][R]) {
  constexpr int kNumbers = Codec<F>::kNumbers;
  constexpr int kStep = kNumbers == 32 ? 8 : 4;  // of one word, or two of BF16, or all four of F32
  const int lane = threadIdx.x % kWarp, cols = w[0].m.cols;
#pragma unroll
  for (int r = 0; r < kWeightRows; ++r)
#pragma unroll
    for (int i = 0; i < R; ++i) sum[r][i] = 0.f;
  for (int c = lane * kNumbers; c < cols; c += kWarp * kNumbers) {
    uint4 codes[kWeightRows];
    float scale[kWeightRows];
#pragma unroll
    for (int r = 0; r < kWeightRows; ++r) {
      const unsigned char* row = w[r].m.codes + w[r].row * w[r].m.row_bytes;
      codes[r] = reinterpret_cast<const uint4*>(row)[c / kNumbers];
      scale[r] = scale_of<F>(w[r].m, w[r].row, c);
    }
    // A loop, not unrolled: the code of four words would take ptxas four times as long and the
    // registers of one. The codes move down, so that the word in use is always the first.
#pragma unroll 1
    for (int e = 0; e < kNumbers; e += kStep) {
#pragma unroll
      for (int part = 0; part < kStep; part += 4) {
        float value[kWeightRows][4];
#pragma unroll
        for (int r = 0; r < kWeightRows; ++r)
#pragma unroll
          for (int j = 0; j < 4; ++j) value[r][j] = number<F>(codes[r], part + j, scale[r]);
#pragma unroll
        for (int i = 0; i < R; ++i) {
          if (i >= n) break;
          const float4 v = load_x(x[i] + c + e + part, aligned, cols - c - e - part);
#pragma unroll
          for (int r = 0; r < kWeightRows; ++r) {
            sum[r][i] = fmaf(value[r][0], v.x, sum[r][i]);
            sum[r][i] = fmaf(value[r][1], v.y, sum[r][i]);
            sum[r][i] = fmaf(value[r][2], v.z, sum[r][i]);
            sum[r][i] = fmaf(value[r][3], v.w, sum[r][i]);
          }
        }
      }
#pragma unroll
      for (int r = 0; r < kWeightRows; ++r) codes[r] = next_words<kStep * 4 / kNumbers>(codes[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < kWeightRows; ++r)
#pragma unroll
    for (int i = 0; i < R; ++i)
      if (i < n) sum[r][i] = warp_sum(sum[r][i]);
}

// Whether rows of x allow 16-byte loads.
SPK_DEVICE bool is_aligned(const float* x, i64 stride) {
  return (reinterpret_cast<unsigned long long>(x) % 16 == 0) && stride % 4 == 0;
}

// The codes of a warp's rows on their way to the L2 while the kernel before still runs: they depend
// on nothing.
SPK_DEVICE void prefetch_rows(const ProductArgs& a, int first) {
  constexpr int kLine = 128;
  const int lane = threadIdx.x % kWarp;
#pragma unroll 1
  for (int r = 0; r < kWeightRows; ++r) {
    const i64 row = a.first_row + blockIdx.y * a.w_batch + min(first + r, a.rows - 1);
    const unsigned char* codes = a.w.codes + row * a.w.row_bytes;
    for (int at = lane * kLine; at < a.w.row_bytes; at += kWarp * kLine) prefetch(codes + at);
  }
}

// Grid: (weight rows / (kWarps * kWeightRows), batch, n / kMaxRowsInvariant). R: 1, 2, 4 or 8, at
// least the rows of a block.
template <int F, int R>
__global__ void SPK_MANY_REGISTERS matvec(const ProductArgs a) {
  let_next_start();
  const int lane = threadIdx.x % kWarp;
  const int first = (blockIdx.x * kWarps + threadIdx.x / kWarp) * kWeightRows;
  if (first < a.rows) prefetch_rows(a, first);
  wait_for_previous();
  if (first >= a.rows) return;  // a whole warp
  const int row0 = blockIdx.z * kMaxRowsInvariant, n = min(a.n - row0, R);
  WeightRow w[kWeightRows];
#pragma unroll
  for (int r = 0; r < kWeightRows; ++r)  // rows past the end: the last one again, not stored
    w[r] = {a.w, a.first_row + blockIdx.y * a.w_batch + min(first + r, a.rows - 1)};
  const float* x[R];
#pragma unroll
  for (int i = 0; i < R; ++i) x[i] = row_of(a.x, row0 + min(i, n - 1)) + blockIdx.y * a.x_batch;
  float sum[kWeightRows][R];
  dots<F, R>(w, x, n, is_aligned(x[0], a.x.stride), sum);
  if (lane != 0) return;
#pragma unroll
  for (int i = 0; i < R; ++i) {
    if (i >= n) break;
    float* y = row_at(a.y, row0 + i) + blockIdx.y * a.y_batch + first;
#pragma unroll
    for (int r = 0; r < kWeightRows; ++r)
      if (first + r < a.rows) y[r] = sum[r][i];
  }
}

}  // namespace spk::gpu
