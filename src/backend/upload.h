// Uploads that a back end puts off to the end of loading, so that many readers can do them at once.
//
// A back end with memory of its own takes the room for a tensor in upload() and notes where its
// bytes lie; finish_uploads() then moves all of them, by pieces, through readers that the source
// provides. Every byte passes arrived() once, which is where they are checked.
#pragma once

#include "formats/quant.h"

#include <cstddef>
#include <span>
#include <string_view>

namespace spk {

// Stored bytes of one tensor, its codes or its scales, dense and in order.
struct StoredBytes {
  std::string_view tensor;  // lives as long as the source
  Format format = Format::kF32;
  ScaleType scales = ScaleType::kNone;  // kNone: these are the codes
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

// Thread-safe. Errors: whatever reading throws; it ends the loading.
class UploadSource {
 public:
  virtual ~UploadSource() = default;
  // The stored file around these bytes: what lies near each other in one is read at once. Empty
  // when they are in memory.
  virtual std::span<const std::byte> file_of(const std::byte* data) const = 0;
  // [data, data + bytes), perhaps in `buffer` (DirectFile::kAlign, DirectFile::room(bytes)).
  virtual const std::byte* read(const std::byte* data, size_t bytes, std::byte* buffer) = 0;
  // `found` holds part.bytes bytes: the tensor's, from part.data on.
  virtual void arrived(const StoredBytes& part, const std::byte* found) = 0;
};

}  // namespace spk
