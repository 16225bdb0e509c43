#include "cli/npy.h"

#include "base/error.h"
#include "base/file.h"
#include "formats/untrusted.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <system_error>
#include <utility>

namespace spk::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "the files hold native values");

constexpr std::string_view kMagic("\x93NUMPY\x01\x00", 8);

std::string header(std::string_view type, std::span<const int64_t> shape) {
  std::string dict = cat("{'descr': '", type, "', 'fortran_order': False, 'shape': (");
  for (const int64_t n : shape) dict += cat(n, ",", shape.size() > 1 ? " " : "");
  if (shape.size() > 1) dict.resize(dict.size() - 2);
  dict += "), }";
  const size_t used = kMagic.size() + 2 + dict.size() + 1;
  dict.append((64 - used % 64) % 64, ' ');
  dict += '\n';
  std::string out(kMagic);
  out += static_cast<char>(dict.size() & 0xff);
  out += static_cast<char>(dict.size() >> 8);
  return out + dict;
}

std::FILE* create(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) fail_input("cannot create ", path, ": ", std::strerror(errno));
  return file;
}

void put(std::FILE* file, const void* data, size_t bytes, const std::string& path) {
  if (bytes > 0 && std::fwrite(data, 1, bytes, file) != bytes) {
    fail_input("cannot write ", path, ": ", std::strerror(errno));
  }
}

// A special file (/dev/null, a pipe) cannot be renamed over: it is written in place.
bool is_special(const std::string& path) { return path.rfind("/dev/", 0) == 0; }

// The value of a key in the header's dict literal, as text up to the closing character.
std::string_view field(std::string_view dict, std::string_view key, char open, char close,
                       const std::string& path) {
  const size_t at = dict.find(cat("'", key, "':"));
  const size_t from = at == std::string_view::npos ? at : dict.find(open, at + key.size() + 3);
  const size_t to = from == std::string_view::npos ? from : dict.find(close, from + 1);
  if (to == std::string_view::npos)
    fail_input(path, ": not a .npy file: no '", key, "' in its header");
  return dict.substr(from + 1, to - from - 1);
}

std::vector<int64_t> parse_shape(std::string_view text, const std::string& path) {
  std::vector<int64_t> shape;
  size_t at = 0;
  while (at < text.size()) {
    if (text[at] == ' ' || text[at] == ',') {
      ++at;
      continue;
    }
    int64_t n = 0;
    const auto [rest, error] = std::from_chars(text.data() + at, text.data() + text.size(), n);
    if (error != std::errc() || n < 0 || shape.size() == 8) {
      fail_input(path, ": expected a shape such as (12, 11, 8), found (", text, ")");
    }
    shape.push_back(n);
    at = static_cast<size_t>(rest - text.data());
  }
  return shape;
}

}  // namespace

NpyWriter::NpyWriter(std::string path, int64_t rows, int64_t cols)
    : path_(std::move(path)),
      part_(is_special(path_) ? path_ : path_ + ".part"),
      rows_(rows),
      cols_(cols) {
  if (!is_special(path_)) leftover_.emplace(part_);
  file_ = create(part_);
  const int64_t shape[] = {rows, cols};
  const std::string head = header("<f4", shape);
  if (std::fwrite(head.data(), 1, head.size(), file_) != head.size()) {
    std::fclose(file_);
    fail_input("cannot write ", part_, ": ", std::strerror(errno));
  }
}

NpyWriter::~NpyWriter() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  if (!is_special(path_)) std::remove(part_.c_str());
}

void NpyWriter::row(std::span<const float> values) {
  SPK_CHECK(static_cast<int64_t>(values.size()) == cols_ && written_ < rows_);
  put(file_, values.data(), values.size_bytes(), part_);
  ++written_;
}

void NpyWriter::close() {
  SPK_CHECK(written_ == rows_);
  const int failed = std::fclose(std::exchange(file_, nullptr));
  if (failed != 0) fail_input("cannot write ", part_, ": ", std::strerror(errno));
  if (!is_special(path_) && std::rename(part_.c_str(), path_.c_str()) != 0) {
    fail_input("cannot create ", path_, ": ", std::strerror(errno));
  }
}

void write_npy(const std::string& path, std::span<const int64_t> shape,
               std::span<const int32_t> values) {
  const std::string part = is_special(path) ? path : path + ".part";
  std::optional<Leftover> leftover;
  if (part != path) leftover.emplace(part);
  std::FILE* file = create(part);
  const std::string head = header("<i4", shape);
  const bool good = std::fwrite(head.data(), 1, head.size(), file) == head.size() &&
                    (values.empty() || std::fwrite(values.data(), sizeof(int32_t), values.size(),
                                                   file) == values.size());
  const bool closed = std::fclose(file) == 0;
  if (!good || !closed || (part != path && std::rename(part.c_str(), path.c_str()) != 0)) {
    const int code = errno;
    if (part != path) std::remove(part.c_str());
    fail_input("cannot write ", path, ": ", std::strerror(code));
  }
}

IntArray read_npy(const std::string& path, uint64_t limit) {
  return parse_npy(read_input(path, limit), path);
}

IntArray parse_npy(std::string_view bytes, const std::string& path) {
  constexpr std::string_view kAnyVersion = "\x93NUMPY";
  if (bytes.substr(0, kAnyVersion.size()) != kAnyVersion || bytes.size() < 12) {
    fail_input(path, ": not a .npy file: expected it to begin with \\x93NUMPY, found '",
               printable(bytes.substr(0, 8)), "'");
  }
  const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<uint8_t>(bytes[i])); };
  const size_t version = byte(6);
  const size_t length_bytes = version == 1 ? 2 : 4;
  if (version < 1 || version > 3)
    fail_input(path, ": expected .npy version 1 to 3, found ", version);
  size_t length = 0;
  for (size_t i = 0; i < length_bytes; ++i) length |= byte(8 + i) << (8 * i);
  const size_t start = 8 + length_bytes;
  if (length > bytes.size() - start) {
    fail_input(path, ": header of ", length, " bytes in a file of ", bytes.size());
  }
  const std::string_view dict = bytes.substr(start, length);
  const std::string_view type = field(dict, "descr", '\'', '\'', path);
  if (type != "<i4") fail_input(path, ": expected int32 values ('<i4'), found '", type, "'");
  const size_t order = dict.find("'fortran_order':");
  if (order == std::string_view::npos ||
      dict.substr(order, 24).find("False") == std::string_view::npos) {
    fail_input(path, ": expected C order (fortran_order False), found another");
  }
  IntArray array;
  array.shape = parse_shape(field(dict, "shape", '(', ')', path), path);
  const std::string_view data = bytes.substr(start + length);
  uint64_t count = 1;
  for (const int64_t n : array.shape) {
    // The product stays below the file's size or the file is wrong, so it cannot overflow unseen.
    if (n != 0 && count > data.size() / static_cast<uint64_t>(n))
      count = data.size() + 1;
    else
      count *= static_cast<uint64_t>(n);
  }
  if (count > data.size() || count * sizeof(int32_t) != data.size()) {
    fail_input(path, ": shape (", field(dict, "shape", '(', ')', path), ") of int32 does not fit ",
               data.size(), " bytes of values");
  }
  array.values.resize(count);
  if (count > 0) std::memcpy(array.values.data(), data.data(), data.size());
  return array;
}

}  // namespace spk::cli
