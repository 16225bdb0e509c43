// Known template texts by hash.
#include "text/chat.h"

#include <array>
#include <cstdint>

namespace spk {
namespace {

struct Known {
  uint64_t hash;
  std::string_view name;
};
// A new text gets a line here only when the tests that run it through jinja2 agree with
// render_chat.
constexpr std::array<Known, 1> kKnown = {{
    {0x3733bb4cf2aa0719, "ling-nano"},
}};

// FNV-1a, 64 bits, over the text without carriage returns, white space at line ends and empty lines
// at the end.
uint64_t normalized_hash(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  std::string held;  // white space that counts only if more text follows on the line
  for (const char c : text) {
    if (c == '\r') continue;
    if (c == '\n') {
      while (!held.empty() && held.back() != '\n') held.pop_back();
      held += c;
    } else if (c == ' ' || c == '\t') {
      held += c;
    } else {
      held += c;
      for (const char h : held) hash = (hash ^ static_cast<unsigned char>(h)) * 0x100000001b3u;
      held.clear();
    }
  }
  return hash;
}

}  // namespace

TemplateMatch known_template(std::string_view jinja) {
  const uint64_t hash = normalized_hash(jinja);
  static constexpr char kHex[] = "0123456789abcdef";
  TemplateMatch match{false, {}, {}};
  for (int shift = 60; shift >= 0; shift -= 4) match.hash += kHex[hash >> shift & 15];
  for (const Known& known : kKnown) {
    if (known.hash != hash) continue;
    match.known = true;
    match.name = known.name;
  }
  return match;
}

}  // namespace spk
