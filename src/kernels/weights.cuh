// Stored weights as numbers, sixteen bytes of codes at a time: how many numbers they hold, their
// scale, and each number. value = code * scale, rounded once, as formats/quant.h says.
#pragma once

#include "kernels/common.cuh"

namespace spk::gpu {

// Numbers in 16 bytes of codes.
template <int F>
struct Codec {
  static constexpr int kNumbers = F == kF32                   ? 4
                                  : F == kBf16                ? 8
                                  : F == kFp8 || F == kFp8Row ? 16
                                                              : 32;
};

// The scale of the numbers in [col, col + kNumbers): a multiple of kNumbers, so one scale is
// enough.
template <int F>
SPK_DEVICE float scale_of(const Matrix& m, i64 row, int col) {
  if constexpr (F == kFp8) {
    const int blocks = (m.cols + 127) / 128;
    return reinterpret_cast<const float*>(m.scales)[row / 128 * blocks + col / 128];
  } else if constexpr (F == kFp8Row) {
    return reinterpret_cast<const float*>(m.scales)[row];
  } else if constexpr (F == kMxfp4) {
    return e8m0_to_float(m.scales[row * (m.cols / 32) + col / 32]);
  } else if constexpr (F == kInt4) {
    return bf16_to_float(
        reinterpret_cast<const unsigned short*>(m.scales)[row * (m.cols / 32) + col / 32]);
  } else {
    return 1.f;
  }
}

SPK_DEVICE unsigned word_of(const uint4& codes, int word) {
  return word == 0 ? codes.x : word == 1 ? codes.y : word == 2 ? codes.z : codes.w;
}

// ---- whole words ----
// The hardware converts pairs of small floats to halves, exactly; shifts do where it does not.
SPK_DEVICE void halves_to_floats(unsigned halves, float& low, float& high) {
#if defined(__CUDA_ARCH__)
  asm("{.reg .b16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}"
      : "=f"(low), "=f"(high)
      : "r"(halves));
#else
  // Exponent and mantissa put into a float's, 2^112 too small (subnormals included): exact.
  low = __uint_as_float((halves & 0x7fffu) << 13 | (halves & 0x8000u) << 16) * 0x1p112f;
  high = __uint_as_float((halves >> 16 & 0x7fffu) << 13 | (halves & 0x80000000u)) * 0x1p112f;
#endif
}
// Two E4M3 codes in the low 16 bits.
SPK_DEVICE unsigned e4m3_pair_to_halves(unsigned codes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  unsigned halves;
  asm("{.reg .b16 a; cvt.u16.u32 a, %1; cvt.rn.f16x2.e4m3x2 %0, a;}" : "=r"(halves) : "r"(codes));
  return halves;
#else
  // A half has the same layout with one exponent bit more: 2^8 too small.
  const unsigned bytes = (codes & 0xffu) << 8 | (codes & 0xff00u) << 16;
  return (bytes & 0x80008000u) | (bytes >> 1 & 0x3f803f80u);
#endif
}
// A word of four: its lower two and its upper two, without a shift where the hardware converts.
SPK_DEVICE void e4m3_word_to_halves(unsigned word, unsigned& low, unsigned& high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  asm("{.reg .b16 a, b; mov.b32 {a, b}, %2; cvt.rn.f16x2.e4m3x2 %0, a; cvt.rn.f16x2.e4m3x2 %1, b;}"
      : "=r"(low), "=r"(high)
      : "r"(word));
#else
  low = e4m3_pair_to_halves(word & 0xffffu);
  high = e4m3_pair_to_halves(word >> 16);
#endif
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
constexpr float kE4m3Half = 1.f;
#else
constexpr float kE4m3Half = 0x1p8f;
#endif

// The numbers of one word of codes, without their scale; `out` in the order of the columns.
template <int F>
SPK_DEVICE void decode(unsigned word, float (&out)[Codec<F>::kNumbers / 4]) {
  if constexpr (F == kF32) {
    out[0] = __uint_as_float(word);
  } else if constexpr (F == kBf16) {
    out[0] = __uint_as_float(word << 16);
    out[1] = __uint_as_float(word & 0xffff0000u);
  } else if constexpr (F == kFp8 || F == kFp8Row) {
    unsigned low, high;
    e4m3_word_to_halves(word, low, high);
    halves_to_floats(low, out[0], out[1]);
    halves_to_floats(high, out[2], out[3]);
  } else if constexpr (F == kMxfp4) {
    // Nibbles k and k + 4 to the top of the two halves; as halves they are 2^14 too small.
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const unsigned top = word << (12 - 4 * k);
      halves_to_floats((top & 0x80008000u) | (top >> 3 & 0x0e000e00u), out[k], out[k + 4]);
    }
  } else {
#pragma unroll
    for (int k = 0; k < 8; ++k)
      out[k] = static_cast<float>(static_cast<int>(word >> (4 * k) & 15u) - 8);
  }
}
// What decode() left out beside the stored scale: a power of two.
template <int F>
SPK_DEVICE constexpr float decode_factor() {
  if constexpr (F == kFp8 || F == kFp8Row) return kE4m3Half;
  if constexpr (F == kMxfp4) return 0x1p14f;
  return 1.f;
}
template <int F>
constexpr bool kIsScaled = F != kF32&& F != kBf16;

// Number e of 16 bytes of codes; e is a constant after unrolling.
template <int F>
SPK_DEVICE float number(const uint4& codes, int e, float scale) {
  if constexpr (F == kF32) {
    return __uint_as_float(word_of(codes, e));
  } else if constexpr (F == kBf16) {
    const unsigned word = word_of(codes, e / 2);
    return e % 2 ? __uint_as_float(word & 0xffff0000u) : __uint_as_float(word << 16);
  } else if constexpr (F == kFp8 || F == kFp8Row) {
    return e4m3_to_float(word_of(codes, e / 4) >> (8 * (e % 4))) * scale;
  } else {
    const unsigned nibble = word_of(codes, e / 8) >> (4 * (e % 8)) & 15u;
    if constexpr (F == kMxfp4) return e2m1_to_float(nibble) * scale;
    return static_cast<float>(static_cast<int>(nibble) - 8) * scale;
  }
}

// One number of a matrix, where nothing is gained by sixteen bytes.
template <int F>
SPK_DEVICE float weight_at(const Matrix& m, i64 row, int col) {
  const unsigned char* codes = m.codes + row * m.row_bytes;
  const float scale = scale_of<F>(m, row, col);
  if constexpr (F == kF32) {
    return reinterpret_cast<const float*>(codes)[col];
  } else if constexpr (F == kBf16) {
    return bf16_to_float(reinterpret_cast<const unsigned short*>(codes)[col]);
  } else if constexpr (F == kFp8 || F == kFp8Row) {
    return e4m3_to_float(codes[col]) * scale;
  } else {
    const unsigned nibble = codes[col / 2] >> (4 * (col % 2)) & 15u;
    if constexpr (F == kMxfp4) return e2m1_to_float(nibble) * scale;
    return static_cast<float>(static_cast<int>(nibble) - 8) * scale;
  }
}

}  // namespace spk::gpu
