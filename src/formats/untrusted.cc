#include "formats/untrusted.h"

#include <algorithm>

namespace spk {

std::string printable(std::string_view text) {
  constexpr size_t kLimit = 160;
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    if (out.size() >= kLimit) return out + "...";
    const auto u = static_cast<unsigned char>(c);
    if (u >= 0x20 && u < 0x7f) {
      out += c;
    } else {
      out += "\\x";
      out += kHex[u >> 4];
      out += kHex[u & 15];
    }
  }
  return out;
}

void Complaints::throw_if_any(std::string_view heading) const {
  if (count_ == 0) return;
  std::string text(heading);
  if (count_ == 1) fail_input(text, ": ", lines_[0]);
  text += cat(": ", count_, " problems");
  for (const std::string& line : lines_) text += "\n  " + line;
  if (count_ > lines_.size()) text += cat("\n  ... and ", count_ - lines_.size(), " more");
  throw Error(ErrorKind::kInput, text);
}

size_t json_depth(std::string_view text) {
  size_t depth = 0;
  size_t deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return deepest;
}

}  // namespace spk
