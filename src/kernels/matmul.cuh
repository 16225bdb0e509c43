// Products of many rows (prompts) with a stored matrix, in float: tiles of 64 weight rows and 64
// rows of x, decoded into shared memory 32 columns at a time.
//
// One accumulator per number, columns in ascending order: a row's bits do not depend on the other
// rows here either (they differ from matvec's, which sums by lanes).
#pragma once

#include "kernels/weights.cuh"

namespace spk::gpu {

// Eight numbers of one row from column `col`, a multiple of 8.
template <int F>
SPK_DEVICE void eight_numbers(const Matrix& m, i64 row, int col, float (&out)[8]) {
  const unsigned char* codes = m.codes + row * m.row_bytes;
  const float scale = scale_of<F>(m, row, col);
  if constexpr (F == kF32) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 v = reinterpret_cast<const uint4*>(codes)[col / 4 + half];
#pragma unroll
      for (int e = 0; e < 4; ++e) out[4 * half + e] = number<F>(v, e, scale);
    }
  } else {
    uint4 v = {0, 0, 0, 0};
    if constexpr (F == kBf16) {
      v = reinterpret_cast<const uint4*>(codes)[col / 8];
    } else if constexpr (F == kFp8 || F == kFp8Row) {
      const uint2 two = reinterpret_cast<const uint2*>(codes)[col / 8];
      v.x = two.x;
      v.y = two.y;
    } else {
      v.x = reinterpret_cast<const unsigned*>(codes)[col / 8];
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) out[e] = number<F>(v, e, scale);
  }
}

// Grid: (weight rows / kTileRows, rows of x / kTileCols). Threads: 16 x 16, each 4 x 4 numbers.
template <int F>
__global__ void __launch_bounds__(kThreads) matmul(const ProductArgs a) {
  start_after_previous();
  constexpr int kPad = 4;  // keeps rows 16-byte aligned and spreads the banks
  SPK_SHARED(float, w_tile, kTileDepth*(kTileRows + kPad));
  SPK_SHARED(float, x_tile, kTileDepth*(kTileCols + kPad));
  const int t = threadIdx.x;
  const int row0 = blockIdx.x * kTileRows, col0 = blockIdx.y * kTileCols;
  // Loading: four threads a row, eight columns each.
  const int load_row = t / 4, load_col = t % 4 * 8;
  const bool w_inside = row0 + load_row < a.rows, x_inside = col0 + load_row < a.n;
  const float* x = row_of(a.x, x_inside ? col0 + load_row : 0);
  const int my_rows = t % 16 * 4, my_cols = t / 16 * 4;
  float sum[4][4] = {};
  for (int k0 = 0; k0 < a.w.cols; k0 += kTileDepth) {
    float value[8] = {};
    const int col = k0 + load_col;
    if (w_inside && col < a.w.cols)
      eight_numbers<F>(a.w, a.first_row + row0 + load_row, col, value);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      w_tile[(load_col + e) * (kTileRows + kPad) + load_row] = value[e];
      x_tile[(load_col + e) * (kTileCols + kPad) + load_row] =
          x_inside && col + e < a.w.cols ? x[col + e] : 0.f;
    }
    __syncthreads();
#pragma unroll 8
    for (int k = 0; k < kTileDepth; ++k) {
      const float4 w4 = *reinterpret_cast<const float4*>(w_tile + k * (kTileRows + kPad) + my_rows);
      const float4 x4 = *reinterpret_cast<const float4*>(x_tile + k * (kTileCols + kPad) + my_cols);
      const float wv[4] = {w4.x, w4.y, w4.z, w4.w}, xv[4] = {x4.x, x4.y, x4.z, x4.w};
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int r = 0; r < 4; ++r) sum[i][r] = fmaf(wv[r], xv[i], sum[i][r]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (col0 + my_cols + i >= a.n) break;
    float* y = row_at(a.y, col0 + my_cols + i) + row0 + my_rows;
#pragma unroll
    for (int r = 0; r < 4; ++r)
      if (row0 + my_rows + r < a.rows) y[r] = sum[i][r];
  }
}

}  // namespace spk::gpu
