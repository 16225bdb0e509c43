// Lanes of the packed products on AVX-512 with VNNI: a register holds four columns of a tile's 16
// rows.
#pragma once

#include "backend/cpu/packed.h"

#if defined(__AVX512BW__) && defined(__AVX512VNNI__)
#include <immintrin.h>

namespace spk::cpu::packed_avx512 {

struct Lanes {
  static constexpr int kLanes = 16;
  static constexpr int kMostRows = 8;  // 8 totals, 8 sums, 2 registers of codes: 18 of 32
  using F = __m512;
  struct Codes {
    __m512i low, high;
    explicit Codes(const uint8_t* p) {
      // kCodeOffset + doubled value
      const __m512i table = _mm512_broadcast_i32x4(
          _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
      const __m512i mask = _mm512_set1_epi8(15), raw = _mm512_loadu_si512(p);
      low = _mm512_shuffle_epi8(table, _mm512_and_si512(raw, mask));
      high = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(raw, 4), mask));
    }
  };
  struct Sum {
    __m512i v;
    void start(const int32_t* offset) { v = _mm512_set1_epi32(*offset); }
    void add(__m512i w, const int8_t* x) {
      int32_t four;
      __builtin_memcpy(&four, x, sizeof four);
      v = _mm512_dpbusd_epi32(v, w, _mm512_set1_epi32(four));
    }
    void fold() {}
    F get() const { return _mm512_cvtepi32_ps(v); }
  };
  static F zero() { return _mm512_setzero_ps(); }
  static F set1(const float* x) { return _mm512_set1_ps(*x); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F e8m0(const uint8_t* codes) {
    const __m512i wide =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
    // Code 0 is the subnormal 2^-127, bits 1 << 22.
    return _mm512_castsi512_ps(
        _mm512_max_epi32(_mm512_slli_epi32(wide, 23), _mm512_set1_epi32(1 << 22)));
  }
  static void store(float* p, F a) { _mm512_storeu_ps(p, a); }
};

}  // namespace spk::cpu::packed_avx512
#endif
