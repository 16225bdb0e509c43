// Remembers the tokens of the words of one text, because most words come many times.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace spk {

// Direct-mapped and of fixed size: a new word simply takes the place of an old one, so a hostile
// text of only new words costs one failed comparison each and no memory. Keys are views into the
// text, values places in the list of ids.
class WordCache {
 public:
  // Sized for the text: 64 Ki entries (2 MiB) hold the words of any usual text, small texts need
  // little.
  explicit WordCache(size_t text_bytes)
      : slots_(std::bit_ceil(std::min<size_t>(std::max<size_t>(text_bytes / 4, 16), 65536))) {}

  struct Slot {
    const char* word = nullptr;
    uint32_t size = 0;
    uint32_t count = 0;
    size_t first = 0;  // where in the list of ids the word was last encoded
    bool holds(std::string_view text) const {
      return word != nullptr && size == text.size() && std::memcmp(word, text.data(), size) == 0;
    }
  };

  Slot& slot(std::string_view word) { return slots_[hash(word) & (slots_.size() - 1)]; }

 private:
  static uint64_t hash(std::string_view word) {
    uint64_t h = word.size() * 0x9e3779b97f4a7c15u;
    size_t i = 0;
    for (; i + 8 <= word.size(); i += 8) h = step(h, word.data() + i, 8);
    if (i < word.size()) h = step(h, word.data() + i, word.size() - i);
    return h ^ h >> 29;
  }
  static uint64_t step(uint64_t h, const char* from, size_t n) {
    uint64_t block = 0;
    std::memcpy(&block, from, n);
    h = (h ^ block) * 0xff51afd7ed558ccdu;
    return h ^ h >> 32;
  }

  std::vector<Slot> slots_;
};

}  // namespace spk
