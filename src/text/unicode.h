// Sets of code points, and the character classes of the regex engine that the Hugging Face package
// runs.
//
// The classes come from unicode_table.inc, which tools/unicode_table.py measured; nothing here is
// taken from the system's own Unicode tables, because those know other characters and would split
// text differently.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace spk {

constexpr uint32_t kLastCodePoint = 0x10ffff;

struct CodeRange {
  uint32_t first;
  uint32_t last;  // inclusive
  bool operator==(const CodeRange&) const = default;
  auto operator<=>(const CodeRange&) const = default;
};
using CodeSet = std::vector<CodeRange>;  // sorted and disjoint once normalize() was applied

// Sorts and joins what touches.
CodeSet normalize(CodeSet set);
CodeSet complement(const CodeSet& set);  // of a normalised set
void add_all(CodeSet& set, const CodeSet& more);

// The set behind \p{name}: general categories by their one- or two-letter names and some scripts,
// in any case.
std::optional<CodeSet> unicode_property(std::string_view name);
CodeSet unicode_space();    // \s
CodeSet unicode_word();     // \w
CodeSet unicode_decimal();  // \d
CodeSet unicode_digits();   // what the pre-tokenizer Digits takes for a digit

// Code points that NFC may change, move or join, in the reference's tables (Unicode 9); all others
// are left alone.
CodeSet unicode_nfc_active();

// All characters that (?i:letter) matches, for a letter of ASCII; the character alone otherwise.
CodeSet fold_ascii(uint32_t code);
// Whether (?i:...) lets one ligature stand for these two letters of ASCII, as in "ss" and U+00DF.
bool folds_to_ligature(uint32_t first, uint32_t second);

// A function from code points to small numbers, as two stages of tables: reading costs two loads,
// and a whole map takes some tens of kilobytes because equal pages are stored once.
class CodePointMap {
 public:
  // The values of consecutive ranges: value of starts[i] .. starts[i + 1] - 1. The first start is
  // 0, starts ascend.
  struct Run {
    uint32_t start;
    uint8_t value;
  };
  CodePointMap() : CodePointMap({{0, 0}}) {}
  explicit CodePointMap(const std::vector<Run>& runs);
  static CodePointMap of_set(const CodeSet& set);  // 1 inside, 0 outside

  uint8_t operator[](uint32_t code) const {
    return pages_[static_cast<size_t>(page_of_[code >> 8]) * 256 + (code & 255)];
  }

 private:
  std::vector<uint16_t> page_of_;  // [0x1100]
  std::vector<uint8_t> pages_;     // [distinct pages * 256]
};

}  // namespace spk
