// The matrix unit on the host: mma.m16n8k16 of halves and mma.m16n8k8 of TF32 with sums of floats,
// and rounding to halves.
// Included behind emulator.h, before the kernels.
#pragma once

#include "support/emulator.h"

namespace spk::gpu {

// Rounded to even, with subnormals; what is too large becomes infinite.
inline unsigned emulated_half(float x) {
  const unsigned bits = __float_as_uint(x), sign = bits >> 16 & 0x8000u;
  const unsigned size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return sign | 0x7e00u;
  const float magnitude = __uint_as_float(size);
  if (magnitude >= 65520.f) return sign | 0x7c00u;
  // Below the normal halves all steps are 2^-24: an addition of 2^-1 leaves them in the low bits.
  if (magnitude < 0x1p-14f) return sign | (__float_as_uint(magnitude + .5f) - 0x3f000000u);
  return sign | (((size + 0xfffu + (size >> 13 & 1u)) >> 13) - (112u << 10));
}
inline float emulated_float(unsigned half) {
  const unsigned size = half & 0x7fffu;
  const float magnitude = size >= 0x7c00u ? __uint_as_float(size << 13 | 0x7f800000u)
                                          : __uint_as_float(size << 13) * 0x1p112f;
  return (half & 0x8000u) != 0 ? -magnitude : magnitude;
}

// A lane's operands as floats; of two calls in turns, so that one meeting of the warp is enough.
struct EmulatedTile {
  float a[32][8], b[32][4];
};
inline void emulated_multiply_tiles(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                    unsigned b1) {
  static EmulatedTile tiles[32][2];
  static unsigned char turns[32][32];
  const unsigned warp = emu::current->thread.x / 32;
  const int lane = emu::lane();
  EmulatedTile& t = tiles[warp][turns[warp][lane] ^= 1];
  const unsigned b[2] = {b0, b1};
  for (int k = 0; k < 4; ++k) {
    t.a[lane][2 * k] = emulated_float(a[k] & 0xffffu);
    t.a[lane][2 * k + 1] = emulated_float(a[k] >> 16);
  }
  for (int k = 0; k < 2; ++k) {
    t.b[lane][2 * k] = emulated_float(b[k] & 0xffffu);
    t.b[lane][2 * k + 1] = emulated_float(b[k] >> 16);
  }
  emu::exchange(0);
  const int row = lane / 4 * 4, column = lane % 4 * 8;  // the first lanes that hold them
  for (int k = 0; k < 16; ++k) {
    const int quarter = k % 8 / 2, at = k / 8 * 4 + k % 2;  // a: two numbers each of (row, row + 8)
    const float upper = t.a[row + quarter][at], lower = t.a[row + quarter][at + 2];
    const int in = k / 8 * 2 + k % 2;
    const float even = t.b[column + quarter][in], odd = t.b[column + 4 + quarter][in];
    c[0] = fmaf(upper, even, c[0]);
    c[1] = fmaf(upper, odd, c[1]);
    c[2] = fmaf(lower, even, c[2]);
    c[3] = fmaf(lower, odd, c[3]);
  }
}

struct EmulatedTf32 {
  float a[32][4], b[32][2];
};
// Of an operand the unit takes the upper 19 bits.
inline void emulated_multiply_tf32(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                   unsigned b1) {
  static EmulatedTf32 tiles[32][2];
  static unsigned char turns[32][32];
  const unsigned warp = emu::current->thread.x / 32;
  const int lane = emu::lane();
  EmulatedTf32& t = tiles[warp][turns[warp][lane] ^= 1];
  for (int k = 0; k < 4; ++k) t.a[lane][k] = __uint_as_float(a[k] & 0xffffe000u);
  t.b[lane][0] = __uint_as_float(b0 & 0xffffe000u);
  t.b[lane][1] = __uint_as_float(b1 & 0xffffe000u);
  emu::exchange(0);
  const int row = lane / 4 * 4, column = lane % 4 * 8;  // the first lanes that hold them
  for (int k = 0; k < 8; ++k) {
    const float* from = t.a[row + k % 4] + k / 4 * 2;  // of (row, row + 8)
    const float even = t.b[column + k % 4][k / 4], odd = t.b[column + 4 + k % 4][k / 4];
    c[0] = fmaf(from[0], even, c[0]);
    c[1] = fmaf(from[0], odd, c[1]);
    c[2] = fmaf(from[1], even, c[2]);
    c[3] = fmaf(from[1], odd, c[3]);
  }
}

}  // namespace spk::gpu
