#include "base/direct_file.h"

#include "base/error.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace spk {

DirectFile::DirectFile(const std::string& path)
    : path_(path), plain_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (plain_ < 0) {
    const int code = errno;
    fail_input(path, ": cannot open: ", std::strerror(code));
  }
  direct_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
}

DirectFile::~DirectFile() {
  if (direct_ >= 0) ::close(direct_);
  if (plain_ >= 0) ::close(plain_);
}

const std::byte* DirectFile::read(uint64_t offset, size_t bytes, std::byte* buffer) const {
  const uint64_t first = offset / kAlign * kAlign;
  const auto skip = static_cast<size_t>(offset - first);
  const size_t wanted = skip + bytes;
  const size_t whole = (wanted + kAlign - 1) / kAlign * kAlign;
  size_t done = 0;
  while (done < wanted) {
    const bool direct = direct_ >= 0 && use_direct_.load(std::memory_order_relaxed) &&
                        done % kAlign == 0;  // a short read leaves the grid
    const ssize_t n = ::pread(direct ? direct_ : plain_, buffer + done,
                              (direct ? whole : wanted) - done, static_cast<off_t>(first + done));
    if (n > 0) {
      done += static_cast<size_t>(n);
      continue;
    }
    const int code = errno;
    if (n < 0 && code == EINTR) continue;
    if (n < 0 && code == EINVAL && direct) {  // it wants another grid than ours
      use_direct_.store(false, std::memory_order_relaxed);
      continue;
    }
    if (n < 0) fail_input(path_, ": cannot read: ", std::strerror(code));
    fail_input(path_, ": expected ", bytes, " bytes at ", offset, ", found the end of the file at ",
               first + done, "; was it cut while it was read?");
  }
  return buffer + skip;
}

}  // namespace spk
