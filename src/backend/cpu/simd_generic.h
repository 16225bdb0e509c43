// Sixteen float lanes in portable C++: the base for any processor and the test partner of the
// others. See simd.h for the contract of each function.
#pragma once

#include <cstdint>
#include <cstring>

namespace spk::cpu::generic {

struct V16 {
  float v[16];
};

inline constexpr int kWideRegisters = 0;

template <typename F>
inline V16 map(F&& f) {
  V16 r;
  for (int i = 0; i < 16; ++i) r.v[i] = f(i);
  return r;
}
inline V16 zero() { return {}; }
inline V16 set1(float x) {
  return map([&](int) { return x; });
}
inline V16 load(const void* p) {
  V16 r;
  std::memcpy(r.v, p, sizeof r.v);
  return r;
}
inline void store(float* p, V16 a) { std::memcpy(p, a.v, sizeof a.v); }
inline V16 load_part(const void* p, int64_t n) {
  V16 r = {};
  std::memcpy(r.v, p, static_cast<size_t>(n) * sizeof(float));
  return r;
}
inline void store_part(float* p, V16 a, int64_t n) {
  std::memcpy(p, a.v, static_cast<size_t>(n) * sizeof(float));
}
inline V16 add(V16 a, V16 b) {
  return map([&](int i) { return a.v[i] + b.v[i]; });
}
inline V16 sub(V16 a, V16 b) {
  return map([&](int i) { return a.v[i] - b.v[i]; });
}
inline V16 mul(V16 a, V16 b) {
  return map([&](int i) { return a.v[i] * b.v[i]; });
}
inline V16 div(V16 a, V16 b) {
  return map([&](int i) { return a.v[i] / b.v[i]; });
}
inline V16 lower(V16 a, V16 b) {
  return map([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline V16 higher(V16 a, V16 b) {
  return map([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}

// a * b + c rounded once, without an instruction for it: the product of two floats is exact in
// double; the sum is rounded to odd (when it is inexact, the last bit is set), and from a 53-bit
// value rounded to odd the step to 24 bits gives the right float. A library call would cost five
// times as much where the processor lacks the instruction.
inline float fma1(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
  return __builtin_fmaf(a, b, c);
#else
  const double p = static_cast<double>(a) * static_cast<double>(b);
  const auto q = static_cast<double>(c);
  double s = p + q;
  const double t = s - p;
  const double error = (p - (s - t)) + (q - t);
  if (error > 0 || error < 0) {
    uint64_t bits;
    std::memcpy(&bits, &s, sizeof bits);
    if ((bits & 1u) == 0) bits += (error > 0) == (s > 0) ? 1u : ~uint64_t{0};
    std::memcpy(&s, &bits, sizeof bits);
  }
  return static_cast<float>(s);
#endif
}
inline V16 fma(V16 a, V16 b, V16 c) {
  return map([&](int i) { return fma1(a.v[i], b.v[i], c.v[i]); });
}
inline V16 fnma(V16 a, V16 b, V16 c) {
  return map([&](int i) { return fma1(-a.v[i], b.v[i], c.v[i]); });
}
inline V16 shift_exponent(V16 a, V16 t) {
  uint32_t x[16], n[16];
  std::memcpy(x, a.v, sizeof x);
  std::memcpy(n, t.v, sizeof n);
  for (int i = 0; i < 16; ++i) x[i] += n[i] << 23;
  std::memcpy(a.v, x, sizeof x);
  return a;
}
inline V16 zero_below(V16 x, float limit, V16 a) {
  return map([&](int i) { return x.v[i] < limit ? 0.f : a.v[i]; });
}

inline float reduce(V16 a) {
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) a.v[i] += a.v[i + half];
  return a.v[0];
}
inline void reduce4(const V16* a, float* out) {
  for (int i = 0; i < 4; ++i) out[i] = reduce(a[i]);
}
inline void reduce4x4(const V16* a, float* const* out, int64_t at) {
  for (int64_t j = 0; j < 4; ++j)
    for (int64_t i = 0; i < 4; ++i) out[j][at + i] = reduce(a[4 * i + j]);
}

inline float from_bits(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}
inline float bf16(const uint8_t* p) {
  return from_bits(static_cast<uint32_t>(p[0]) << 16 | static_cast<uint32_t>(p[1]) << 24);
}
// to[j][i] = from[i * stride + j], 16 x 16
inline void transpose16(const float* from, int64_t stride, float* to) {
  for (int j = 0; j < 16; ++j)
    for (int i = 0; i < 16; ++i) to[16 * j + i] = from[i * stride + j];
}

inline void bf16_32(const uint8_t* p, V16& a, V16& b) {
  a = map([&](int i) { return bf16(p + 2 * i); });
  b = map([&](int i) { return bf16(p + 32 + 2 * i); });
}

// E4M3 times 2^-8. Its exponent and mantissa as a float's (bias 127 for 7, so 2^-120 too small):
// subnormals come out right by the multiplication, as the bits are those of a subnormal float.
inline float e4m3(uint8_t code) {
  const float magnitude = from_bits(static_cast<uint32_t>(code & 0x7fu) << 20) * 0x1p112f;
  return (code & 0x80u) ? -magnitude : magnitude;
}
inline void e4m3_32(const uint8_t* p, V16& a, V16& b) {
  a = map([&](int i) { return e4m3(p[i]); });
  b = map([&](int i) { return e4m3(p[16 + i]); });
}

struct Nibbles {
  const float* table;
  explicit Nibbles(const float* values, const uint8_t*) : table(values) {}
  void get32(const uint8_t* p, float scale, V16& a, V16& b) const {
    a = map([&](int i) { return table[(p[i / 2] >> (4 * (i % 2))) & 15] * scale; });
    b = map([&](int i) { return table[(p[8 + i / 2] >> (4 * (i % 2))) & 15] * scale; });
  }
};

}  // namespace spk::cpu::generic
