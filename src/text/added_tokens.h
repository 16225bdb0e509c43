// Finds added tokens in text: leftmost first, the longest among those that start together.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spk {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool lstrip = false;      // takes the white space before it along
  bool rstrip = false;      // and the white space after it
  bool normalized = false;  // is looked for in normalised text
  bool special = false;
};

// A trie over bytes. Immutable after the last add; then thread-safe.
class AddedTokenSet {
 public:
  bool empty() const { return tokens_.empty(); }
  void add(std::string_view pattern, const AddedToken& token);

  struct Found {
    size_t begin;
    size_t end;
    int32_t id;
  };
  // The first token at or after `from`; white space that it strips is inside begin..end, but never
  // before `from`.
  bool find(std::string_view text, size_t from, Found& found) const;

 private:
  struct Node {
    std::vector<std::pair<unsigned char, uint32_t>> next;
    int32_t token = -1;  // index into tokens_
  };
  struct Token {
    int32_t id;
    bool lstrip;
    bool rstrip;
  };
  uint32_t child(uint32_t node, unsigned char byte) const;  // 0: none

  std::vector<Node> nodes_ = {Node{}};
  std::vector<Token> tokens_;
  std::array<bool, 256> starts_{};
};

}  // namespace spk
