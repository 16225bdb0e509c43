// UTF-8: reading one character, replacing what is no UTF-8, and doing so on a stream.
//
// One rule everywhere, that of Python's bytes.decode("utf-8", "replace") and of the Unicode
// standard's "maximal subpart": a truncated but so far legal sequence gives ONE U+FFFD and reading
// goes on at the byte that broke it; a byte that can start nothing gives one U+FFFD by itself. So
// E2 82 41 is U+FFFD 'A', and F5 80 is two U+FFFD.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace spk {

struct Utf8Char {
  uint32_t code;    // the code point; U+FFFD when not valid
  uint32_t length;  // bytes used, 1..4
  bool valid;
  bool cut;  // not valid only because the text ended: more bytes could complete it
};

// Reads the first character of a text that is not empty.
Utf8Char read_utf8(std::string_view text);

// Length in bytes of the character that starts with this byte, in text known to be UTF-8.
inline uint32_t utf8_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1u : byte < 0xe0 ? 2u : byte < 0xf0 ? 3u : 4u;
}

void append_utf8(std::string& out, uint32_t code);

bool is_utf8(std::string_view text);

// The text with every bad sequence replaced; equal to the text when is_utf8.
std::string clean_utf8(std::string_view text);

// The same on a stream: the pieces returned by push and finish are whole characters, and joined
// they are the clean form of everything pushed. At most three bytes are ever held back. Not
// thread-safe.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);
  std::string finish();

 private:
  std::string held_;
};

}  // namespace spk
