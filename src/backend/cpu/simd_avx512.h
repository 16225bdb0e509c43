// Sixteen float lanes on AVX-512 (F, BW, DQ, VL): one register. See simd.h for the contract of each
// function.
#pragma once

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include <immintrin.h>

#include <cstdint>

namespace spk::cpu::avx512 {

struct V16 {
  __m512 v;
};

inline constexpr int kWideRegisters = 1;  // 32 registers: tiles of 4 x 4 accumulators

inline V16 zero() { return {_mm512_setzero_ps()}; }
inline V16 set1(float x) { return {_mm512_set1_ps(x)}; }
inline V16 load(const void* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, V16 a) { _mm512_storeu_ps(p, a.v); }
inline __mmask16 first_lanes(int64_t n) { return static_cast<__mmask16>((1u << n) - 1u); }
inline V16 load_part(const void* p, int64_t n) {
  return {_mm512_maskz_loadu_ps(first_lanes(n), p)};
}
inline void store_part(float* p, V16 a, int64_t n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), a.v);
}
inline V16 add(V16 a, V16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline V16 sub(V16 a, V16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline V16 mul(V16 a, V16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline V16 div(V16 a, V16 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline V16 lower(V16 a, V16 b) { return {_mm512_min_ps(a.v, b.v)}; }
inline V16 higher(V16 a, V16 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline V16 fma(V16 a, V16 b, V16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline V16 fnma(V16 a, V16 b, V16 c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
inline V16 shift_exponent(V16 a, V16 t) {
  const __m512i n = _mm512_slli_epi32(_mm512_castps_si512(t.v), 23);
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a.v), n))};
}
inline V16 zero_below(V16 x, float limit, V16 a) {
  const __mmask16 keep = _mm512_cmp_ps_mask(x.v, _mm512_set1_ps(limit), _CMP_NLT_UQ);
  return {_mm512_maskz_mov_ps(keep, a.v)};
}

inline float reduce(V16 a) {
  const __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

// [a, b, c, d] with 4 lanes each: the first two of reduce()'s four additions.
inline __m512 fold4(V16 a, V16 b, V16 c, V16 d) {
  const __m512 ab =
      _mm512_add_ps(_mm512_shuffle_f32x4(a.v, b.v, 0x44), _mm512_shuffle_f32x4(a.v, b.v, 0xee));
  const __m512 cd =
      _mm512_add_ps(_mm512_shuffle_f32x4(c.v, d.v, 0x44), _mm512_shuffle_f32x4(c.v, d.v, 0xee));
  return _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
}
// Adds lane pairs i and i + 2 of each group of four: [p0 p1 q0 q1] per 128 bits.
inline __m512 fold2(__m512 p, __m512 q) {
  const __m512d pd = _mm512_castps_pd(p), qd = _mm512_castps_pd(q);
  return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(pd, qd)),
                       _mm512_castpd_ps(_mm512_unpackhi_pd(pd, qd)));
}

inline void reduce4(const V16* a, float* out) {
  const __m512 s = fold4(a[0], a[1], a[2], a[3]);
  const __m512 two = fold2(s, s);
  const __m512 one = _mm512_add_ps(two, _mm512_permute_ps(two, 0xb1));  // lanes 0, 4, 8, 12
  const __m512i pick = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(pick, one)));
}
// out[j][i] = sum of a[4 * i + j]
inline void reduce4x4(const V16* a, float* const* out, int64_t at) {
  const __m512 s01 = fold2(fold4(a[0], a[1], a[2], a[3]), fold4(a[4], a[5], a[6], a[7]));
  const __m512 s23 = fold2(fold4(a[8], a[9], a[10], a[11]), fold4(a[12], a[13], a[14], a[15]));
  const __m512 s =
      _mm512_add_ps(_mm512_shuffle_ps(s01, s23, 0x88), _mm512_shuffle_ps(s01, s23, 0xdd));
  _mm_storeu_ps(out[0] + at, _mm512_castps512_ps128(s));
  _mm_storeu_ps(out[1] + at, _mm512_extractf32x4_ps(s, 1));
  _mm_storeu_ps(out[2] + at, _mm512_extractf32x4_ps(s, 2));
  _mm_storeu_ps(out[3] + at, _mm512_extractf32x4_ps(s, 3));
}

// to[j][i] = from[i * stride + j], 16 x 16
inline void transpose16(const float* from, int64_t stride, float* to) {
  __m512 rows[4][4];  // [group of four rows][column of each 128 bits]
  for (int g = 0; g < 4; ++g) {
    const float* p = from + 4 * g * stride;
    const __m512 r0 = _mm512_loadu_ps(p), r1 = _mm512_loadu_ps(p + stride);
    const __m512 r2 = _mm512_loadu_ps(p + 2 * stride), r3 = _mm512_loadu_ps(p + 3 * stride);
    const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(r0, r1));
    const __m512d b = _mm512_castps_pd(_mm512_unpacklo_ps(r2, r3));
    const __m512d c = _mm512_castps_pd(_mm512_unpackhi_ps(r0, r1));
    const __m512d d = _mm512_castps_pd(_mm512_unpackhi_ps(r2, r3));
    rows[g][0] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
    rows[g][1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    rows[g][2] = _mm512_castpd_ps(_mm512_unpacklo_pd(c, d));
    rows[g][3] = _mm512_castpd_ps(_mm512_unpackhi_pd(c, d));
  }
  for (int c = 0; c < 4; ++c) {
    const __m512 low01 = _mm512_shuffle_f32x4(rows[0][c], rows[1][c], 0x44);
    const __m512 low23 = _mm512_shuffle_f32x4(rows[2][c], rows[3][c], 0x44);
    const __m512 high01 = _mm512_shuffle_f32x4(rows[0][c], rows[1][c], 0xee);
    const __m512 high23 = _mm512_shuffle_f32x4(rows[2][c], rows[3][c], 0xee);
    _mm512_storeu_ps(to + 16 * c, _mm512_shuffle_f32x4(low01, low23, 0x88));
    _mm512_storeu_ps(to + 16 * (c + 4), _mm512_shuffle_f32x4(low01, low23, 0xdd));
    _mm512_storeu_ps(to + 16 * (c + 8), _mm512_shuffle_f32x4(high01, high23, 0x88));
    _mm512_storeu_ps(to + 16 * (c + 12), _mm512_shuffle_f32x4(high01, high23, 0xdd));
  }
}

inline void bf16_32(const uint8_t* p, V16& a, V16& b) {
  const __m512i raw = _mm512_loadu_si512(p);
  const __m512i lo = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(raw));
  const __m512i hi = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(raw, 1));
  a.v = _mm512_castsi512_ps(_mm512_slli_epi32(lo, 16));
  b.v = _mm512_castsi512_ps(_mm512_slli_epi32(hi, 16));
}

inline void e4m3_32(const uint8_t* p, V16& a, V16& b) {
  const __m512i wide =
      _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  const __m512i half =
      _mm512_and_si512(_mm512_slli_epi16(wide, 7), _mm512_set1_epi16(-0x4001));  // 0xbfff
  a.v = _mm512_cvtph_ps(_mm512_castsi512_si256(half));
  b.v = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1));
}

// The sixteen values of a 4-bit code, one a lane; scaled once per group instead of once per weight.
struct Nibbles {
  __m512 table;
  explicit Nibbles(const float* values, const uint8_t*) : table(_mm512_loadu_ps(values)) {}
  static __m512i words(const uint8_t* p) {
    const __m512i low = _mm512_broadcastd_epi32(_mm_loadu_si32(p));
    return _mm512_mask_broadcastd_epi32(low, 0xff00, _mm_loadu_si32(p + 4));
  }
  void get32(const uint8_t* p, float scale, V16& a, V16& b) const {
    const __m512 scaled = _mm512_mul_ps(table, _mm512_set1_ps(scale));
    // Lane i of a register gets the 32-bit word with its code, moved so that the code is in the low
    // 4 bits: all that the permutation looks at. Words are broadcast by the load unit, the second
    // one under a mask: the shuffle unit, the bottleneck, is left to the shift and the permutation.
    const __m512i shift =
        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    const __m512i first = words(p), second = words(p + 8);
    a.v = _mm512_permutexvar_ps(_mm512_srlv_epi32(first, shift), scaled);
    b.v = _mm512_permutexvar_ps(_mm512_srlv_epi32(second, shift), scaled);
  }
};

}  // namespace spk::cpu::avx512
#endif
