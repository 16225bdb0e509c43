// One .safetensors file: an untrusted header becomes checked views into the mapped bytes.
//
// Owns the header's rules (size, JSON, dtype, shape x dtype == bytes, inside the file, no overlap,
// no hole, no trailing bytes); knows nothing of the model. Every refusal names file, tensor,
// expected and actual. Fuzzed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spk {

enum class StoredType : uint8_t { kF64, kF32, kF16, kBf16, kF8E4m3, kF8E8m0, kI64, kI32, kI8, kU8 };
std::string_view stored_type_name(StoredType type);
int64_t stored_type_bytes(StoredType type);

struct StoredTensor {
  std::string name;
  StoredType type = StoredType::kF32;
  std::vector<int64_t> shape;
  uint64_t offset = 0;  // from the start of the file
  uint64_t bytes = 0;
};

// Parses the header of a file of file_size bytes whose first head.size() bytes are given (at least
// the header when the file holds it). Throws Error(kInput). Tensors come in the order of their
// offsets.
std::vector<StoredTensor> parse_safetensors_header(std::string_view head, uint64_t file_size,
                                                   const std::string& file);

}  // namespace spk
