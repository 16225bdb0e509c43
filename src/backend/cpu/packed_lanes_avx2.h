// Lanes of the packed products on 256-bit registers: eight rows of a tile at a time. Compiled by
// packed_avx2.cc and packed_avxvnni.cc, each with its own target flags and so its own namespace.
#pragma once

#include "backend/cpu/packed.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>

#if defined(__AVXVNNI__)
namespace spk::cpu::packed_avx2_vnni {
#else
namespace spk::cpu::packed_avx2_maddubs {
#endif

struct Lanes {
  static constexpr int kLanes = 8;
  static constexpr int kMostRows = 4;  // 4 totals, 4 sums (with VNNI; else 8), 2 registers of codes
  using F = __m256;
  struct Codes {
    __m256i low, high;
    explicit Codes(const uint8_t* p) {
      // kCodeOffset + doubled value
      const __m256i table =
          _mm256_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0, 12, 13, 14,
                           15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
      const __m256i mask = _mm256_set1_epi8(15);
      const __m256i raw = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
      low = _mm256_shuffle_epi8(table, _mm256_and_si256(raw, mask));
      high = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(raw, 4), mask));
    }
  };
  static __m256i four(const int8_t* x) {
    int32_t word;
    __builtin_memcpy(&word, x, sizeof word);
    return _mm256_set1_epi32(word);
  }
#if defined(__AVXVNNI__)
  struct Sum {
    __m256i v;
    void start(const int32_t* offset) { v = _mm256_set1_epi32(*offset); }
    void add(__m256i w, const int8_t* x) { v = _mm256_dpbusd_avx_epi32(v, w, four(x)); }
    void fold() {}
    F get() const { return _mm256_cvtepi32_ps(v); }
  };
#else
  // Pairs are added in 16 bits first: at most 4 * 2 * 24 * 127 = 24,384 between two folds.
  struct Sum {
    __m256i v, pairs;
    void start(const int32_t* offset) {
      v = _mm256_set1_epi32(*offset);
      pairs = _mm256_setzero_si256();
    }
    void add(__m256i w, const int8_t* x) {
      pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(w, four(x)));
    }
    void fold() {
      v = _mm256_add_epi32(v, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
      pairs = _mm256_setzero_si256();
    }
    F get() const { return _mm256_cvtepi32_ps(v); }
  };
#endif
  static F zero() { return _mm256_setzero_ps(); }
  static F set1(const float* x) { return _mm256_set1_ps(*x); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F e8m0(const uint8_t* codes) {
    const __m256i wide =
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
    // Code 0 is the subnormal 2^-127, bits 1 << 22.
    return _mm256_castsi256_ps(
        _mm256_max_epi32(_mm256_slli_epi32(wide, 23), _mm256_set1_epi32(1 << 22)));
  }
  static void store(float* p, F a) { _mm256_storeu_ps(p, a); }
};

}  // namespace
#endif
