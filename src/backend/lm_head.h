// The LM head as ONE object: codes, scales, format. Target and draft hold a reference to it; only
// back ends see its bytes.
//
// Why a class: an engine once handed the quantised bytes of its head to a draft layer that read
// them as BF16. Nothing failed, every draft was wrong, and decoding was slower than without any
// optimisation. Here nobody can ask for bytes.
#pragma once

#include "backend/layout.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace spk {

class Backend;

enum class HeadFormat : uint8_t { kStored, kFp32, kBf16, kFp8, kMxfp4 };
// "stored", "fp32", "bf16", "fp8", "mxfp4"; Error(kUsage) with the list otherwise.
HeadFormat parse_head_format(std::string_view name);
std::string_view head_format_name(HeadFormat format);

class LmHead {
 public:
  LmHead() = default;
  // Quantises `stored` [vocab, hidden] (fp8: E4M3 with one scale a row) on up to `threads` threads
  // and uploads it. `rows`: ids of the rows to keep, in this order; empty: all. kStored keeps the
  // matrix as it is.
  LmHead(Backend& backend, const HostTensor& stored, HeadFormat format,
         std::span<const int32_t> rows, int threads);
  LmHead(LmHead&&) = default;
  LmHead& operator=(LmHead&&) = default;

  int64_t rows() const { return weight_.rows; }
  int64_t bytes() const { return weight_.bytes; }
  Format format() const { return weight_.format; }
  // Vocabulary ids of the rows; empty when row i is id i.
  std::span<const int32_t> ids() const { return ids_; }

 private:
  friend class Backend;
  Weight weight_;
  std::vector<std::byte> codes_, scales_;  // when quantised here; back ends may read them in place
  std::vector<int32_t> ids_;
};

}  // namespace spk
