#include "base/types.h"

namespace spk {

uint8_t float_to_e4m3(float value) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return 0x7f;
  const float a = std::fabs(value);
  if (a >= 464.f)
    return sign | 0x7e;  // 448 is the largest; 464 is half way to the NaN code's value
  if (a < 0x1p-6f) {     // subnormal: steps of 2^-9; 8 steps are the smallest normal
    return static_cast<uint8_t>(sign | static_cast<int>(std::nearbyint(a * 0x1p9f)));
  }
  int exponent;
  const float fraction =
      std::frexp(a, &exponent);  // a = fraction * 2^exponent, fraction in [.5, 1)
  int mantissa = static_cast<int>(std::nearbyint(fraction * 16.f)) - 8;
  if (mantissa == 8) {
    mantissa = 0;
    ++exponent;
  }
  const int code = ((exponent + 6) << 3) | mantissa;
  return static_cast<uint8_t>(sign | (code > 0x7e ? 0x7e : code));
}

uint8_t float_to_e2m1(float value) {
  const uint8_t sign = std::signbit(value) ? 8 : 0;
  const float a = std::fabs(value);
  // Midpoints between neighbours; on a midpoint the even code wins (0, 2, 4, 6).
  constexpr float kMid[7] = {.25f, .75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.f};
  uint8_t code = 0;
  while (code < 7 && (a > kMid[code] || (a == kMid[code] && (code & 1)))) ++code;
  return sign | code;
}

}  // namespace spk
