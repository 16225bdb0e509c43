// exp, sigmoid and SiLU over V16: one polynomial, the same bits on every instruction set.
#pragma once

#include "backend/cpu/simd.h"

namespace spk::cpu::SPK_ISA {

// exp(x) = 2^n * exp(r), n = round(x / ln 2), |r| <= ln(2) / 2 = 0.3466.
// Taylor to r^7: the first term left out is 0.3466^8 / 8! = 5.2e-9, a tenth of half an ulp.
// Measured over all floats of
// [-86, 88]: at most 1.0 ulp. ln 2 is split so that n * kLn2High is exact for |n| < 2^8 (15 bits +
// 8 bits <= 24). Below -86, where 2^n would leave the normal floats, the result is 0; above 88 it
// stays exp(88) = 1.7e38, finite.
inline constexpr float kExpLowest = -86.f;
inline constexpr float kExpHighest = 88.f;
inline constexpr float kLog2e = 1.44269504f;
inline constexpr float kLn2High = 0x1.62e4p-1f;
inline constexpr float kLn2Low = 0x1.7f7d1cp-20f;
inline constexpr float kRound =
    0x1.8p23f;  // adding it rounds to an integer, which then sits in the low bits

inline V16 exp16(V16 argument) {
  const V16 x = lower(higher(argument, set1(kExpLowest)), set1(kExpHighest));
  const V16 shifted = fma(x, set1(kLog2e), set1(kRound));
  const V16 n = sub(shifted, set1(kRound));
  V16 r = fnma(n, set1(kLn2High), x);
  r = fnma(n, set1(kLn2Low), r);
  V16 p = fma(r, set1(1.f / 5040), set1(1.f / 720));
  p = fma(p, r, set1(1.f / 120));
  p = fma(p, r, set1(1.f / 24));
  p = fma(p, r, set1(1.f / 6));
  p = fma(p, r, set1(1.f / 2));
  p = fma(p, r, set1(1.f));
  p = fma(p, r, set1(1.f));
  return zero_below(argument, kExpLowest, shift_exponent(p, shifted));
}

inline V16 sigmoid16(V16 x) {
  const V16 one = set1(1.f);
  return div(one, add(one, exp16(sub(zero(), x))));
}

inline V16 silu16(V16 x) { return div(x, add(set1(1.f), exp16(sub(zero(), x)))); }

// f(index, full) over [0, n) in steps of 16; the last call may cover fewer elements.
template <typename F>
inline void for_lanes(int64_t n, F&& f) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) f(i, int64_t{16});
  if (i < n) f(i, n - i);
}
inline V16 get(const float* p, int64_t n) { return n == 16 ? load(p) : load_part(p, n); }
inline void put(float* p, V16 a, int64_t n) { n == 16 ? store(p, a) : store_part(p, a, n); }

}  // namespace spk::cpu::SPK_ISA
