// Reads of a file around the page cache, for weights that are read once and copied elsewhere.
//
// Where the file system has no direct reads (memory file systems), they are ordinary ones. Errors
// name the file, the system's reason and, for a file that was cut meanwhile, both sizes.
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace spk {

class DirectFile {
 public:
  static constexpr size_t kAlign = 4096;
  // Room of a buffer for `bytes` at any offset: reads begin and end at multiples of kAlign.
  static constexpr size_t room(size_t bytes) {
    return (bytes + 2 * kAlign - 1) / kAlign * kAlign + kAlign;
  }

  explicit DirectFile(const std::string& path);  // Error(kInput)
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;
  ~DirectFile();

  // Reads [offset, offset + bytes) into `buffer`, which starts at a multiple of kAlign and has
  // room(bytes); returns where in it they are. Error(kInput).
  const std::byte* read(uint64_t offset, size_t bytes, std::byte* buffer) const;

 private:
  std::string path_;
  int plain_ = -1;
  int direct_ = -1;                             // -1: the file system has none
  mutable std::atomic<bool> use_direct_{true};  // false once it refused a read
};

}  // namespace spk
