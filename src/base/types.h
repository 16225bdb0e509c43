// Scalar formats of weights and their conversions to float, as tables or bit operations.
//
// Owns what one stored number means; blocks, groups and scales belong to formats/quant.h.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace spk {

// BF16: upper half of a float.
inline float bf16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
// Round to nearest even; NaN stays NaN.
inline uint16_t float_to_bf16(float value) {
  uint32_t u = std::bit_cast<uint32_t>(value);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

// IEEE binary16.
inline float fp16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 31u;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 31u) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0u) {  // zero and subnormals: mantissa * 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

// FP8 E4M3 (OCP, "fn": no infinities, 0x7f and 0xff are NaN). Exponent bias 7.
inline float e4m3_to_float(uint8_t bits) {
  const int exponent = (bits >> 3) & 15;
  const int mantissa = bits & 7;
  float magnitude;
  if (exponent == 15 && mantissa == 7) {
    magnitude = std::bit_cast<float>(0x7fc00000u);
  } else if (exponent == 0) {
    magnitude = static_cast<float>(mantissa) * 0x1p-9f;
  } else {
    magnitude = std::bit_cast<float>(static_cast<uint32_t>(exponent + 120) << 23 |
                                     static_cast<uint32_t>(mantissa) << 20);
  }
  return (bits & 0x80u) ? -magnitude : magnitude;
}
// Round to nearest even, saturating at 448; NaN gives 0x7f.
uint8_t float_to_e4m3(float value);

// E8M0: a power of two, 2^(code - 127). 255 is NaN in the OCP format and refused by the loaders.
inline float e8m0_to_float(uint8_t code) {
  if (code == 255) return std::bit_cast<float>(0x7fc00000u);
  if (code == 0) return 0x1p-127f;
  return std::bit_cast<float>(static_cast<uint32_t>(code) << 23);
}

// FP4 E2M1: sign in bit 3.
inline constexpr float kE2m1[16] = {0.f,  .5f,  1.f,  1.5f,  2.f,  3.f,  4.f,  6.f,
                                    -0.f, -.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f};
// Nearest code, ties to the even code.
uint8_t float_to_e2m1(float value);

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

}  // namespace spk
