// Lanes of the packed products in portable C++. Also what loops_packed.h means when nobody has
// chosen an instruction set.
#pragma once

#include "backend/cpu/packed.h"

namespace spk::cpu::packed_portable {

struct Lanes {
  static constexpr int kLanes = 4;
  static constexpr int kMostRows = 4;
  struct F {
    float v[kLanes];
  };
  struct Bytes {
    int8_t v[4 * kLanes];
  };
  struct Codes {
    Bytes low, high;
    explicit Codes(const uint8_t* p) {
      constexpr int8_t kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
      for (int i = 0; i < 4 * kLanes; ++i) {
        low.v[i] = kDoubled[p[i] & 15];
        high.v[i] = kDoubled[p[i] >> 4];
      }
    }
  };
  struct Sum {
    int32_t v[kLanes];
    void start(const int32_t*) {
      for (int32_t& s : v) s = 0;
    }
    void add(const Bytes& w, const int8_t* x) {
      for (int r = 0; r < kLanes; ++r)
        for (int j = 0; j < 4; ++j) v[r] += w.v[4 * r + j] * x[j];
    }
    void fold() {}
    F get() const {
      F f;
      for (int r = 0; r < kLanes; ++r) f.v[r] = static_cast<float>(v[r]);
      return f;
    }
  };
  static F zero() { return {}; }
  static F set1(const float* x) { return {{*x, *x, *x, *x}}; }
  static F mul(F a, F b) {
    for (int i = 0; i < kLanes; ++i) a.v[i] *= b.v[i];
    return a;
  }
  static F fma(F a, F b, F c) {
    for (int i = 0; i < kLanes; ++i) c.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
    return c;
  }
  static F e8m0(const uint8_t* codes) {
    F f;
    for (int i = 0; i < kLanes; ++i)
      f.v[i] = __builtin_bit_cast(float, codes[i] ? uint32_t{codes[i]} << 23 : 1u << 22);
    return f;
  }
  static void store(float* p, F a) { __builtin_memcpy(p, a.v, sizeof a.v); }
};

}  // namespace spk::cpu::packed_portable
