// NumPy .npy files, version 1.0: float32 rows out, int32 tables in and out.
//
// File: "\x93NUMPY" 01 00, header length (2 bytes, little-endian), a Python dict literal padded
// with blanks to a multiple of 64 and ended by a newline, then the values in C order,
// little-endian. Inspect with numpy.load(FILE). The reader trusts nothing: every size is checked
// against the file before anything is sized by it.
#pragma once

#include "cli/output.h"

#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spk::cli {

// Writes rows as they come, into PATH.part; close() checks that all promised rows arrived and
// renames it to PATH, so that a reader never sees half a file. Destroyed without close(), or ended
// by a signal: nothing is left.
class NpyWriter {
 public:
  NpyWriter(std::string path, int64_t rows, int64_t cols);
  ~NpyWriter();
  NpyWriter(const NpyWriter&) = delete;
  NpyWriter& operator=(const NpyWriter&) = delete;

  void row(std::span<const float> values);
  void close();

 private:
  std::string path_;
  std::string part_;
  std::optional<Leftover> leftover_;  // of part_
  std::FILE* file_ = nullptr;
  int64_t rows_;
  int64_t cols_;
  int64_t written_ = 0;
};

void write_npy(const std::string& path, std::span<const int64_t> shape,
               std::span<const int32_t> values);

struct IntArray {
  std::vector<int64_t> shape;
  std::vector<int32_t> values;
};
// Error(kInput) unless it is a little-endian int32 array in C order, of at most `limit` bytes.
IntArray read_npy(const std::string& path, uint64_t limit);

// The reader's core, for tests and fuzzing: the file's bytes.
IntArray parse_npy(std::string_view bytes, const std::string& path);

}  // namespace spk::cli
