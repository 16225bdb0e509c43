// Sixteen float lanes on AVX2 with FMA and F16C: two registers. See simd.h for the contract of each
// function.
#pragma once

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace spk::cpu::avx2 {

struct V16 {
  __m256 lo, hi;
};

inline constexpr int kWideRegisters = 0;  // 16 registers: tiles of 2 x 2 accumulators

inline V16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline V16 set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline V16 load(const void* p) {
  const auto* f = static_cast<const float*>(p);
  return {_mm256_loadu_ps(f), _mm256_loadu_ps(f + 8)};
}
inline void store(float* p, V16 a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
inline V16 load_part(const void* p, int64_t n) {
  float part[16] = {};
  std::memcpy(part, p, static_cast<size_t>(n) * sizeof(float));
  return load(part);
}
inline void store_part(float* p, V16 a, int64_t n) {
  float part[16];
  store(part, a);
  std::memcpy(p, part, static_cast<size_t>(n) * sizeof(float));
}
inline V16 add(V16 a, V16 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline V16 sub(V16 a, V16 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline V16 mul(V16 a, V16 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline V16 div(V16 a, V16 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline V16 lower(V16 a, V16 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
inline V16 higher(V16 a, V16 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline V16 fma(V16 a, V16 b, V16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline V16 fnma(V16 a, V16 b, V16 c) {
  return {_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}
inline __m256 shift_exponent8(__m256 a, __m256 t) {
  const __m256i n = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), n));
}
inline V16 shift_exponent(V16 a, V16 t) {
  return {shift_exponent8(a.lo, t.lo), shift_exponent8(a.hi, t.hi)};
}
inline V16 zero_below(V16 x, float limit, V16 a) {
  const __m256 l = _mm256_set1_ps(limit);
  return {_mm256_and_ps(_mm256_cmp_ps(x.lo, l, _CMP_NLT_UQ), a.lo),
          _mm256_and_ps(_mm256_cmp_ps(x.hi, l, _CMP_NLT_UQ), a.hi)};
}

inline float reduce(V16 a) {
  const __m256 s8 = _mm256_add_ps(a.lo, a.hi);
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

// The four additions of reduce() for four accumulators at once.
inline __m128 fold4(V16 a, V16 b, V16 c, V16 d) {
  const __m256 a8 = _mm256_add_ps(a.lo, a.hi), b8 = _mm256_add_ps(b.lo, b.hi);
  const __m256 c8 = _mm256_add_ps(c.lo, c.hi), d8 = _mm256_add_ps(d.lo, d.hi);
  const __m256 ab =
      _mm256_add_ps(_mm256_permute2f128_ps(a8, b8, 0x20), _mm256_permute2f128_ps(a8, b8, 0x31));
  const __m256 cd =
      _mm256_add_ps(_mm256_permute2f128_ps(c8, d8, 0x20), _mm256_permute2f128_ps(c8, d8, 0x31));
  const __m256d abd = _mm256_castps_pd(ab), cdd = _mm256_castps_pd(cd);
  const __m256 two = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(abd, cdd)),
                                   _mm256_castpd_ps(_mm256_unpackhi_pd(abd, cdd)));
  const __m256 one = _mm256_hadd_ps(two, two);  // [a c a c | b d b d]
  return _mm_unpacklo_ps(_mm256_castps256_ps128(one), _mm256_extractf128_ps(one, 1));
}
inline void reduce4(const V16* a, float* out) { _mm_storeu_ps(out, fold4(a[0], a[1], a[2], a[3])); }
inline void reduce4x4(const V16* a, float* const* out, int64_t at) {
  for (int64_t j = 0; j < 4; ++j)
    _mm_storeu_ps(out[j] + at, fold4(a[j], a[4 + j], a[8 + j], a[12 + j]));
}

inline __m256 bf16_8(const uint8_t* p) {
  const __m128i raw = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(raw), 16));
}
// to[j][i] = from[i * stride + j], 8 x 8, rows of to 16 apart
inline void transpose8(const float* from, int64_t stride, float* to) {
  __m256 half[2][4];  // [four rows][column of each 128 bits]
  for (int g = 0; g < 2; ++g) {
    const float* p = from + 4 * g * stride;
    const __m256 r0 = _mm256_loadu_ps(p), r1 = _mm256_loadu_ps(p + stride);
    const __m256 r2 = _mm256_loadu_ps(p + 2 * stride), r3 = _mm256_loadu_ps(p + 3 * stride);
    const __m256d a = _mm256_castps_pd(_mm256_unpacklo_ps(r0, r1));
    const __m256d b = _mm256_castps_pd(_mm256_unpacklo_ps(r2, r3));
    const __m256d c = _mm256_castps_pd(_mm256_unpackhi_ps(r0, r1));
    const __m256d d = _mm256_castps_pd(_mm256_unpackhi_ps(r2, r3));
    half[g][0] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
    half[g][1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
    half[g][2] = _mm256_castpd_ps(_mm256_unpacklo_pd(c, d));
    half[g][3] = _mm256_castpd_ps(_mm256_unpackhi_pd(c, d));
  }
  for (int c = 0; c < 4; ++c) {
    _mm256_storeu_ps(to + 16 * c, _mm256_permute2f128_ps(half[0][c], half[1][c], 0x20));
    _mm256_storeu_ps(to + 16 * (c + 4), _mm256_permute2f128_ps(half[0][c], half[1][c], 0x31));
  }
}
inline void transpose16(const float* from, int64_t stride, float* to) {
  for (int i = 0; i < 16; i += 8)
    for (int j = 0; j < 16; j += 8) transpose8(from + i * stride + j, stride, to + 16 * j + i);
}

inline void bf16_32(const uint8_t* p, V16& a, V16& b) {
  a = {bf16_8(p), bf16_8(p + 16)};
  b = {bf16_8(p + 32), bf16_8(p + 48)};
}

inline V16 e4m3_16(const uint8_t* p) {
  const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i half =
      _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(-0x4001));  // 0xbfff
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(half)),
          _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1))};
}
inline void e4m3_32(const uint8_t* p, V16& a, V16& b) {
  a = e4m3_16(p);
  b = e4m3_16(p + 16);
}

// The sixteen values of a 4-bit code as upper bytes of fp16 (their lower bytes are zero), looked up
// by byte shuffles.
struct Nibbles {
  __m128i table;
  explicit Nibbles(const float*, const uint8_t* half_bytes)
      : table(_mm_loadu_si128(reinterpret_cast<const __m128i*>(half_bytes))) {}
  void get32(const uint8_t* p, float scale, V16& a, V16& b) const {
    const __m128i raw = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m128i mask = _mm_set1_epi8(15);
    const __m128i even = _mm_shuffle_epi8(table, _mm_and_si128(raw, mask));
    const __m128i odd = _mm_shuffle_epi8(table, _mm_and_si128(_mm_srli_epi16(raw, 4), mask));
    const __m256 s = _mm256_set1_ps(scale);
    a = widen(_mm_unpacklo_epi8(even, odd), s);
    b = widen(_mm_unpackhi_epi8(even, odd), s);
  }
  static V16 widen(__m128i bytes, __m256 scale) {
    const __m128i z = _mm_setzero_si128();
    return {_mm256_mul_ps(_mm256_cvtph_ps(_mm_unpacklo_epi8(z, bytes)), scale),
            _mm256_mul_ps(_mm256_cvtph_ps(_mm_unpackhi_epi8(z, bytes)), scale)};
  }
};

}  // namespace spk::cpu::avx2
#endif
