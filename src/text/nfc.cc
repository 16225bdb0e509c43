// NFC by the single-character decomposition and the composition of libutf8proc, with our own
// ordering between: the library's ordering takes quadratic time on a long run of combining marks,
// which any user can send.
#include "base/error.h"
#include "text/pretokenizer.h"
#include "text/unicode.h"
#include "text/utf8.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace spk {
namespace {

// Below U+0300 every character is its own NFC; lead bytes below 0xcc are exactly those.
bool all_below_0300(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0xcc; });
}

int combining_class(utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; }

// Canonical order, then composition, of one run of decomposed characters; appends it and empties
// it.
void flush(std::vector<utf8proc_int32_t>& codes, std::string& out) {
  std::vector<std::pair<int, utf8proc_int32_t>> marks;
  for (size_t i = 0; i < codes.size();) {
    marks.clear();
    size_t end = i;
    for (; end < codes.size(); ++end) {
      const int order = combining_class(codes[end]);
      if (order == 0) break;
      marks.emplace_back(order, codes[end]);
    }
    if (marks.size() > 1) {
      std::stable_sort(marks.begin(), marks.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
      for (size_t k = 0; k < marks.size(); ++k) codes[i + k] = marks[k].second;
    }
    i = end + 1;
  }
  constexpr auto kCompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  auto n = static_cast<utf8proc_ssize_t>(codes.size());
  if (n > 1) n = utf8proc_normalize_utf32(codes.data(), n, kCompose);
  SPK_CHECK(n >= 0);
  codes.resize(static_cast<size_t>(n));
  for (const utf8proc_int32_t code : codes) append_utf8(out, static_cast<uint32_t>(code));
  codes.clear();
}

}  // namespace

std::string to_nfc(std::string_view text) {
  if (all_below_0300(text)) return std::string(text);
  static const CodePointMap kActive = CodePointMap::of_set(unicode_nfc_active());
  constexpr auto kDecompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
  std::string out;
  out.reserve(text.size());
  std::vector<utf8proc_int32_t> codes;  // decomposed, since the last character that is not active
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = read_utf8(text.substr(i));
    if (kActive[c.code] == 0) {
      flush(codes, out);
      out.append(text.substr(i, c.length));
    } else {
      utf8proc_int32_t parts[32];
      int boundary = 0;
      const utf8proc_ssize_t n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code),
                                                         parts, 32, kDecompose, &boundary);
      SPK_CHECK(n >= 0 && n <= 32);
      codes.insert(codes.end(), parts, parts + n);
    }
    i += c.length;
  }
  flush(codes, out);
  return out;
}

}  // namespace spk
