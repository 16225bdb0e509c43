#include "base/file.h"

#include "base/error.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace spk {
namespace {

[[noreturn]] void fail_file(const std::string& path, const char* action) {
  const int code = errno;  // cat() below may change errno
  fail_input(path, ": cannot ", action, ": ", std::strerror(code));
}

// A descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

const char* kind_of(mode_t mode) {
  if (S_ISREG(mode)) return "a regular file";
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

// O_NONBLOCK: opening a named pipe must not wait for a writer; regular files ignore the flag.
Descriptor open_regular(const std::string& path, uint64_t& size) {
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) fail_file(path, "open");
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) fail_file(path, "read the size");
  if (!S_ISREG(info.st_mode))
    fail_input(path, ": expected a regular file, found ", kind_of(info.st_mode));
  size = static_cast<uint64_t>(info.st_size);
  return Descriptor(fd.release());
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  uint64_t size = 0;
  const Descriptor fd = open_regular(path, size);
  size_ = static_cast<size_t>(size);
  if (size_ == 0) return;  // mmap refuses an empty range; an empty view needs none
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) {
    const int code = errno;
    fail_resource(path, ": cannot map ", size_, " bytes: ", std::strerror(code));
  }
  data_ = data;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(data_, size_);
}

bool MappedFile::contains(const std::byte* data) const {
  const auto* begin = static_cast<const std::byte*>(data_);
  return data_ && data >= begin && data < begin + size_;
}

void MappedFile::read_ahead(uint64_t offset, uint64_t bytes) const {
  if (offset >= size_) return;
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t first = offset / page * page;
  const uint64_t last = std::min<uint64_t>(size_, offset + std::min<uint64_t>(bytes, size_));
  ::madvise(static_cast<char*>(data_) + first, last - first, MADV_WILLNEED);
}

void MappedFile::drop(const std::byte* data, size_t bytes) const {
  if (contains(data)) drop_file_pages(data, bytes, static_cast<const std::byte*>(data_), size_);
}

void prefer_large_pages(void* data, size_t bytes) {
  constexpr uintptr_t kPage = 4096;  // the system wants whole pages
  const uintptr_t before = (kPage - reinterpret_cast<uintptr_t>(data) % kPage) % kPage;
  if (bytes < before + kPage) return;
  ::madvise(static_cast<std::byte*>(data) + before, (bytes - before) / kPage * kPage,
            MADV_HUGEPAGE);
}

void drop_file_pages(const std::byte* data, size_t bytes, const std::byte* begin, size_t size) {
  // A read fault maps the pages around it too (64 KiB by default), so the range is widened to that;
  // a neighbour that goes with it is found again in the page cache.
  constexpr uintptr_t kFaultAround = 65536;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto low = reinterpret_cast<uintptr_t>(begin);
  const auto high = low + size;
  const auto at = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first =
      std::max(at / kFaultAround * kFaultAround, (low + page - 1) / page * page);
  const uintptr_t last =
      std::min((at + bytes + kFaultAround - 1) / kFaultAround * kFaultAround, high / page * page);
  if (first >= last) return;
  auto* where =
      const_cast<std::byte*>(begin) + (first - low);  // madvise's signature knows no const
  ::madvise(where, last - first, MADV_DONTNEED);
}

std::string read_small_file(const std::string& path, uint64_t limit) {
  uint64_t size = 0;
  const Descriptor fd = open_regular(path, size);
  if (size > limit) fail_input(path, ": expected at most ", limit, " bytes, found ", size);
  std::string text;
  text.resize(static_cast<size_t>(size));
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::read(fd.get(), text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_file(path, "read");
    if (n == 0) break;  // the file became shorter meanwhile
    done += static_cast<size_t>(n);
  }
  text.resize(done);
  return text;
}

InputFile::InputFile(const std::string& path)
    : name_(path == "-" ? "standard input" : path),
      // O_NONBLOCK as in open_regular; read() waits itself.
      fd_(path == "-" ? STDIN_FILENO
                      : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {
  if (fd_ < 0) fail_file(name_, "open");
  Descriptor closes(fd_ == STDIN_FILENO ? -1 : fd_);
  struct stat info = {};
  if (::fstat(fd_, &info) != 0) fail_file(name_, "read the size");
  if (S_ISDIR(info.st_mode)) fail_input(name_, ": expected a file, found a folder");
  is_pipe_ = S_ISFIFO(info.st_mode) && fd_ != STDIN_FILENO;
  closes.release();
}

InputFile::~InputFile() {
  if (fd_ != STDIN_FILENO) ::close(fd_);
}

size_t InputFile::read(char* data, size_t size) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kPatience = std::chrono::seconds(2);
  constexpr int kStepMs = 10;
  const Clock::time_point start = Clock::now();
  for (;;) {
    const ssize_t n = ::read(fd_, data, size);
    if (n > 0) {
      begun_ = true;
      return static_cast<size_t>(n);
    }
    if (n == 0) {
      // A pipe without a writer reads as ended: one that has not begun may still get its writer.
      if (!is_pipe_ || begun_) return 0;
      if (Clock::now() - start > kPatience)
        fail_input(name_, ": expected a pipe that somebody writes to, found nobody");
      ::poll(nullptr, 0, kStepMs);
    } else if (errno == EAGAIN) {
      pollfd wait{fd_, POLLIN, 0};
      ::poll(&wait, 1, -1);
    } else if (errno != EINTR) {
      fail_file(name_, "read");
    }
  }
}

std::string read_input(const std::string& path, uint64_t limit) {
  constexpr size_t kBlock = 1 << 16;
  InputFile file(path);
  std::string text;
  for (size_t used = 0;;) {
    text.resize(used + kBlock);
    const size_t got = file.read(text.data() + used, kBlock);
    used += got;
    if (used > limit) fail_input(file.name(), ": expected at most ", limit, " bytes, found more");
    if (got > 0) continue;
    text.resize(used);
    return text;
  }
}

bool LineReader::next(std::string& line) {
  constexpr size_t kBlock = 1 << 16;
  line.clear();
  for (;;) {
    const size_t end = std::min(block_.find('\n', at_), block_.size());
    line.append(block_, at_, end - at_);
    if (line.size() > limit_)
      fail_input(file_.name(), ": expected lines of at most ", limit_,
                 " bytes, found a longer one");
    if (end < block_.size()) {
      at_ = end + 1;
      return true;
    }
    block_.resize(kBlock);
    at_ = 0;
    block_.resize(file_.read(block_.data(), kBlock));
    if (block_.empty()) return !line.empty();
  }
}

std::string_view lfs_hint(std::string_view text) {
  if (text.substr(0, 27) != "version https://git-lfs.git") return "";
  return "; this is a Git LFS pointer, `git lfs pull` fetches the file itself";
}

bool file_exists(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0;
}

bool is_folder(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::vector<std::string> list_folder(const std::string& path) {
  DIR* folder = ::opendir(path.c_str());
  if (!folder) fail_file(path, "list the folder");
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(folder)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  ::closedir(folder);
  std::sort(names.begin(), names.end());
  return names;
}

void publish_file(const std::string& path, std::string_view bytes) {
  std::string temporary = path + ".XXXXXX";
  Descriptor fd(::mkostemp(temporary.data(), O_CLOEXEC));
  if (fd.get() < 0) fail_file(temporary, "create");
  const auto fail = [&](const char* action) {
    const int code = errno;
    ::unlink(temporary.c_str());
    fail_input(path, ": cannot ", action, ": ", std::strerror(code));
  };
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("write");
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  if (::fchmod(fd.get(), 0644) != 0) fail("set the mode");  // mkostemp makes 0600
  if (::fsync(fd.get()) != 0) fail("flush");
  if (::close(fd.release()) != 0) fail("close");  // some file systems report a full disk only here
  if (::rename(temporary.c_str(), path.c_str()) != 0) fail("rename");
}

}  // namespace spk
