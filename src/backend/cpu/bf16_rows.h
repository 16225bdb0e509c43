// FP8 matrices, and their transposes, times a few rows (bf16.h).
#pragma once

#include "backend/cpu/bf16_lanes.h"

#if defined(__AVX512BF16__) && defined(__AVX512VBMI__)

namespace spk::cpu::bf16_avx512bf16 {

// Lanes 8 apart, then 4, 2 and 1: a row's bits must not depend on how many share the pass.
inline float sum_of(__m512 v) {
  const __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
// The same four times, in the lowest lane of each quarter. A short weight row is over after a few
// products, and four separate sums would take as long as those.
inline __m512 sum_each(const __m512* v) {
  const __m512 a =
      _mm512_add_ps(_mm512_shuffle_f32x4(v[0], v[1], 0x44), _mm512_shuffle_f32x4(v[0], v[1], 0xee));
  const __m512 b =
      _mm512_add_ps(_mm512_shuffle_f32x4(v[2], v[3], 0x44), _mm512_shuffle_f32x4(v[2], v[3], 0xee));
  const __m512 s4 =
      _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  const __m512 s2 = _mm512_add_ps(s4, _mm512_permute_ps(s4, 0x4e));
  return _mm512_add_ps(s2, _mm512_permute_ps(s2, 0xb1));
}

// One row or two are quick enough that the hardware's read-ahead keeps up; with more rows the loop
// takes longer than it looks ahead.
inline constexpr int64_t kAheadBytes = 2048;

// One weight row times N rows of x. Of long rows not several at once, although that would save
// loads of x: memory is then read in as many places, and one core falls from 31 GB/s to 15. For
// short ones see several_rows.
template <bool kByRow, int N>
inline void one_row(const Matrix& w, int64_t row, const uint16_t* const* x, float* const* y,
                    int64_t at, const Decoder& decode) {
  const int64_t cols = w.cols;
  const uint8_t* codes = w.codes + row * cols;
  const uint8_t* scales =
      w.scales + (kByRow ? row : row / kFp8Block * ((cols + kFp8Block - 1) / kFp8Block)) * 4;
  __m512 sum[N], total[N];
  for (int n = 0; n < N; ++n) sum[n] = total[n] = _mm512_setzero_ps();
  for (int64_t k = 0; k < cols; k += kBf16Columns) {
    const int64_t left = cols - k;
    if constexpr (N > 2) __builtin_prefetch(codes + k + kAheadBytes);
    const __m512i raw = left >= kBf16Columns
                            ? _mm512_loadu_si512(codes + k)
                            : _mm512_maskz_loadu_epi8((__mmask64{1} << left) - 1, codes + k);
    __m512bh a, b;
    decode(raw, a, b);
    for (int n = 0; n < N; ++n)
      sum[n] = _mm512_dpbf16_ps(_mm512_dpbf16_ps(sum[n], a, load_bf16(x[n] + k)), b,
                                load_bf16(x[n] + k + kBf16Columns / 2));
    const bool half = k % kFp8Block == 0 && left > kBf16Columns;  // the block's second half follows
    if (half) continue;
    const __m512 scale = _mm512_set1_ps(load_float(scales + (kByRow ? 0 : k / kFp8Block * 4)));
    for (int n = 0; n < N; ++n) {
      total[n] = _mm512_fmadd_ps(sum[n], scale, total[n]);
      sum[n] = _mm512_setzero_ps();
    }
  }
  if constexpr (N == 4) {
    const __m512 sums = sum_each(total);
    y[0][at] = _mm512_cvtss_f32(sums);
    y[1][at] = _mm_cvtss_f32(_mm512_extractf32x4_ps(sums, 1));
    y[2][at] = _mm_cvtss_f32(_mm512_extractf32x4_ps(sums, 2));
    y[3][at] = _mm_cvtss_f32(_mm512_extractf32x4_ps(sums, 3));
  } else {
    for (int n = 0; n < N; ++n) y[n][at] = sum_of(total[n]);
  }
}

// sum_each of a and of b: lane 4 i is the sum of a[i], lane 4 i + 2 that of b[i].
inline __m512 sum_both(const __m512* a, const __m512* b) {
  const auto four = [](const __m512* v) {
    const __m512 x = _mm512_add_ps(_mm512_shuffle_f32x4(v[0], v[1], 0x44),
                                   _mm512_shuffle_f32x4(v[0], v[1], 0xee));
    const __m512 y = _mm512_add_ps(_mm512_shuffle_f32x4(v[2], v[3], 0x44),
                                   _mm512_shuffle_f32x4(v[2], v[3], 0xee));
    return _mm512_castps_pd(
        _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xdd)));
  };
  const __m512d s = four(a), t = four(b);
  const __m512 s2 = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(s, t)),
                                  _mm512_castpd_ps(_mm512_unpackhi_pd(s, t)));
  return _mm512_add_ps(s2, _mm512_permute_ps(s2, 0xb1));
}

// sum + the products of w with the 32 numbers at p. The instruction takes them from memory itself,
// which GCC 12 does not know: its loads would take as many places as the products do.
inline __m512 dot_at(__m512 sum, __m512bh w, const uint16_t* p) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(w), "m"(*reinterpret_cast<const __m512i_u*>(p)));
  return sum;
}

// Rows that several_rows takes with N rows of x: R N sums, as many totals and seven registers for
// decoding are 31 of 32.
template <int N>
inline constexpr int kSeveral = N == 4 ? 3 : 4;
// Up to so many columns several rows lie in one page or two and are one stream to the memory.
inline constexpr int64_t kShortColumns = 1024;
// Several rows of 256 columns take 20 to 30 ns; a line that comes from memory takes 100 ns and
// more, and the hardware's read-ahead stops at page borders and with each small matrix.
inline constexpr int64_t kShortAheadBytes = 8192;

// kSeveral weight rows one behind the other times N rows of x, bit by bit as one_row. Of one row
// every product waits for the one before, 5 or 6 cycles in N chains, and a row of 256 columns ends
// after 8 N products in sums that take as long as those. Several rows make chains enough to keep
// the processor busy, and add their sums up together. K: columns, 0: those of the matrix.
template <bool kByRow, int N, int64_t K>
inline void several_rows(const Matrix& w, int64_t row, const uint16_t* const* x, float* const* y,
                         int64_t at, const Decoder& decode) {
  constexpr int R = kSeveral<N>;
  const int64_t cols = K != 0 ? K : w.cols, blocks = cols / kFp8Block;
  const uint8_t* codes = w.codes + row * cols;
  const uint16_t* in[N];
  for (int n = 0; n < N; ++n) in[n] = x[n];
  __m512 total[4][4];  // [R][N] of it
  for (int r = 0; r < R; ++r)
    for (int n = 0; n < N; ++n) total[r][n] = _mm512_setzero_ps();
  for (int64_t block = 0; block < blocks; ++block) {
    __m512 sum[R][N];
    for (int r = 0; r < R; ++r)
      for (int n = 0; n < N; ++n) sum[r][n] = _mm512_setzero_ps();
    const auto half = [&](int64_t k) {
      for (int r = 0; r < R; ++r) {
        const uint8_t* p = codes + r * cols + k;
        __builtin_prefetch(p + kShortAheadBytes);
        __m512bh a, b;
        __m512i raw = _mm512_loadu_si512(p);
        asm("" : "+v"(raw));  // else it is loaded again for each of its three uses
        decode(raw, a, b);
        for (int n = 0; n < N; ++n) sum[r][n] = dot_at(sum[r][n], a, in[n] + k);
        for (int n = 0; n < N; ++n) sum[r][n] = dot_at(sum[r][n], b, in[n] + k + kBf16Columns / 2);
      }
    };
    half(block * kFp8Block);
    half(block * kFp8Block + kBf16Columns);
    for (int r = 0; r < R; ++r) {
      const int64_t i = kByRow ? row + r : (row + r) / kFp8Block * blocks + block;
      const __m512 scale = _mm512_set1_ps(load_float(w.scales + i * 4));
      for (int n = 0; n < N; ++n) total[r][n] = _mm512_fmadd_ps(sum[r][n], scale, total[r][n]);
    }
  }
  if constexpr (N == 1) {
    const __m512 first[4] = {total[0][0], total[1][0], total[2][0], total[3][0]};
    const __m512i pick = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512 sums = _mm512_permutexvar_ps(pick, sum_each(first));
    _mm_storeu_ps(y[0] + at, _mm512_castps512_ps128(sums));
  } else if constexpr (N == 2) {
    const __m512 first[4] = {total[0][0], total[1][0], total[2][0], total[3][0]};
    const __m512 second[4] = {total[0][1], total[1][1], total[2][1], total[3][1]};
    const __m512i pick = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512 sums = _mm512_permutexvar_ps(pick, sum_both(first, second));
    _mm_storeu_ps(y[0] + at, _mm512_castps512_ps128(sums));
    _mm_storeu_ps(y[1] + at, _mm512_extractf32x4_ps(sums, 1));
  } else {
    // A quarter for a row of x, with its sums in the order of the weight rows.
    if constexpr (N == 3)
      for (int r = 0; r < R; ++r) total[r][3] = total[r][2];
    const __m512 upper = R == 4 ? sum_both(total[2], total[R - 1]) : sum_each(total[2]);
    const __m512 sums = _mm512_shuffle_ps(sum_both(total[0], total[1]), upper, 0x88);
    constexpr __mmask8 kWritten = (1 << R) - 1;
    _mm_mask_storeu_ps(y[0] + at, kWritten, _mm512_castps512_ps128(sums));
    _mm_mask_storeu_ps(y[1] + at, kWritten, _mm512_extractf32x4_ps(sums, 1));
    _mm_mask_storeu_ps(y[2] + at, kWritten, _mm512_extractf32x4_ps(sums, 2));
    if constexpr (N == 4) _mm_mask_storeu_ps(y[3] + at, kWritten, _mm512_extractf32x4_ps(sums, 3));
  }
}

template <bool kByRow, int N>
inline void rows_of(const Matrix& w, int64_t first, int64_t last, const uint16_t* const* x,
                    float* const* y, int64_t at) {
  const Decoder decode;
  int64_t row = first;
  if (w.cols <= kShortColumns && w.cols % kFp8Block == 0) {
    if (w.cols == 256) {  // most of ling-nano's
      for (; row + kSeveral<N> <= last; row += kSeveral<N>)
        several_rows<kByRow, N, 256>(w, row, x, y, at + row - first, decode);
    } else {
      for (; row + kSeveral<N> <= last; row += kSeveral<N>)
        several_rows<kByRow, N, 0>(w, row, x, y, at + row - first, decode);
    }
  }
  for (; row < last; ++row) one_row<kByRow, N>(w, row, x, y, at + row - first, decode);
}

template <bool kByRow>
inline void matvec_of(const Matrix& w, int64_t first, int64_t last, const uint16_t* const* x,
                      int64_t n, float* const* y, int64_t at) {
  // Four rows of x at a time, over weight rows that stay in the nearest cache: eight rows of 2,560
  // columns would not fit beside them.
  constexpr int64_t kMost = 4;
  if (n > kMost) {
    const int64_t together = w.cols <= kShortColumns ? 4 * kSeveral<kMost> : 4;
    for (int64_t row = first; row < last; row += together) {
      const int64_t end = row + together < last ? row + together : last;
      matvec_of<kByRow>(w, row, end, x, kMost, y, at + row - first);
      matvec_of<kByRow>(w, row, end, x + kMost, n - kMost, y + kMost, at + row - first);
    }
    return;
  }
  switch (n) {
    case 1:
      return rows_of<kByRow, 1>(w, first, last, x, y, at);
    case 2:
      return rows_of<kByRow, 2>(w, first, last, x, y, at);
    case 3:
      return rows_of<kByRow, 3>(w, first, last, x, y, at);
    default:
      return rows_of<kByRow, 4>(w, first, last, x, y, at);
  }
}

inline void matvec(const Matrix& w, int64_t first, int64_t last, const uint16_t* const* x,
                   int64_t n, float* const* y, int64_t at) {
  w.format == Format::kFp8Row ? matvec_of<true>(w, first, last, x, n, y, at)
                              : matvec_of<false>(w, first, last, x, n, y, at);
}

// ---- products with the transpose ----

// Columns [k, k + 64) for N rows of x. Bytes of two weight rows are interleaved before they are
// widened, so that a lane holds the pair that meets a pair of x.
template <int N>
inline void across(const Matrix& w, int64_t first, int64_t rows, int64_t k,
                   const uint16_t* const* x, float* const* y, int64_t at, const Decoder& decode) {
  const int64_t cols = w.cols, blocks = (cols + kFp8Block - 1) / kFp8Block;
  const __mmask64 there =
      cols - k >= kBf16Columns ? ~__mmask64{0} : (__mmask64{1} << (cols - k)) - 1;
  // sum[n][v]: columns 16 l + 4 v + 0..3 in quarter l
  __m512 sum[N][4], total[N][4];
  for (int n = 0; n < N; ++n)
    for (int v = 0; v < 4; ++v) total[n][v] = _mm512_setzero_ps();
  for (int64_t r = 0; r < rows; r += kBf16Columns) {
    for (int n = 0; n < N; ++n)
      for (int v = 0; v < 4; ++v) sum[n][v] = _mm512_setzero_ps();
    for (int64_t j = 0; j < kBf16Columns / 2; ++j) {
      const uint8_t* codes = w.codes + (first + r + column_of_pair(j)) * cols + k;
      // Rows lie apart: no read-ahead finds the next columns.
      __builtin_prefetch(codes + kBf16Columns);
      __builtin_prefetch(codes + cols + kBf16Columns);
      const __m512i even = _mm512_maskz_loadu_epi8(there, codes);
      const __m512i odd = _mm512_maskz_loadu_epi8(there, codes + cols);
      __m512bh pairs[4];
      decode(_mm512_unpacklo_epi8(even, odd), pairs[0], pairs[1]);
      decode(_mm512_unpackhi_epi8(even, odd), pairs[2], pairs[3]);
      for (int n = 0; n < N; ++n) {
        const __m512bh in = pair_of(x[n] + r + 2 * j);
        for (int v = 0; v < 4; ++v) sum[n][v] = _mm512_dpbf16_ps(sum[n][v], pairs[v], in);
      }
    }
    const int64_t block = (first + r) / kFp8Block * blocks + k / kFp8Block;
    const __m512 scale = _mm512_set1_ps(load_float(w.scales + block * 4));
    for (int n = 0; n < N; ++n)
      for (int v = 0; v < 4; ++v) total[n][v] = _mm512_fmadd_ps(sum[n][v], scale, total[n][v]);
  }
  for (int n = 0; n < N; ++n) {
    const __m512* t = total[n];
    const __m512 a = _mm512_shuffle_f32x4(t[0], t[1], 0x44),
                 b = _mm512_shuffle_f32x4(t[2], t[3], 0x44);
    const __m512 c = _mm512_shuffle_f32x4(t[0], t[1], 0xee),
                 d = _mm512_shuffle_f32x4(t[2], t[3], 0xee);
    const __m512 out[4] = {_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd),
                           _mm512_shuffle_f32x4(c, d, 0x88), _mm512_shuffle_f32x4(c, d, 0xdd)};
    for (int64_t v = 0; v < 4 && k + 16 * v < cols; ++v) {
      const int64_t left = cols - k - 16 * v;
      _mm512_mask_storeu_ps(
          y[n] + at + 16 * v,
          left >= 16 ? __mmask16{0xffff} : static_cast<__mmask16>((1u << left) - 1u), out[v]);
    }
  }
}

inline void matvec_across(const Matrix& w, int64_t first, int64_t rows, int64_t from, int64_t to,
                          const uint16_t* const* x, int64_t n, float* const* y) {
  const Decoder decode;
  for (int64_t k = from; k < to; k += kBf16Columns) {
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) across<4>(w, first, rows, k, x + i, y + i, k - from, decode);
    if (n - i == 3) across<3>(w, first, rows, k, x + i, y + i, k - from, decode);
    if (n - i == 2) across<2>(w, first, rows, k, x + i, y + i, k - from, decode);
    if (n - i == 1) across<1>(w, first, rows, k, x + i, y + i, k - from, decode);
  }
}

}  // namespace spk::cpu::bf16_avx512bf16
#endif
