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
