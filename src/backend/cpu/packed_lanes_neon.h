// Lanes of the packed products on 64-bit Arm: four rows of a tile at a time. Compiled by
// packed_neon.cc and packed_neondot.cc, each with its own target flags and so its own namespace.
// Both sides of a product are signed here, so no offset is needed; the sums are the same integers.
#pragma once

#include "backend/cpu/packed.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#if defined(__ARM_FEATURE_DOTPROD)
namespace spk::cpu::packed_neon_dot {
#else
namespace spk::cpu::packed_neon_base {
#endif

struct Lanes {
  static constexpr int kLanes = 4;
  static constexpr int kMostRows = 8;  // 8 totals, 8 sums, 2 registers of codes: 18 of 32
  using F = float32x4_t;
  struct Codes {
    int8x16_t low, high;
    explicit Codes(const uint8_t* p) {
      alignas(16) static constexpr int8_t kDoubled[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                          0, -1, -2, -3, -4, -6, -8, -12};
      const int8x16_t table = vld1q_s8(kDoubled);
      const uint8x16_t raw = vld1q_u8(p);
      low = vqtbl1q_s8(table, vandq_u8(raw, vdupq_n_u8(15)));
      high = vqtbl1q_s8(table, vshrq_n_u8(raw, 4));
    }
  };
  static int8x16_t four(const int8_t* x) {
    int32_t word;
    __builtin_memcpy(&word, x, sizeof word);
    return vreinterpretq_s8_s32(vdupq_n_s32(word));
  }
#if defined(__ARM_FEATURE_DOTPROD)
  struct Sum {
    int32x4_t v;
    void start(const int32_t*) { v = vdupq_n_s32(0); }
    void add(int8x16_t w, const int8_t* x) { v = vdotq_s32(v, w, four(x)); }
    void fold() {}
    F get() const { return vcvtq_f32_s32(v); }
  };
#else
  // Pairs of products in 16 bits: at most 4 * 2 * 12 * 127 = 12,192 between two folds.
  struct Sum {
    int32x4_t v;
    int16x8_t pairs;
    void start(const int32_t*) {
      v = vdupq_n_s32(0);
      pairs = vdupq_n_s16(0);
    }
    void add(int8x16_t w, const int8_t* x) {
      const int8x16_t f = four(x);
      const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(f));
      pairs = vaddq_s16(pairs, vpaddq_s16(low, vmull_high_s8(w, f)));
    }
    void fold() {
      v = vpadalq_s16(v, pairs);
      pairs = vdupq_n_s16(0);
    }
    F get() const { return vcvtq_f32_s32(v); }
  };
#endif
  static F zero() { return vdupq_n_f32(0); }
  static F set1(const float* x) { return vdupq_n_f32(*x); }
  static F mul(F a, F b) { return vmulq_f32(a, b); }
  static F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  static F e8m0(const uint8_t* codes) {
    const uint32x4_t wide = {codes[0], codes[1], codes[2], codes[3]};
    // Code 0 is the subnormal 2^-127, bits 1 << 22.
    return vreinterpretq_f32_u32(vmaxq_u32(vshlq_n_u32(wide, 23), vdupq_n_u32(1u << 22)));
  }
  static void store(float* p, F a) { vst1q_f32(p, a); }
};

}  // namespace
#endif
