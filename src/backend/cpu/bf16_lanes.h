// What the BF16 products share: FP8 codes to BF16 numbers, rows rounded to BF16, loads. Compiled by
// bf16_avx512.cc alone, with its flags.
#pragma once

#include "backend/cpu/bf16.h"

#if defined(__AVX512BF16__) && defined(__AVX512VBMI__)
#include <immintrin.h>

namespace spk::cpu::bf16_avx512bf16 {

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
inline constexpr Tables kTables;

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

inline void round_row(const float* x, int64_t n, uint16_t* out) {
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

inline float load_float(const uint8_t* p) {
  float f;
  __builtin_memcpy(&f, p, sizeof f);
  return f;
}
inline __m512bh load_bf16(const uint16_t* p) {
  return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p));
}

// The columns that number 2 j of a rounded block of 64 and its neighbour hold: this one and the
// next.
constexpr int64_t column_of_pair(int64_t j) {
  return 16 * (j % 16 / 4) + 8 * (j / 16) + 2 * (j % 4);
}

inline __m512bh pair_of(const uint16_t* x) {
  int32_t pair;
  __builtin_memcpy(&pair, x, sizeof pair);
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
}

}  // namespace spk::cpu::bf16_avx512bf16
#endif
