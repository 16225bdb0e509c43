// Pieces of the work space for one verb: asked for first, placed together.
#pragma once

#include "backend/cuda/driver.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace spk::cuda {

class Sections {
 public:
  // `at` is set by place().
  template <typename T>
  void add(T*& at, int64_t count) {
    pieces_.emplace_back(&at, bytes_);
    bytes_ += (static_cast<size_t>(count) * sizeof(T) + kAlign - 1) / kAlign * kAlign;
  }
  size_t bytes() const { return bytes_; }
  void place(DevicePointer memory) {
    for (const auto& [at, offset] : pieces_) {
      void* const piece = pointer_to(memory + offset);
      std::memcpy(at, &piece, sizeof piece);  // a T* that is not a void* object
    }
  }

 private:
  static constexpr size_t kAlign = 256;
  std::vector<std::pair<void*, size_t>> pieces_;
  size_t bytes_ = 0;
};

}  // namespace spk::cuda
