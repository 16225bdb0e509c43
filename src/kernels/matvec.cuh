// Products of a few rows with stored matrices: a warp takes two or four weight rows and streams
// them once, sixteen bytes a lane and load and eight loads in flight, for up to eight rows of x.
//
// Row-invariant: the number of row i is, per lane, the sum over its chunks of 16 bytes in ascending
// order, each the sum of its products in ascending order times its scale; then the butterfly over
// lanes. Neither the rows that share the pass, nor the instantiation, nor the grid changes it.
#pragma once

#include "kernels/weights.cuh"

namespace spk::gpu {

struct WeightRow {
  Matrix m;
  i64 row;
};

// N numbers of x; numbers from `left` on count as zero and are not read.
template <int N>
SPK_DEVICE void load_x(const float* x, bool aligned, int left, float (&v)[N]) {
  if constexpr (N % 4 == 0) {
    if (aligned && left >= N) {
#pragma unroll
      for (int q = 0; q < N / 4; ++q) {
        const float4 four = reinterpret_cast<const float4*>(x)[q];
        v[4 * q] = four.x, v[4 * q + 1] = four.y, v[4 * q + 2] = four.z, v[4 * q + 3] = four.w;
      }
      return;
    }
  }
#pragma unroll
  for (int j = 0; j < N; ++j) v[j] = j < left ? x[j] : 0.f;
}

// Sixteen bytes of codes of each of W rows, times x: added to the sums.
template <int F, int R, int W>
SPK_DEVICE void add_chunk(const uint4 (&codes)[W], const float (&scale)[W],
                          const float* const (&x)[R], int n, bool aligned, int c, int cols,
                          float (&sum)[W][R]) {
  constexpr int kPerWord = Codec<F>::kNumbers / 4;
  float part[W][R];
#pragma unroll
  for (int r = 0; r < W; ++r)
#pragma unroll
    for (int i = 0; i < R; ++i) part[r][i] = kIsScaled<F> ? 0.f : sum[r][i];
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    float value[W][kPerWord];
#pragma unroll
    for (int r = 0; r < W; ++r) decode<F>(word_of(codes[r], word), value[r]);
    const int at = c + word * kPerWord;
#pragma unroll
    for (int i = 0; i < R; ++i) {
      if (i >= n) break;
      float v[kPerWord];
      load_x(x[i] + at, aligned, cols - at, v);
#pragma unroll
      for (int r = 0; r < W; ++r)
#pragma unroll
        for (int j = 0; j < kPerWord; ++j) part[r][i] = fmaf(value[r][j], v[j], part[r][i]);
    }
  }
#pragma unroll
  for (int r = 0; r < W; ++r)
#pragma unroll
    for (int i = 0; i < R; ++i)
      if (i < n) sum[r][i] = kIsScaled<F> ? fmaf(part[r][i], scale[r], sum[r][i]) : part[r][i];
}

// sum[w][i] = row w of the weights times x[i], i < n; all lanes get it.
template <int F, int R, int W>
SPK_DEVICE void dots(const WeightRow (&w)[W], const float* const (&x)[R], int n, bool aligned,
                     float (&sum)[W][R]) {
  constexpr int kNumbers = Codec<F>::kNumbers;
  constexpr int kFlight = 8 / W;  // chunks of a row that are asked for before the first is used
  constexpr int kStep = kWarp * kNumbers;
  const int lane = threadIdx.x % kWarp, cols = w[0].m.cols;
#pragma unroll
  for (int r = 0; r < W; ++r)
#pragma unroll
    for (int i = 0; i < R; ++i) sum[r][i] = 0.f;
  for (int c0 = lane * kNumbers; c0 < cols; c0 += kFlight * kStep) {
    uint4 codes[kFlight][W];
    float scale[kFlight][W];
#pragma unroll
    for (int f = 0; f < kFlight; ++f) {
      const int c = c0 + f * kStep;
      if (c >= cols) break;
#pragma unroll
      for (int r = 0; r < W; ++r) {
        const unsigned char* row = w[r].m.codes + w[r].row * w[r].m.row_bytes;
        codes[f][r] = reinterpret_cast<const uint4*>(row)[c / kNumbers];
        scale[f][r] = scale_of<F>(w[r].m, w[r].row, c) * decode_factor<F>();
      }
    }
#pragma unroll
    for (int f = 0; f < kFlight; ++f) {
      const int c = c0 + f * kStep;
      if (c >= cols) break;
      add_chunk<F, R, W>(codes[f], scale[f], x, n, aligned, c, cols, sum);
    }
  }
#pragma unroll
  for (int r = 0; r < W; ++r)
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
template <int W>
SPK_DEVICE void prefetch_rows(const WeightRow (&w)[W]) {
  constexpr int kLine = 128;
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int r = 0; r < W; ++r) {
    const unsigned char* codes = w[r].m.codes + w[r].row * w[r].m.row_bytes;
    for (i64 at = lane * kLine; at < w[r].m.row_bytes; at += kWarp * kLine) prefetch(codes + at);
  }
}

// Grid: (blocks of all products, batch, n / kMaxRowsInvariant); a block takes kStreamWarps *
// weight_rows(R) weight rows of one product. R: 1, 2, 4 or 8, at least the rows of a block.
template <int F, int R>
__global__ void __launch_bounds__(kStreamThreads, 1) matvec(const ProductsArgs a) {
  constexpr int W = weight_rows(R);
  let_next_start();
  // Constant indices only: another would copy the arguments to local memory.
  Product p = a.p[0];
#pragma unroll
  for (int k = 1; k < kMaxProducts; ++k)
    if (k < a.count && static_cast<int>(blockIdx.x) >= a.p[k].first_block) p = a.p[k];
  const int lane = threadIdx.x % kWarp;
  const int first =
      ((static_cast<int>(blockIdx.x) - p.first_block) * kStreamWarps + threadIdx.x / kWarp) * W;
  WeightRow w[W];
#pragma unroll
  for (int r = 0; r < W; ++r)  // rows past the end: the last one again, not stored
    w[r] = {p.w, p.first_row + blockIdx.y * a.w_batch + min(first + r, p.rows - 1)};
  if (first < p.rows) prefetch_rows(w);
  wait_for_previous();
  if (first >= p.rows) return;  // a whole warp
  const int row0 = blockIdx.z * kMaxRowsInvariant, n = min(a.n - row0, R);
  const float* x[R];
#pragma unroll
  for (int i = 0; i < R; ++i) x[i] = row_of(a.x, row0 + min(i, n - 1)) + blockIdx.y * a.x_batch;
  float sum[W][R];
  dots<F, R, W>(w, x, n, is_aligned(x[0], a.x.stride), sum);
  if (lane != 0) return;
#pragma unroll
  for (int i = 0; i < R; ++i) {
    if (i >= n) break;
    float* y = row_at(p.y, row0 + i) + blockIdx.y * a.y_batch + first;
#pragma unroll
    for (int r = 0; r < W; ++r)
      if (first + r < p.rows) y[r] = sum[r][i];
  }
}

}  // namespace spk::gpu
