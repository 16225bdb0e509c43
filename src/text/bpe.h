// Byte-pair encoding of one word: the bytes' tokens are joined, the pair of lowest rank first, the
// leftmost among equals, until no pair of neighbours can be joined.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace spk {

struct BpeScratch {
  std::vector<int32_t> id;     // per symbol of a long word
  std::vector<uint32_t> next;  // index of the neighbour; next of the last is the size
  std::vector<uint32_t> prev;
  std::vector<uint32_t>
      rank;  // of the pair that starts here; kNoRank when none or when merged away
  std::vector<uint64_t> heap;  // rank << 32 | index
};

// Immutable after the last add_merge; then thread-safe.
class Bpe {
 public:
  static constexpr uint32_t kNoRank = 0xffffffff;

  Bpe() = default;
  Bpe(const std::array<int32_t, 256>& byte_ids, size_t merges);

  // A later merge of the same pair replaces the earlier one, as in the Hugging Face package.
  void add_merge(int32_t left, int32_t right, uint32_t rank, int32_t joined);

  // Appends the tokens of the word. Linear scans for short words, a heap for long ones: n log n
  // whatever the text is.
  void encode(std::string_view word, std::vector<int32_t>& out, BpeScratch& scratch) const;

 private:
  struct Entry {
    uint64_t pair = ~uint64_t{0};  // left << 32 | right; all ones is free
    uint32_t rank = kNoRank;
    int32_t joined = 0;
  };
  const Entry* find(int32_t left, int32_t right) const;
  uint32_t rank(int32_t left, int32_t right) const {
    const Entry* entry = find(left, right);
    return entry ? entry->rank : kNoRank;
  }
  void encode_short(std::string_view word, std::vector<int32_t>& out) const;
  void encode_long(std::string_view word, std::vector<int32_t>& out, BpeScratch& scratch) const;

  std::array<int32_t, 256> byte_ids_{};
  std::vector<Entry> table_;  // open addressing, a power of two, at most half full
  uint64_t mask_ = 0;
};

}  // namespace spk
