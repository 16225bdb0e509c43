// Files: read-only maps, whole reads up to a limit, lines, atomic publish.
//
// Owns the operating system's part of loading and saving; knows no format. Every error names the
// file and the system's reason. A map stays valid when the file is replaced by rename (as
// publish_file does), not when it is cut in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spk {

// A whole regular file, mapped read-only for the life of the object.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::string& path);  // Error(kInput)
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }
  bool contains(const std::byte* data) const;

  // Hints only; the range is cut to the file. read_ahead starts reading without waiting.
  void read_ahead(uint64_t offset, uint64_t bytes) const;
  // Gives pages back. They are re-read from the file when touched again, so this is always safe.
  void drop(const std::byte* data, size_t bytes) const;

 private:
  std::string path_;
  void* data_ = nullptr;
  size_t size_ = 0;
};

// Asks the system for large pages behind this memory before it is touched: a hint. Streamed
// weights come half as fast again from them, because read-ahead ends at each page.
void prefer_large_pages(void* data, size_t bytes);

// Gives back the pages around [data, data + bytes) of a read-only file map (also of the
// executable's own image).
void drop_file_pages(const std::byte* data, size_t bytes, const std::byte* begin, size_t size);

// More than any text of a checkpoint (a 157,184-entry tokenizer.json has about 12 MB) and than any
// prompt: what is longer is not what it is taken for.
inline constexpr uint64_t kMaxText = 64u << 20;

// The whole file of a checkpoint: Error(kInput) when it is no regular file or larger than limit.
std::string read_small_file(const std::string& path, uint64_t limit);

// What a user names to be read: a file, a pipe such as <(command), a device, "-" for standard
// input. Nothing is read without a limit, whatever the name leads to.
class InputFile {
 public:
  explicit InputFile(const std::string& path);  // Error(kInput): missing, a folder
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  const std::string& name() const { return name_; }
  // Up to `size` bytes, 0 at the end. Waits for a pipe that somebody writes to, and no longer than
  // two seconds for somebody to begin.
  size_t read(char* data, size_t size);

 private:
  std::string name_;
  int fd_ = -1;
  bool is_pipe_ = false;
  bool begun_ = false;
};

// All of it; Error(kInput) beyond `limit` bytes.
std::string read_input(const std::string& path, uint64_t limit);

// Line by line, without the newline; Error(kInput) for a line beyond `limit` bytes.
class LineReader {
 public:
  LineReader(const std::string& path, uint64_t limit) : file_(path), limit_(limit) {}
  const std::string& name() const { return file_.name(); }
  bool next(std::string& line);  // false: no more

 private:
  InputFile file_;
  uint64_t limit_;
  std::string block_;
  size_t at_ = 0;
};

// A download by git without its large files leaves a text of three lines in their place. What a
// message about such a file adds; empty for all others.
std::string_view lfs_hint(std::string_view text);

bool file_exists(const std::string& path);
bool is_folder(const std::string& path);
std::vector<std::string> list_folder(const std::string& path);  // names, sorted; Error(kInput)

// Readers see the old file or the whole new one: a temporary in the same folder, flushed to disk,
// then renamed.
void publish_file(const std::string& path, std::string_view bytes);

}  // namespace spk
