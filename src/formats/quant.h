// The block formats of the family's checkpoints: what bytes mean, as plain loops.
//
// Owns format names, sizes and exact dequantisation of a row; packing for kernels belongs to the
// back ends. All of it is pure and thread-safe. Source of the layouts: the published checkpoints
// (fp8, fp4, int4 releases).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace spk {

enum class Format : uint8_t {
  kF32,     // [rows, cols] little-endian float
  kBf16,    // [rows, cols]
  kFp8,     // E4M3 [rows, cols]; scale per 128x128 block, partial last blocks
  kMxfp4,   // E2M1, two a byte, element 2n in the low nibble; E8M0 scale per 32 along cols
  kInt4,    // (nibble - 8), eight a 32-bit word, lowest first; BF16 scale per 32 along cols
  kFp8Row,  // E4M3 [rows, cols]; one float scale a row: heads quantised at load, never in a file
};
inline constexpr int kFormats = 6;

enum class ScaleType : uint8_t { kNone, kF32, kBf16, kE8m0 };

std::string_view format_name(Format format);

inline constexpr int64_t kFp8Block = 128;  // both directions
inline constexpr int64_t kGroup = 32;      // MXFP4 and INT4, along cols

// Bytes of the codes and number of scales of a [rows, cols] matrix. cols must suit the format
// (checked by the loader).
int64_t code_bytes(Format format, int64_t rows, int64_t cols);
int64_t scale_count(Format format, int64_t rows, int64_t cols);
int64_t scale_bytes(ScaleType type);

// A matrix (or vector: rows == 1) in host memory, as stored. Nothing is owned; data may be
// unaligned.
struct HostTensor {
  std::string_view name;
  Format format = Format::kF32;
  ScaleType scale_type = ScaleType::kNone;
  int64_t rows = 0;
  int64_t cols = 0;
  const std::byte* data = nullptr;    // code_bytes(format, rows, cols)
  const std::byte* scales = nullptr;  // scale_count * scale_bytes(scale_type)

  int64_t bytes() const {
    return code_bytes(format, rows, cols) +
           scale_count(format, rows, cols) * scale_bytes(scale_type);
  }
};

// One scale as a number, index as in scale_count's row-major order.
float scale_at(const HostTensor& tensor, int64_t index);

// out[0..cols): value = code * scale. The double form is exact; the float form rounds the product
// once.
void dequantise_row(const HostTensor& tensor, int64_t row, float* out);
void dequantise_row(const HostTensor& tensor, int64_t row, double* out);

// The other direction, for exports, tests and synthetic weights: nearest codes of float rows.
// codes and scales are sized as above; FP8 scales are float (power of two when pow2_scales), MXFP4
// scales E8M0.
void quantise_fp8(const float* x, int64_t rows, int64_t cols, bool pow2_scales, uint8_t* codes,
                  float* scales);
// One row of kFp8Row: scale = max|x| / 448.
void quantise_fp8_row(const float* x, int64_t cols, uint8_t* codes, float& scale);
void quantise_mxfp4(const float* x, int64_t rows, int64_t cols, uint8_t* codes, uint8_t* scales);

}  // namespace spk
