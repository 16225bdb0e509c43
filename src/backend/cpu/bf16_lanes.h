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

// Half 0 or 1 of a rounded block of 64: two runs of 8 columns, 16 apart, and the two 32 behind
// them.
inline __m512i rounded_half(const float* x, int64_t half) {
  const auto sixteen = [&](int64_t first) {
    const float* p = x + 8 * half + first;
    const __m512 v =
        _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(p)), _mm256_loadu_ps(p + 16), 1);
    return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v));
  };
  return _mm512_inserti64x4(_mm512_castsi256_si512(sixteen(0)), sixteen(32), 1);
}

// Columns [at, at + 64) of a row of n, by way of `padded` where there are fewer.
inline const float* block_of_row(const float* x, int64_t n, int64_t at, float* padded) {
  if (n - at >= kBf16Columns) return x + at;
  __builtin_memset(padded, 0, kBf16Columns * sizeof(float));
  __builtin_memcpy(padded, x + at, static_cast<size_t>(n - at) * sizeof(float));
  return padded;
}

inline void round_row(const float* x, int64_t n, uint16_t* out) {
  float padded[kBf16Columns];
  for (int64_t at = 0; at < n; at += kBf16Columns, out += kBf16Columns) {
    const float* from = block_of_row(x, n, at, padded);
    _mm512_storeu_si512(out, rounded_half(from, 0));
    _mm512_storeu_si512(out + kBf16Columns / 2, rounded_half(from, 1));
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
