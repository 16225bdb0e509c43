// One walk down the trie per position whose byte can start a token.
#include "text/added_tokens.h"

#include "text/unicode.h"
#include "text/utf8.h"

namespace spk {
namespace {

bool is_space(uint32_t code) {
  static const CodePointMap kSpaces = CodePointMap::of_set(unicode_space());
  return kSpaces[code] != 0;
}

size_t skip_space(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Utf8Char c = read_utf8(text.substr(at));
    if (!is_space(c.code)) break;
    at += c.length;
  }
  return at;
}

size_t skip_space_back(std::string_view text, size_t at, size_t limit) {
  while (at > limit) {
    size_t start = at - 1;
    while (start > limit && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) --start;
    if (!is_space(read_utf8(text.substr(start)).code)) break;
    at = start;
  }
  return at;
}

}  // namespace

uint32_t AddedTokenSet::child(uint32_t node, unsigned char byte) const {
  for (const auto& [edge, to] : nodes_[node].next) {
    if (edge == byte) return to;
  }
  return 0;
}

void AddedTokenSet::add(std::string_view pattern, const AddedToken& token) {
  if (pattern.empty()) return;
  uint32_t node = 0;
  for (const char c : pattern) {
    const auto byte = static_cast<unsigned char>(c);
    uint32_t to = child(node, byte);
    if (to == 0) {
      to = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
      nodes_[node].next.emplace_back(byte, to);
    }
    node = to;
  }
  starts_[static_cast<unsigned char>(pattern[0])] = true;
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back({token.id, token.lstrip, token.rstrip});
}

bool AddedTokenSet::find(std::string_view text, size_t from, Found& found) const {
  for (size_t i = from; i < text.size(); ++i) {
    if (!starts_[static_cast<unsigned char>(text[i])]) continue;
    int32_t longest = -1;
    size_t end = i;
    uint32_t node = 0;
    for (size_t at = i; at < text.size(); ++at) {
      node = child(node, static_cast<unsigned char>(text[at]));
      if (node == 0) break;
      if (nodes_[node].token >= 0) {
        longest = nodes_[node].token;
        end = at + 1;
      }
    }
    if (longest < 0) continue;
    const Token& token = tokens_[static_cast<size_t>(longest)];
    found.begin = token.lstrip ? skip_space_back(text, i, from) : i;
    found.end = token.rstrip ? skip_space(text, end) : end;
    found.id = token.id;
    return true;
  }
  return false;
}

}  // namespace spk
