// bf16.h for AVX-512 with BF16 and VBMI. cmake/isa.cmake gives this file its target flags, and no
// other.
#include "backend/cpu/bf16.h"

#if defined(__AVX512BF16__) && defined(__AVX512VBMI__)
#include <immintrin.h>

namespace spk::cpu {
namespace {

// Upper and lower bytes of the BF16 numbers that are 2^-8 times the codes 0 .. 127 (the scales of
// FP8 matrices are kept times 2^8, see simd.h).
struct Tables {
  uint8_t high[128], low[128];
  constexpr Tables() : high(), low() {
    for (int code = 0; code < 128; ++code) {
      int exponent = code >> 3, mantissa = code & 7;
      uint32_t bits = 0;  // of a BF16
      if (exponent > 0) {
        bits = static_cast<uint32_t>((exponent - 7 - 8 + 127) << 7 | mantissa << 4);
      } else if (mantissa > 0) {  // mantissa * 2^-9
        int shift = 0;
        while ((mantissa << shift & 8) == 0) ++shift;
        bits = static_cast<uint32_t>((-6 - shift - 8 + 127) << 7 | (mantissa << shift & 7) << 4);
      }
      high[code] = static_cast<uint8_t>(bits >> 8);
      low[code] = static_cast<uint8_t>(bits);
    }
  }
};
constexpr Tables kTables;

struct Decoder {
  __m512i high0, high1, low0, low1;
  Decoder()
      : high0(_mm512_loadu_si512(kTables.high)),
        high1(_mm512_loadu_si512(kTables.high + 64)),
        low0(_mm512_loadu_si512(kTables.low)),
        low1(_mm512_loadu_si512(kTables.low + 64)) {}
  void operator()(__m512i raw, __m512bh& a, __m512bh& b) const {
    const __m512i upper = _mm512_permutex2var_epi8(high0, raw, high1);
    const __m512i lower = _mm512_permutex2var_epi8(low0, raw, low1);
    // upper | (raw & 0x80): the sign
    const __m512i top =
        _mm512_ternarylogic_epi64(upper, raw, _mm512_set1_epi8(static_cast<char>(0x80)), 0xf8);
    a = reinterpret_cast<__m512bh>(_mm512_unpacklo_epi8(lower, top));
    b = reinterpret_cast<__m512bh>(_mm512_unpackhi_epi8(lower, top));
  }
};

void round_row(const float* x, int64_t n, uint16_t* out) {
  for (int64_t at = 0; at < n; at += kBf16Columns, out += kBf16Columns) {
    float padded[kBf16Columns] = {};
    const float* from = x + at;
    if (n - at < kBf16Columns) {
      __builtin_memcpy(padded, from, static_cast<size_t>(n - at) * sizeof(float));
      from = padded;
    }
    for (int64_t half = 0; half < 2; ++half)
      for (int64_t q = 0; q < 4; q += 2) {  // two runs of 8 columns
        const float* p = from + 8 * half + 16 * q;
        const __m512 v = _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(p)),
                                            _mm256_loadu_ps(p + 16), 1);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 32 * half + 8 * q),
                            reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)));
      }
  }
}

float load_float(const uint8_t* p) {
  float f;
  __builtin_memcpy(&f, p, sizeof f);
  return f;
}
__m512bh load_bf16(const uint16_t* p) { return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p)); }

// Lanes 8 apart, then 4, 2 and 1: a row's bits must not depend on how many share the pass.
float sum_of(__m512 v) {
  const __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
// The same four times, in the lowest lane of each quarter. A short weight row is over after a few
// products, and four separate sums would take as long as those.
__m512 sum_each(const __m512* v) {
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
constexpr int64_t kAheadBytes = 2048;

// One weight row times N rows of x. Not several weight rows at once, although that would save loads
// of x: memory is then read in as many places, and one core falls from 31 GB/s to 15.
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

template <bool kByRow, int N>
void rows_of(const Matrix& w, int64_t first, int64_t last, const uint16_t* const* x,
             float* const* y, int64_t at) {
  const Decoder decode;
  for (int64_t row = first; row < last; ++row)
    one_row<kByRow, N>(w, row, x, y, at + row - first, decode);
}

template <bool kByRow>
void matvec_of(const Matrix& w, int64_t first, int64_t last, const uint16_t* const* x, int64_t n,
               float* const* y, int64_t at) {
  // Four rows of x at a time, over weight rows that stay in the nearest cache: eight rows of 2,560
  // columns would not fit beside them.
  constexpr int64_t kMost = 4, kTogether = 4;
  if (n > kMost) {
    for (int64_t row = first; row < last; row += kTogether) {
      const int64_t end = row + kTogether < last ? row + kTogether : last;
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

void matvec(const Matrix& w, int64_t first, int64_t last, const uint16_t* const* x, int64_t n,
            float* const* y, int64_t at) {
  w.format == Format::kFp8Row ? matvec_of<true>(w, first, last, x, n, y, at)
                              : matvec_of<false>(w, first, last, x, n, y, at);
}

// ---- products with the transpose ----

// The columns that number 2 j of a rounded block of 64 and its neighbour hold: this one and the
// next.
constexpr int64_t column_of_pair(int64_t j) {
  return 16 * (j % 16 / 4) + 8 * (j / 16) + 2 * (j % 4);
}

__m512bh pair_of(const uint16_t* x) {
  int32_t pair;
  __builtin_memcpy(&pair, x, sizeof pair);
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
}

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

void matvec_across(const Matrix& w, int64_t first, int64_t rows, int64_t from, int64_t to,
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

// ---- panels ----

constexpr int64_t kPairs = kBf16Columns / 2;

// v[i] lane j <-> v[j] lane i, by halves, quarters, ... of the square.
inline void transpose(__m512i* v) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (int s = 1; s < kLanes; s *= 2) {
    const __m512i step = _mm512_set1_epi32(s), other = _mm512_set1_epi32(kLanes);
    const __mmask16 set = _mm512_test_epi32_mask(lane, step);
    const __m512i low = _mm512_mask_add_epi32(lane, set, _mm512_sub_epi32(lane, step), other);
    const __m512i high = _mm512_mask_add_epi32(_mm512_add_epi32(lane, step), set, lane, other);
    for (int i = 0; i < kLanes; ++i) {
      if ((i & s) != 0) continue;
      const __m512i a = v[i], b = v[i + s];
      v[i] = _mm512_permutex2var_epi32(a, low, b);
      v[i + s] = _mm512_permutex2var_epi32(a, high, b);
    }
  }
}

void panels(const Matrix& w, int64_t first, int64_t last, float* out) {
  const Decoder decode;
  const bool by_row = w.format == Format::kFp8Row;
  const int64_t blocks = (w.cols + kFp8Block - 1) / kFp8Block;
  for (int64_t row = first; row < last; row += kLanes) {
    const int64_t n = last - row < kLanes ? last - row : kLanes;
    for (int64_t k = 0; k < w.cols; k += kBf16Columns) {
      if (k % kFp8Block == 0) {
        for (int64_t i = 0; i < kLanes; ++i) {
          const int64_t at = by_row ? row + i : (row + i) / kFp8Block * blocks + k / kFp8Block;
          out[i] = i < n ? load_float(w.scales + at * 4) : 0;
        }
        out += kLanes;
      }
      const int64_t left = w.cols - k;
      const __mmask64 there = left >= kBf16Columns ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
      __m512i a[kLanes], b[kLanes];
      for (int64_t i = 0; i < kLanes; ++i) {
        const __m512i raw =
            _mm512_maskz_loadu_epi8(i < n ? there : 0, w.codes + (row + i) * w.cols + k);
        __m512bh lower, upper;
        decode(raw, lower, upper);
        a[i] = reinterpret_cast<__m512i>(lower);
        b[i] = reinterpret_cast<__m512i>(upper);
      }
      transpose(a);
      transpose(b);
      for (int64_t j = 0; j < kLanes; ++j) {
        _mm512_storeu_si512(out + j * kLanes, a[j]);
        _mm512_storeu_si512(out + (kLanes + j) * kLanes, b[j]);
      }
      out += kPairs * kLanes;
    }
  }
}

void float_panels(const float* w, int64_t ldw, int64_t rows, int64_t cols, float* out) {
  for (int64_t row = 0; row < rows; row += kLanes)
    for (int64_t k = 0; k < cols; k += kBf16Columns) {
      if (k % kFp8Block == 0) {
        _mm512_storeu_ps(out, _mm512_set1_ps(1));
        out += kLanes;
      }
      const int64_t left = cols - k < kBf16Columns ? cols - k : kBf16Columns;
      for (int64_t half = 0; half < 2; ++half, out += kLanes * kLanes) {
        __m512i v[kLanes];
        for (int64_t i = 0; i < kLanes; ++i) {
          uint16_t rounded[kBf16Columns] = {};
          if (row + i < rows) round_row(w + (row + i) * ldw + k, left, rounded);
          v[i] = _mm512_loadu_si512(rounded + half * kPairs);
        }
        transpose(v);
        for (int64_t j = 0; j < kLanes; ++j) _mm512_storeu_si512(out + j * kLanes, v[j]);
      }
    }
}

void float_panels_across(const float* w, int64_t ldw, int64_t rows, int64_t cols, float* out) {
  for (int64_t c = 0; c < cols; c += kLanes) {
    const __mmask16 lanes =
        static_cast<__mmask16>((1u << (cols - c < kLanes ? cols - c : kLanes)) - 1u);
    for (int64_t k = 0; k < rows; k += kBf16Columns) {
      if (k % kFp8Block == 0) {
        _mm512_storeu_ps(out, _mm512_set1_ps(1));
        out += kLanes;
      }
      for (int64_t j = 0; j < kPairs; ++j, out += kLanes) {
        const int64_t row = k + column_of_pair(j);
        const auto rounded = [&](int64_t r) {
          const __m512 x = _mm512_maskz_loadu_ps(r < rows ? lanes : 0, w + r * ldw + c);
          return _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
        };
        _mm512_storeu_si512(out,
                            _mm512_or_si512(rounded(row), _mm512_slli_epi32(rounded(row + 1), 16)));
      }
    }
  }
}

// M rows of x times P panels; the last panel has `lanes` rows of weights. Two panels and six rows
// keep 24 sums in registers.
template <int P, int M>
inline void panel_tile(const float* panel, int64_t cols, const uint16_t* const* x, float* const* y,
                       int64_t at, int64_t lanes) {
  const int64_t step = bf16_panel_floats(kLanes, cols), size = bf16_size(cols);
  __m512 total[M][P];
  for (int m = 0; m < M; ++m)
    for (int p = 0; p < P; ++p) total[m][p] = _mm512_setzero_ps();
  for (int64_t k = 0; k < size; k += kFp8Block) {
    const int64_t pairs = (size - k < kFp8Block ? size - k : kFp8Block) / 2;
    const float* const scales = panel;
    panel += kLanes;
    __m512 sum[M][P];
    for (int m = 0; m < M; ++m)
      for (int p = 0; p < P; ++p) sum[m][p] = _mm512_setzero_ps();
    for (int64_t j = 0; j < pairs; ++j, panel += kLanes) {
      __m512bh w[P];
      for (int p = 0; p < P; ++p)
        w[p] = reinterpret_cast<__m512bh>(_mm512_loadu_ps(panel + p * step));
      for (int m = 0; m < M; ++m) {
        const __m512bh in = pair_of(x[m] + k + 2 * j);
        for (int p = 0; p < P; ++p) sum[m][p] = _mm512_dpbf16_ps(sum[m][p], w[p], in);
      }
    }
    for (int p = 0; p < P; ++p) {
      const __m512 scale = _mm512_loadu_ps(scales + p * step);
      for (int m = 0; m < M; ++m) total[m][p] = _mm512_fmadd_ps(sum[m][p], scale, total[m][p]);
    }
  }
  const __mmask16 last = static_cast<__mmask16>((1u << lanes) - 1u);
  for (int m = 0; m < M; ++m)
    for (int p = 0; p < P; ++p)
      _mm512_mask_storeu_ps(y[m] + at + p * kLanes, p + 1 < P ? __mmask16{0xffff} : last,
                            total[m][p]);
}

template <int P>
inline void panel_rows(const float* panel, int64_t cols, const uint16_t* const* x, int64_t n,
                       float* const* y, int64_t at, int64_t lanes) {
  int64_t i = 0;
  for (; i + 6 <= n; i += 6) panel_tile<P, 6>(panel, cols, x + i, y + i, at, lanes);
  for (; i + 2 <= n; i += 2) panel_tile<P, 2>(panel, cols, x + i, y + i, at, lanes);
  if (i < n) panel_tile<P, 1>(panel, cols, x + i, y + i, at, lanes);
}

void panel_dots(const float* panel, int64_t rows, int64_t cols, const uint16_t* const* x, int64_t n,
                float* const* y, int64_t at) {
  const int64_t step = bf16_panel_floats(kLanes, cols);
  for (; rows > kLanes; rows -= 2 * kLanes, panel += 2 * step, at += 2 * kLanes)
    panel_rows<2>(panel, cols, x, n, y, at, rows < 2 * kLanes ? rows - kLanes : kLanes);
  if (rows > 0) panel_rows<1>(panel, cols, x, n, y, at, rows);
}

}  // namespace

const Bf16Kernels* bf16_avx512() {
  static constexpr Bf16Kernels table{"avx512-bf16", round_row,  matvec,       matvec_across,
                                     panels,        panel_dots, float_panels, float_panels_across};
  return &table;
}

}  // namespace spk::cpu

#else

namespace spk::cpu {

const Bf16Kernels* bf16_avx512() { return nullptr; }

}  // namespace spk::cpu

#endif
