#include "formats/numbers.h"

#include "base/error.h"

#include <algorithm>
#include <cstring>

namespace spk {
namespace {

// Any element whose bits under `mask` are all set: NaN of FP8, NaN or infinity of BF16 and F32.
// Plain and/compare over blocks, which compilers vectorise; one pass at memory speed.
template <typename Word>
bool has_all_ones(const std::byte* data, size_t bytes, Word mask) {
  constexpr size_t kBlock = 4096 / sizeof(Word);
  Word block[kBlock];
  const size_t count = bytes / sizeof(Word);
  for (size_t i = 0; i < count; i += kBlock) {
    const size_t n = std::min(kBlock, count - i);
    std::memcpy(block, data + i * sizeof(Word), n * sizeof(Word));
    Word hits = 0;
    for (size_t j = 0; j < n; ++j) hits |= static_cast<Word>((block[j] & mask) == mask);
    if (hits) return true;
  }
  return false;
}

template <typename Word>
int64_t first_all_ones(const std::byte* data, int64_t count, Word mask) {
  if (!has_all_ones<Word>(data, static_cast<size_t>(count) * sizeof(Word), mask)) return -1;
  for (int64_t i = 0; i < count; ++i) {
    Word word = 0;
    std::memcpy(&word, data + i * static_cast<int64_t>(sizeof(Word)), sizeof word);
    if ((word & mask) == mask) return i;
  }
  return -1;
}

constexpr uint32_t kF32Exponent = 0x7f800000u;
constexpr uint16_t kBf16Exponent = 0x7f80u;

}  // namespace

bool codes_are_numbers(Format format, const std::byte* codes, size_t bytes) {
  switch (format) {
    case Format::kF32:
      return !has_all_ones<uint32_t>(codes, bytes, kF32Exponent);
    case Format::kBf16:
      return !has_all_ones<uint16_t>(codes, bytes, kBf16Exponent);
    case Format::kFp8:
    case Format::kFp8Row:
      return !has_all_ones<uint8_t>(codes, bytes, 0x7fu);
    case Format::kMxfp4:
    case Format::kInt4:
      return true;  // every code is a number
  }
  return true;
}

int64_t first_bad_scale(ScaleType type, const std::byte* scales, int64_t count) {
  switch (type) {
    case ScaleType::kE8m0: {
      const void* hit = std::memchr(scales, 255, static_cast<size_t>(count));
      return hit ? static_cast<const std::byte*>(hit) - scales : -1;
    }
    case ScaleType::kF32:
      return first_all_ones<uint32_t>(scales, count, kF32Exponent);
    case ScaleType::kBf16:
      return first_all_ones<uint16_t>(scales, count, kBf16Exponent);
    case ScaleType::kNone:
      break;
  }
  SPK_CHECK(count == 0);
  return -1;
}

}  // namespace spk
