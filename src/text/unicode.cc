// Set arithmetic on sorted ranges, and the look-ups in the measured table.
#include "text/unicode.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string>
#include <utility>

namespace spk {
namespace {

#include "text/unicode_table.inc"

// Numbered as in the table.
constexpr std::array<std::string_view, 30> kCategories = {
    "lu", "ll", "lt", "lm", "lo", "mn", "mc", "me", "nd", "nl", "no", "pc", "pd", "ps", "pe",
    "pi", "pf", "po", "sm", "sc", "sk", "so", "zs", "zl", "zp", "cc", "cf", "cs", "co", "cn"};

CodeSet from_table(std::span<const uint32_t> table) {
  CodeSet set;
  for (size_t i = 0; i + 1 < table.size(); i += 2) set.push_back({table[i], table[i + 1]});
  return set;
}

std::string lower(std::string_view name) {
  std::string out(name);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// Ranges whose category's name starts with this.
CodeSet categories(std::string_view prefix) {
  CodeSet set;
  const std::span<const uint32_t> runs = kCategoryRuns;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!kCategories[runs[i] & 31].starts_with(prefix)) continue;
    const uint32_t last = i + 1 < runs.size() ? (runs[i + 1] >> 5) - 1 : kLastCodePoint;
    set.push_back({runs[i] >> 5, last});
  }
  return normalize(std::move(set));
}

}  // namespace

CodeSet normalize(CodeSet set) {
  std::sort(set.begin(), set.end());
  CodeSet out;
  for (const CodeRange& r : set) {
    if (!out.empty() && r.first <= out.back().last + 1) {
      out.back().last = std::max(out.back().last, r.last);
    } else {
      out.push_back(r);
    }
  }
  return out;
}

CodeSet complement(const CodeSet& set) {
  CodeSet out;
  uint32_t next = 0;
  for (const CodeRange& r : set) {
    if (r.first > next) out.push_back({next, r.first - 1});
    next = r.last + 1;
  }
  if (next <= kLastCodePoint) out.push_back({next, kLastCodePoint});
  return out;
}

void add_all(CodeSet& set, const CodeSet& more) { set.insert(set.end(), more.begin(), more.end()); }

std::optional<CodeSet> unicode_property(std::string_view name) {
  const std::string key = lower(name);
  if (key.size() == 1 || key.size() == 2) {
    CodeSet set = categories(key);
    if (!set.empty()) return set;
  }
  if (key == "han") return from_table(kHan);
  if (key == "hiragana") return from_table(kHiragana);
  if (key == "katakana") return from_table(kKatakana);
  if (key == "hangul") return from_table(kHangul);
  if (key == "latin") return from_table(kLatin);
  if (key == "greek") return from_table(kGreek);
  if (key == "cyrillic") return from_table(kCyrillic);
  if (key == "arabic") return from_table(kArabic);
  if (key == "hebrew") return from_table(kHebrew);
  if (key == "thai") return from_table(kThai);
  if (key == "devanagari") return from_table(kDevanagari);
  return std::nullopt;
}

CodeSet unicode_space() { return from_table(kSpace); }
CodeSet unicode_word() { return from_table(kWord); }
CodeSet unicode_decimal() { return categories("nd"); }
CodeSet unicode_digits() { return from_table(kDigits); }
CodeSet unicode_nfc_active() { return from_table(kNfcActive); }

CodeSet fold_ascii(uint32_t code) {
  const uint32_t small = code | 0x20;
  if (code > 0x7f || small < 'a' || small > 'z') return {{code, code}};
  CodeSet set = {{small, small}, {small - 0x20, small - 0x20}};
  const std::span<const uint32_t> folds = kFolds;
  for (size_t i = 0; i + 1 < folds.size(); i += 2) {
    if (folds[i] == small) set.push_back({folds[i + 1], folds[i + 1]});
  }
  return normalize(std::move(set));
}

bool folds_to_ligature(uint32_t first, uint32_t second) {
  if (first > 0x7f || second > 0x7f) return false;
  const uint32_t pair = (first | 0x20) << 8 | (second | 0x20);
  return std::find(std::begin(kFoldPairs), std::end(kFoldPairs), pair) != std::end(kFoldPairs);
}

CodePointMap::CodePointMap(const std::vector<Run>& runs) : page_of_((kLastCodePoint >> 8) + 1) {
  std::map<std::string, uint16_t> known;
  std::string page(256, '\0');
  size_t run = 0;
  for (uint32_t p = 0; p < page_of_.size(); ++p) {
    const uint32_t first = p << 8;
    while (run + 1 < runs.size() && runs[run + 1].start <= first) ++run;
    const bool uniform = run + 1 == runs.size() || runs[run + 1].start > first + 255;
    if (uniform && p > 0 && page == std::string(256, static_cast<char>(runs[run].value))) {
      page_of_[p] = page_of_[p - 1];
      continue;
    }
    for (uint32_t i = 0; i < 256; ++i) {
      while (run + 1 < runs.size() && runs[run + 1].start <= (first | i)) ++run;
      page[i] = static_cast<char>(runs[run].value);
    }
    const auto [at, added] = known.emplace(page, static_cast<uint16_t>(known.size()));
    if (added) pages_.insert(pages_.end(), page.begin(), page.end());
    page_of_[p] = at->second;
  }
}

CodePointMap CodePointMap::of_set(const CodeSet& set) {
  std::vector<Run> runs = {{0, 0}};
  for (const CodeRange& r : set) {
    if (r.first == 0) runs.clear();
    runs.push_back({r.first, 1});
    if (r.last < kLastCodePoint) runs.push_back({r.last + 1, 0});
  }
  return CodePointMap(runs);
}

}  // namespace spk
