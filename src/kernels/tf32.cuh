// Products of floats on the matrix unit, nearly as exact as in float: three TF32 products for one
// (sm_80 and later).
//
// A number becomes hi + lo, hi with TF32's 11 bits and lo = x - hi, exact. The instruction looks at
// the upper 19 bits of an operand, so it takes hi as it is and cuts lo to 11 bits. The sum of
// lo * hi, hi * lo and hi * hi leaves out lo * lo. Numbers of a are rounded, |lo| <= 2^-11 |a|,
// those of b cut, |lo| <= 2^-10 |b|, which is an operation less where there are most of them;
// cutting lo loses at most 2^-10 of it. So a product is off by at most (2^-21 + 2^-20 + 2^-21) |a
// b| = 1.9e-6, and on average by less than 2^-22, as the signs of lo in a are those of a coin.
// Products of hi and lo are exact: 22 bits. What an instruction adds to its sum it may cut to a
// float instead of rounding it: 2^-23 of the sum each, with chains of 30 instructions (scores) and
// 12 (values).
//
// A row of the result depends on its own row of a and on b, on no other row: rows are invariant as
// long as the instructions and their order are.
#pragma once

#include "kernels/common.cuh"

namespace spk::gpu {

// c += a b: a is 16 x 8, b 8 x 8, spread over the lanes as PTX says of mma.m16n8k8: of lane
// (g, j) = (lane / 4, lane % 4) a has (g, j), (g + 8, j), (g, j + 4), (g + 8, j + 4), b has (j, g)
// and (j + 4, g), c has (g, 2 j), (g, 2 j + 1), (g + 8, 2 j), (g + 8, 2 j + 1).
SPK_DEVICE void multiply_tf32(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if defined(__CUDA_ARCH__)
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  emulated_multiply_tf32(c, a, b0, b1);
#endif
}

// What is no number stays none, by way of lo.
SPK_DEVICE void split_rounded(float x, unsigned& hi, unsigned& lo) {
  hi = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
  lo = __float_as_uint(x - __uint_as_float(hi));
}
SPK_DEVICE void split_cut(float x, unsigned& hi, unsigned& lo) {
  hi = __float_as_uint(x) & 0xffffe000u;
  lo = __float_as_uint(x - __uint_as_float(hi));
}

// Two rows of a, g and g + 8, as a lane has them: two numbers along the sum of each. The order
// along it is free as long as a and b agree, so a lane takes neighbours: four of them are one load
// of 16 bytes, two for one instruction and two for the next.
struct SplitRows {
  unsigned hi[4], lo[4];

  SPK_DEVICE SplitRows(float upper0, float upper1, float lower0, float lower1) {
    split_rounded(upper0, hi[0], lo[0]);
    split_rounded(lower0, hi[1], lo[1]);
    split_rounded(upper1, hi[2], lo[2]);
    split_rounded(lower1, hi[3], lo[3]);
  }
};
// c += a b, the small products first.
SPK_DEVICE void multiply_split(float (&c)[4], const SplitRows& a, float b0, float b1) {
  unsigned hi[2], lo[2];
  split_cut(b0, hi[0], lo[0]);
  split_cut(b1, hi[1], lo[1]);
  multiply_tf32(c, a.lo, hi[0], hi[1]);
  multiply_tf32(c, a.hi, lo[0], lo[1]);
  multiply_tf32(c, a.hi, hi[0], hi[1]);
}

}  // namespace spk::gpu
