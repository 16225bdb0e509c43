// Sixteen float lanes on 64-bit Arm: four registers. See simd.h for the contract of each function.
#pragma once

#if defined(__aarch64__)
#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace spk::cpu::neon {

struct V16 {
  float32x4_t v[4];
};

inline constexpr int kWideRegisters = 0;  // 32 registers of 4 lanes: tiles of 2 x 2 accumulators

inline V16 zero() {
  const float32x4_t z = vdupq_n_f32(0);
  return {{z, z, z, z}};
}
inline V16 set1(float x) {
  const float32x4_t s = vdupq_n_f32(x);
  return {{s, s, s, s}};
}
inline V16 load(const void* p) {
  const auto* b = static_cast<const uint8_t*>(p);  // bytes: any alignment
  return {{vreinterpretq_f32_u8(vld1q_u8(b)), vreinterpretq_f32_u8(vld1q_u8(b + 16)),
           vreinterpretq_f32_u8(vld1q_u8(b + 32)), vreinterpretq_f32_u8(vld1q_u8(b + 48))}};
}
inline void store(float* p, V16 a) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, a.v[i]);
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
template <typename F>
inline V16 map(F&& f) {
  return {{f(0), f(1), f(2), f(3)}};
}
inline V16 add(V16 a, V16 b) {
  return map([&](int i) { return vaddq_f32(a.v[i], b.v[i]); });
}
inline V16 sub(V16 a, V16 b) {
  return map([&](int i) { return vsubq_f32(a.v[i], b.v[i]); });
}
inline V16 mul(V16 a, V16 b) {
  return map([&](int i) { return vmulq_f32(a.v[i], b.v[i]); });
}
inline V16 div(V16 a, V16 b) {
  return map([&](int i) { return vdivq_f32(a.v[i], b.v[i]); });
}
// x86 rule for min and max: the second operand when they are not ordered.
inline V16 lower(V16 a, V16 b) {
  return map([&](int i) { return vbslq_f32(vcltq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]); });
}
inline V16 higher(V16 a, V16 b) {
  return map([&](int i) { return vbslq_f32(vcgtq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]); });
}
inline V16 fma(V16 a, V16 b, V16 c) {
  return map([&](int i) { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
}
inline V16 fnma(V16 a, V16 b, V16 c) {
  return map([&](int i) { return vfmsq_f32(c.v[i], a.v[i], b.v[i]); });
}
inline V16 shift_exponent(V16 a, V16 t) {
  return map([&](int i) {
    const int32x4_t n = vshlq_n_s32(vreinterpretq_s32_f32(t.v[i]), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(a.v[i]), n));
  });
}
inline V16 zero_below(V16 x, float limit, V16 a) {
  return map([&](int i) {
    const uint32x4_t below = vcltq_f32(x.v[i], vdupq_n_f32(limit));
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(a.v[i]), below));
  });
}

inline float reduce(V16 a) {
  const float32x4_t s4 = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
  const float32x2_t s2 = vadd_f32(vget_low_f32(s4), vget_high_f32(s4));
  return vget_lane_f32(s2, 0) + vget_lane_f32(s2, 1);
}
inline void reduce4(const V16* a, float* out) {
  for (int i = 0; i < 4; ++i) out[i] = reduce(a[i]);
}
inline void reduce4x4(const V16* a, float* const* out, int64_t at) {
  for (int64_t j = 0; j < 4; ++j)
    for (int64_t i = 0; i < 4; ++i) out[j][at + i] = reduce(a[4 * i + j]);
}

inline V16 bf16_16(const uint8_t* p) {
  const uint16x8_t x = vreinterpretq_u16_u8(vld1q_u8(p));
  const uint16x8_t y = vreinterpretq_u16_u8(vld1q_u8(p + 16));
  return {{vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(x), 16)),
           vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(x), 16)),
           vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(y), 16)),
           vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(y), 16))}};
}
// to[j][i] = from[i * stride + j], 16 x 16, in blocks of 4 x 4
inline void transpose16(const float* from, int64_t stride, float* to) {
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 16; j += 4) {
      const float* p = from + i * stride + j;
      const float32x4_t r0 = vld1q_f32(p), r1 = vld1q_f32(p + stride);
      const float32x4_t r2 = vld1q_f32(p + 2 * stride), r3 = vld1q_f32(p + 3 * stride);
      const float64x2_t even01 = vreinterpretq_f64_f32(vtrn1q_f32(r0, r1));
      const float64x2_t even23 = vreinterpretq_f64_f32(vtrn1q_f32(r2, r3));
      const float64x2_t odd01 = vreinterpretq_f64_f32(vtrn2q_f32(r0, r1));
      const float64x2_t odd23 = vreinterpretq_f64_f32(vtrn2q_f32(r2, r3));
      float* q = to + 16 * j + i;
      vst1q_f32(q, vreinterpretq_f32_f64(vtrn1q_f64(even01, even23)));
      vst1q_f32(q + 16, vreinterpretq_f32_f64(vtrn1q_f64(odd01, odd23)));
      vst1q_f32(q + 32, vreinterpretq_f32_f64(vtrn2q_f64(even01, even23)));
      vst1q_f32(q + 48, vreinterpretq_f32_f64(vtrn2q_f64(odd01, odd23)));
    }
}

inline void bf16_32(const uint8_t* p, V16& a, V16& b) {
  a = bf16_16(p);
  b = bf16_16(p + 32);
}

inline V16 halves(uint16x8_t x, uint16x8_t y) {
  const float16x8_t p = vreinterpretq_f16_u16(x), q = vreinterpretq_f16_u16(y);
  return {{vcvt_f32_f16(vget_low_f16(p)), vcvt_high_f32_f16(p), vcvt_f32_f16(vget_low_f16(q)),
           vcvt_high_f32_f16(q)}};
}
inline V16 e4m3_16(const uint8_t* p) {
  const int8x16_t raw = vreinterpretq_s8_u8(vld1q_u8(p));
  const uint16x8_t mask = vdupq_n_u16(0xbfff);
  const uint16x8_t x = vreinterpretq_u16_s16(vshlq_n_s16(vmovl_s8(vget_low_s8(raw)), 7));
  const uint16x8_t y = vreinterpretq_u16_s16(vshlq_n_s16(vmovl_high_s8(raw), 7));
  return halves(vandq_u16(x, mask), vandq_u16(y, mask));
}
inline void e4m3_32(const uint8_t* p, V16& a, V16& b) {
  a = e4m3_16(p);
  b = e4m3_16(p + 16);
}

// The sixteen values of a 4-bit code as upper bytes of fp16 (their lower bytes are zero), looked up
// by byte tables.
struct Nibbles {
  uint8x16_t table;
  explicit Nibbles(const float*, const uint8_t* half_bytes) : table(vld1q_u8(half_bytes)) {}
  void get32(const uint8_t* p, float scale, V16& a, V16& b) const {
    const uint8x16_t raw = vld1q_u8(p);
    const uint8x16_t even = vqtbl1q_u8(table, vandq_u8(raw, vdupq_n_u8(15)));
    const uint8x16_t odd = vqtbl1q_u8(table, vshrq_n_u8(raw, 4));
    const V16 s = set1(scale);
    a = mul(widen(vzip1q_u8(even, odd)), s);
    b = mul(widen(vzip2q_u8(even, odd)), s);
  }
  static V16 widen(uint8x16_t bytes) {
    const uint8x16_t z = vdupq_n_u8(0);
    return halves(vreinterpretq_u16_u8(vzip1q_u8(z, bytes)),
                  vreinterpretq_u16_u8(vzip2q_u8(z, bytes)));
  }
};

}  // namespace spk::cpu::neon
#endif
