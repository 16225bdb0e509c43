#include "formats/quant.h"

#include "base/error.h"
#include "base/types.h"

#include <algorithm>
#include <cmath>

namespace spk {
namespace {

uint16_t load16(const std::byte* p) {
  uint16_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
uint32_t load32(const std::byte* p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// One loop for both precisions: the code and the scale are exact in Real, the product is rounded
// once (never in double: 4 to 8 significant bits times at most 24).
template <typename Real>
void dequantise(const HostTensor& t, int64_t row, Real* out) {
  const int64_t cols = t.cols;
  const std::byte* codes = t.data + row * (code_bytes(t.format, t.rows, cols) / t.rows);
  switch (t.format) {
    case Format::kF32:
      for (int64_t c = 0; c < cols; ++c)
        out[c] = static_cast<Real>(std::bit_cast<float>(load32(codes + 4 * c)));
      return;
    case Format::kBf16:
      for (int64_t c = 0; c < cols; ++c)
        out[c] = static_cast<Real>(bf16_to_float(load16(codes + 2 * c)));
      return;
    case Format::kFp8: {
      const int64_t blocks = ceil_div(cols, kFp8Block);
      for (int64_t b = 0; b < blocks; ++b) {
        const auto scale = static_cast<Real>(scale_at(t, row / kFp8Block * blocks + b));
        const int64_t end = std::min(cols, (b + 1) * kFp8Block);
        for (int64_t c = b * kFp8Block; c < end; ++c)
          out[c] = static_cast<Real>(e4m3_to_float(static_cast<uint8_t>(codes[c]))) * scale;
      }
      return;
    }
    case Format::kFp8Row: {
      const auto scale = static_cast<Real>(scale_at(t, row));
      for (int64_t c = 0; c < cols; ++c)
        out[c] = static_cast<Real>(e4m3_to_float(static_cast<uint8_t>(codes[c]))) * scale;
      return;
    }
    case Format::kMxfp4:
      for (int64_t g = 0; g < cols / kGroup; ++g) {
        const auto scale = static_cast<Real>(scale_at(t, row * (cols / kGroup) + g));
        for (int64_t i = 0; i < kGroup / 2; ++i) {
          const auto byte = static_cast<uint8_t>(codes[g * (kGroup / 2) + i]);
          out[g * kGroup + 2 * i] = static_cast<Real>(kE2m1[byte & 15]) * scale;
          out[g * kGroup + 2 * i + 1] = static_cast<Real>(kE2m1[byte >> 4]) * scale;
        }
      }
      return;
    case Format::kInt4:
      for (int64_t g = 0; g < cols / kGroup; ++g) {
        const auto scale = static_cast<Real>(scale_at(t, row * (cols / kGroup) + g));
        for (int64_t i = 0; i < kGroup; ++i) {
          const int64_t c = g * kGroup + i;
          const uint32_t word = load32(codes + c / 8 * 4);
          const int code = static_cast<int>((word >> (4 * (c % 8))) & 15u) - 8;
          out[c] = static_cast<Real>(code) * scale;
        }
      }
      return;
  }
}

float largest_magnitude(const float* x, int64_t rows, int64_t cols, int64_t stride) {
  float largest = 0;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) largest = std::max(largest, std::fabs(x[r * stride + c]));
  return largest;
}

}  // namespace

std::string_view format_name(Format format) {
  switch (format) {
    case Format::kF32:
      return "F32";
    case Format::kBf16:
      return "BF16";
    case Format::kFp8:
      return "FP8";
    case Format::kMxfp4:
      return "MXFP4";
    case Format::kInt4:
      return "INT4";
    case Format::kFp8Row:
      return "FP8 by row";
  }
  return "?";
}

int64_t code_bytes(Format format, int64_t rows, int64_t cols) {
  switch (format) {
    case Format::kF32:
      return rows * cols * 4;
    case Format::kBf16:
      return rows * cols * 2;
    case Format::kFp8:
    case Format::kFp8Row:
      return rows * cols;
    case Format::kMxfp4:
    case Format::kInt4:
      return rows * (cols / 2);
  }
  return 0;
}

int64_t scale_count(Format format, int64_t rows, int64_t cols) {
  switch (format) {
    case Format::kF32:
    case Format::kBf16:
      return 0;
    case Format::kFp8:
      return ceil_div(rows, kFp8Block) * ceil_div(cols, kFp8Block);
    case Format::kFp8Row:
      return rows;
    case Format::kMxfp4:
    case Format::kInt4:
      return rows * (cols / kGroup);
  }
  return 0;
}

int64_t scale_bytes(ScaleType type) {
  switch (type) {
    case ScaleType::kNone:
      return 0;
    case ScaleType::kF32:
      return 4;
    case ScaleType::kBf16:
      return 2;
    case ScaleType::kE8m0:
      return 1;
  }
  return 0;
}

float scale_at(const HostTensor& tensor, int64_t index) {
  switch (tensor.scale_type) {
    case ScaleType::kNone:
      return 1.f;
    case ScaleType::kF32:
      return std::bit_cast<float>(load32(tensor.scales + 4 * index));
    case ScaleType::kBf16:
      return bf16_to_float(load16(tensor.scales + 2 * index));
    case ScaleType::kE8m0:
      return e8m0_to_float(static_cast<uint8_t>(tensor.scales[index]));
  }
  return 1.f;
}

void dequantise_row(const HostTensor& tensor, int64_t row, float* out) {
  dequantise(tensor, row, out);
}
void dequantise_row(const HostTensor& tensor, int64_t row, double* out) {
  dequantise(tensor, row, out);
}

void quantise_fp8(const float* x, int64_t rows, int64_t cols, bool pow2_scales, uint8_t* codes,
                  float* scales) {
  const int64_t blocks = ceil_div(cols, kFp8Block);
  for (int64_t r0 = 0; r0 < rows; r0 += kFp8Block) {
    const int64_t nr = std::min(kFp8Block, rows - r0);
    for (int64_t c0 = 0; c0 < cols; c0 += kFp8Block) {
      const int64_t nc = std::min(kFp8Block, cols - c0);
      const float largest = largest_magnitude(x + r0 * cols + c0, nr, nc, cols);
      // 448 is the largest code. A block of zeros gets scale 1, so that no reader meets 0 / 0. A
      // scale of the smallest normal float at least keeps x / scale finite and exact enough.
      float scale = largest > 0 ? std::max(largest / 448.f, 0x1p-126f) : 1.f;
      if (pow2_scales) scale = std::exp2(std::ceil(std::log2(scale)));
      scales[r0 / kFp8Block * blocks + c0 / kFp8Block] = scale;
      for (int64_t r = r0; r < r0 + nr; ++r)
        for (int64_t c = c0; c < c0 + nc; ++c)
          codes[r * cols + c] = float_to_e4m3(x[r * cols + c] / scale);
    }
  }
}

void quantise_fp8_row(const float* x, int64_t cols, uint8_t* codes, float& scale) {
  const float largest = largest_magnitude(x, 1, cols, cols);
  scale = largest > 0 ? largest / 448.f : 1.f;
  for (int64_t c = 0; c < cols; ++c) codes[c] = float_to_e4m3(x[c] / scale);
}

void quantise_mxfp4(const float* x, int64_t rows, int64_t cols, uint8_t* codes, uint8_t* scales) {
  SPK_CHECK(cols % kGroup == 0);
  for (int64_t g = 0; g < rows * cols / kGroup; ++g) {
    const float* group = x + g * kGroup;
    const float largest = largest_magnitude(group, 1, kGroup, kGroup);
    // OCP rule: the largest value's exponent lands on 4 = 2^2, E2M1's last binade; 6 < v < 8
    // saturates at 6.
    int exponent = -127;
    if (largest > 0) exponent = std::clamp(std::ilogb(largest) - 2, -127, 127);
    scales[g] = static_cast<uint8_t>(exponent + 127);
    for (int64_t i = 0; i < kGroup; i += 2) {
      const uint8_t low = float_to_e2m1(std::ldexp(group[i], -exponent));
      const uint8_t high = float_to_e2m1(std::ldexp(group[i + 1], -exponent));
      codes[(g * kGroup + i) / 2] = static_cast<uint8_t>(low | high << 4);
    }
  }
}

}  // namespace spk
