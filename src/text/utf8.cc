// Decoding by the lead byte's table of lengths and first continuation ranges (Unicode standard,
// table 3-7).
#include "text/utf8.h"

#include <cstring>
#include <utility>

namespace spk {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

struct Lead {
  uint32_t length;      // 0: cannot start a character
  unsigned char first;  // allowed range of the second byte
  unsigned char last;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xc2) return {0, 0, 0};
  if (byte < 0xe0) return {2, 0x80, 0xbf};
  if (byte == 0xe0) return {3, 0xa0, 0xbf};
  if (byte == 0xed) return {3, 0x80, 0x9f};
  if (byte < 0xf0) return {3, 0x80, 0xbf};
  if (byte == 0xf0) return {4, 0x90, 0xbf};
  if (byte < 0xf4) return {4, 0x80, 0xbf};
  if (byte == 0xf4) return {4, 0x80, 0x8f};
  return {0, 0, 0};
}

// Length of the run of ASCII that starts the text: eight bytes at a time, since most text is mostly
// that.
size_t ascii_run(std::string_view text) {
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if (word & 0x8080808080808080u) break;
  }
  while (i < text.size() && static_cast<unsigned char>(text[i]) < 0x80) ++i;
  return i;
}

// Offset of the first character that is not valid, or the size.
size_t valid_prefix(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    i += ascii_run(text.substr(i));
    if (i == text.size()) break;
    const Utf8Char c = read_utf8(text.substr(i));
    if (!c.valid) return i;
    i += c.length;
  }
  return i;
}

}  // namespace

Utf8Char read_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const Lead lead = lead_of(byte(0));
  if (lead.length == 1) return {byte(0), 1, true, false};
  if (lead.length == 0) return {0xfffd, 1, false, false};
  uint32_t code = byte(0) & (0x7fu >> lead.length);
  for (uint32_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {0xfffd, i, false, true};
    const unsigned char first = i == 1 ? lead.first : 0x80;
    const unsigned char last = i == 1 ? lead.last : 0xbf;
    if (byte(i) < first || byte(i) > last) return {0xfffd, i, false, false};
    code = code << 6 | (byte(i) & 0x3fu);
  }
  return {code, lead.length, true, false};
}

void append_utf8(std::string& out, uint32_t code) {
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

bool is_utf8(std::string_view text) { return valid_prefix(text) == text.size(); }

std::string clean_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t good = valid_prefix(text);
    out.append(text.substr(0, good));
    text.remove_prefix(good);
    if (text.empty()) break;
    out.append(kReplacement);
    text.remove_prefix(read_utf8(text).length);
  }
  return out;
}

std::string Utf8Stream::push(std::string_view bytes) {
  std::string text = std::move(held_);
  text.append(bytes);
  held_.clear();
  // Only the last three bytes can be the beginning of a character that the next push completes.
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const std::string_view tail = std::string_view(text).substr(text.size() - back);
    if (lead_of(static_cast<unsigned char>(tail[0])).length < 2) continue;
    const Utf8Char c = read_utf8(tail);
    if (c.cut && c.length == back) {
      held_ = text.substr(text.size() - back);
      text.erase(text.size() - back);
    }
    break;
  }
  return clean_utf8(text);
}

std::string Utf8Stream::finish() {
  std::string text = clean_utf8(held_);
  held_.clear();
  return text;
}

}  // namespace spk
