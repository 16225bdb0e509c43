// Small tools for reading files that nobody vouches for: bounded complaints, printable names, a
// JSON depth guard.
#pragma once

#include "base/error.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spk {

// A name from a file as it may be shown: control characters and non-ASCII escaped, at most 160
// characters.
std::string printable(std::string_view text);

// Collects everything that is wrong, so that the user sees it at once; keeps the first kKept and
// counts the rest.
class Complaints {
 public:
  static constexpr size_t kKept = 20;

  template <typename... Args>
  void add(Args&&... args) {
    ++count_;
    if (lines_.size() < kKept) lines_.push_back(cat(std::forward<Args>(args)...));
  }
  size_t count() const { return count_; }
  bool empty() const { return count_ == 0; }
  // Throws Error(kInput) "heading: N problems" with one line each; does nothing when there are
  // none.
  void throw_if_any(std::string_view heading) const;

 private:
  std::vector<std::string> lines_;
  size_t count_ = 0;
};

// Deepest nesting of objects and arrays, by counting brackets outside strings: checked before a
// parser that builds a tree sees the text, since 4 MB of '[' would otherwise become hundreds of
// megabytes of nodes.
size_t json_depth(std::string_view text);

// Multiplication of sizes from a file; nullopt on overflow or a negative factor.
inline std::optional<int64_t> checked_mul(int64_t a, int64_t b) {
  int64_t product;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

}  // namespace spk
