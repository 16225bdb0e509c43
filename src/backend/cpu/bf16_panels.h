// Panels of sixteen weight rows times the rows of a prompt (bf16.h).
#pragma once

#include "backend/cpu/bf16_lanes.h"

#if defined(__AVX512BF16__) && defined(__AVX512VBMI__)

namespace spk::cpu::bf16_avx512bf16 {

inline constexpr int64_t kPairs = kBf16Columns / 2;

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

inline void panels(const Matrix& w, int64_t first, int64_t last, float* out) {
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

inline void float_panels(const float* w, int64_t ldw, int64_t rows, int64_t cols, float* out) {
  for (int64_t row = 0; row < rows; row += kLanes)
    for (int64_t k = 0; k < cols; k += kBf16Columns) {
      if (k % kFp8Block == 0) {
        _mm512_storeu_ps(out, _mm512_set1_ps(1));
        out += kLanes;
      }
      __m512i a[kLanes], b[kLanes];
      for (int64_t i = 0; i < kLanes; ++i) {
        a[i] = b[i] = _mm512_setzero_si512();
        if (row + i >= rows) continue;
        float padded[kBf16Columns];
        const float* from = block_of_row(w + (row + i) * ldw, cols, k, padded);
        a[i] = rounded_half(from, 0);
        b[i] = rounded_half(from, 1);
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

inline void float_panels_across(const float* w, int64_t ldw, int64_t rows, int64_t cols,
                                float* out) {
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
                       int64_t at, int64_t lanes, bool add) {
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
    for (int p = 0; p < P; ++p) {
      const __mmask16 there = p + 1 < P ? __mmask16{0xffff} : last;
      float* const to = y[m] + at + p * kLanes;
      if (add) total[m][p] = _mm512_add_ps(_mm512_maskz_loadu_ps(there, to), total[m][p]);
      _mm512_mask_storeu_ps(to, there, total[m][p]);
    }
}

template <int P>
inline void panel_rows(const float* panel, int64_t cols, const uint16_t* const* x, int64_t n,
                       float* const* y, int64_t at, int64_t lanes, bool add) {
  int64_t i = 0;
  for (; i + 6 <= n; i += 6) panel_tile<P, 6>(panel, cols, x + i, y + i, at, lanes, add);
  for (; i + 2 <= n; i += 2) panel_tile<P, 2>(panel, cols, x + i, y + i, at, lanes, add);
  if (i < n) panel_tile<P, 1>(panel, cols, x + i, y + i, at, lanes, add);
}

inline void panel_dots(const float* panel, int64_t rows, int64_t cols, const uint16_t* const* x,
                       int64_t n, float* const* y, int64_t at, bool add) {
  const int64_t step = bf16_panel_floats(kLanes, cols);
  for (; rows > kLanes; rows -= 2 * kLanes, panel += 2 * step, at += 2 * kLanes)
    panel_rows<2>(panel, cols, x, n, y, at, rows < 2 * kLanes ? rows - kLanes : kLanes, add);
  if (rows > 0) panel_rows<1>(panel, cols, x, n, y, at, rows, add);
}

}  // namespace spk::cpu::bf16_avx512bf16
#endif
