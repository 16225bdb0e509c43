// FP8 matrices in tiles of 16 rows, times a few rows (bf16.h).
#pragma once

#include "backend/cpu/bf16_lanes.h"

#if defined(__AVX512BF16__) && defined(__AVX512VBMI__)

namespace spk::cpu::bf16_avx512bf16 {

// Tiles that are multiplied together with N rows of x: 4 N sums, 2 N totals and seven registers for
// decoding fit 32, and make chains of products enough to keep the processor busy. (Four with one
// row of x are a tenth quicker in a cache and slower from memory, which is then read in four
// places.)
inline constexpr int kTogether = 2;

// Memory is asked for the tiles that come next, in step with these; of wide ones for a part of
// that.
inline constexpr int64_t kMostAheadBytes = 16384;

// T tiles one behind the other times N rows of x.
template <bool kByRow, int T, int N>
inline void tiles_of(const Matrix& w, int64_t row, const uint16_t* const* x, float* const* y,
                     int64_t at, const Decoder& decode) {
  const int64_t cols = w.cols, blocks = cols / kFp8Block, tile = kLanes * cols;
  const uint8_t* codes = w.tiles + row / kLanes * tile;
  const int64_t ahead = T * tile < kMostAheadBytes ? T * tile : kMostAheadBytes;
  const auto scale_of = [&](int64_t t, int64_t block) {
    const int64_t first = row + t * kLanes;
    if (kByRow) return _mm512_loadu_ps(w.scales + first * 4);
    return _mm512_set1_ps(load_float(w.scales + (first / kFp8Block * blocks + block) * 4));
  };
  const uint16_t* in[N];
  for (int n = 0; n < N; ++n) in[n] = x[n];
  __m512 total[T][N];
  for (int t = 0; t < T; ++t)
    for (int n = 0; n < N; ++n) total[t][n] = _mm512_setzero_ps();
  for (int64_t block = 0; block < blocks; ++block) {
    __m512 even[T][N], odd[T][N];
    for (int t = 0; t < T; ++t)
      for (int n = 0; n < N; ++n) even[t][n] = odd[t][n] = _mm512_setzero_ps();
    for (int64_t k = block * kFp8Block; k < (block + 1) * kFp8Block; k += 4) {
      __m512bh a[T], b[T];
      for (int t = 0; t < T; ++t) {
        const uint8_t* p = codes + t * tile + k * kLanes;
        __builtin_prefetch(p + ahead);
        __m512i raw = _mm512_loadu_si512(p);
        asm("" : "+v"(raw));  // else it is loaded again for each of its three uses
        decode(raw, a[t], b[t]);
      }
      for (int n = 0; n < N; ++n) {
        const __m512bh xa = pair_of(in[n] + k), xb = pair_of(in[n] + k + 2);
        for (int t = 0; t < T; ++t) {
          even[t][n] = _mm512_dpbf16_ps(even[t][n], a[t], xa);
          odd[t][n] = _mm512_dpbf16_ps(odd[t][n], b[t], xb);
        }
      }
    }
    for (int t = 0; t < T; ++t)
      for (int n = 0; n < N; ++n)
        total[t][n] =
            _mm512_fmadd_ps(_mm512_add_ps(even[t][n], odd[t][n]), scale_of(t, block), total[t][n]);
  }
  for (int t = 0; t < T; ++t)
    for (int n = 0; n < N; ++n) _mm512_storeu_ps(y[n] + at + t * kLanes, total[t][n]);
}

template <bool kByRow, int N>
inline void tiles_times(const Matrix& w, int64_t first, int64_t last, const uint16_t* const* x,
                        float* const* y, int64_t at) {
  constexpr int T = kTogether;
  const Decoder decode;
  int64_t row = first;
  for (; row + T * kLanes <= last; row += T * kLanes)
    tiles_of<kByRow, T, N>(w, row, x, y, at + row - first, decode);
  for (; row < last; row += kLanes) tiles_of<kByRow, 1, N>(w, row, x, y, at + row - first, decode);
}

template <bool kByRow>
inline void tiles_any(const Matrix& w, int64_t first, int64_t last, const uint16_t* const* x,
                      int64_t n, float* const* y, int64_t at) {
  for (; n > 4; n -= 4, x += 4, y += 4) tiles_times<kByRow, 4>(w, first, last, x, y, at);
  switch (n) {
    case 1:
      return tiles_times<kByRow, 1>(w, first, last, x, y, at);
    case 2:
      return tiles_times<kByRow, 2>(w, first, last, x, y, at);
    case 3:
      return tiles_times<kByRow, 3>(w, first, last, x, y, at);
    default:
      return tiles_times<kByRow, 4>(w, first, last, x, y, at);
  }
}

inline void matvec_tiles(const Matrix& w, int64_t first, int64_t last, const uint16_t* const* x,
                         int64_t n, float* const* y, int64_t at) {
  w.format == Format::kFp8Row ? tiles_any<true>(w, first, last, x, n, y, at)
                              : tiles_any<false>(w, first, last, x, n, y, at);
}

}  // namespace spk::cpu::bf16_avx512bf16
#endif
