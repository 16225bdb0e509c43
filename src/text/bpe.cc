// The merge loop, twice: arrays on the stack for the usual word of some bytes, a heap and a linked
// list for the rest.
#include "text/bpe.h"

#include "base/error.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace spk {
namespace {

// Measured on English, Chinese and code: above some 40 symbols the heap wins.
constexpr size_t kShortWord = 40;

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}
uint64_t mix(uint64_t key) {
  key *= 0x9e3779b97f4a7c15u;
  return key ^ key >> 32;
}

}  // namespace

Bpe::Bpe(const std::array<int32_t, 256>& byte_ids, size_t merges) : byte_ids_(byte_ids) {
  table_.resize(std::bit_ceil(merges * 2 + 2));
  mask_ = table_.size() - 1;
}

void Bpe::add_merge(int32_t left, int32_t right, uint32_t rank, int32_t joined) {
  const uint64_t key = pair_key(left, right);
  uint64_t slot = mix(key) & mask_;
  while (table_[slot].pair != key && table_[slot].rank != kNoRank) slot = (slot + 1) & mask_;
  table_[slot] = {key, rank, joined};
}

const Bpe::Entry* Bpe::find(int32_t left, int32_t right) const {
  const uint64_t key = pair_key(left, right);
  for (uint64_t slot = mix(key) & mask_;; slot = (slot + 1) & mask_) {
    const Entry& entry = table_[slot];
    if (entry.pair == key) return &entry;
    if (entry.rank == kNoRank) return nullptr;
  }
}

void Bpe::encode(std::string_view word, std::vector<int32_t>& out, BpeScratch& scratch) const {
  if (word.size() == 1) {
    out.push_back(byte_ids_[static_cast<unsigned char>(word[0])]);
  } else if (word.size() <= kShortWord) {
    encode_short(word, out);
  } else {
    encode_long(word, out, scratch);
  }
}

void Bpe::encode_short(std::string_view word, std::vector<int32_t>& out) const {
  std::array<int32_t, kShortWord> id;
  std::array<uint32_t, kShortWord> ranks;  // of the pair (i, i + 1)
  size_t n = word.size();
  if (n == 0) return;
  for (size_t i = 0; i < n; ++i) id[i] = byte_ids_[static_cast<unsigned char>(word[i])];
  for (size_t i = 0; i + 1 < n; ++i) ranks[i] = rank(id[i], id[i + 1]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == kNoRank) break;
    id[best] = find(id[best], id[best + 1])->joined;
    --n;
    for (size_t i = best + 1; i < n; ++i) {
      id[i] = id[i + 1];
      ranks[i - 1] = ranks[i];
    }
    if (best > 0) ranks[best - 1] = rank(id[best - 1], id[best]);
    if (best + 1 < n) ranks[best] = rank(id[best], id[best + 1]);
  }
  out.insert(out.end(), id.begin(), id.begin() + static_cast<std::ptrdiff_t>(n));
}

void Bpe::encode_long(std::string_view word, std::vector<int32_t>& out, BpeScratch& s) const {
  SPK_CHECK(word.size() < (size_t{1} << 31));
  const auto n = static_cast<uint32_t>(word.size());
  s.id.resize(n);
  s.next.resize(n);
  s.prev.resize(n);
  s.rank.resize(n);
  s.heap.clear();
  for (uint32_t i = 0; i < n; ++i) {
    s.id[i] = byte_ids_[static_cast<unsigned char>(word[i])];
    s.next[i] = i + 1;
    s.prev[i] = i - 1;  // wraps for the first: never followed
  }
  // A heap entry counts only while the pair at its index still has its rank, so outdated ones need
  // no search.
  const auto update = [&](uint32_t i) {
    const uint32_t right = s.next[i];
    s.rank[i] = right < n ? rank(s.id[i], s.id[right]) : kNoRank;
    return s.rank[i] != kNoRank;
  };
  const auto entry = [&](uint32_t i) { return static_cast<uint64_t>(s.rank[i]) << 32 | i; };
  for (uint32_t i = 0; i < n; ++i) {
    if (update(i)) s.heap.push_back(entry(i));
  }
  std::make_heap(s.heap.begin(), s.heap.end(), std::greater<>());
  const auto push = [&](uint32_t i) {
    if (!update(i)) return;
    s.heap.push_back(entry(i));
    std::push_heap(s.heap.begin(), s.heap.end(), std::greater<>());
  };
  while (!s.heap.empty()) {
    std::pop_heap(s.heap.begin(), s.heap.end(), std::greater<>());
    const uint64_t top = s.heap.back();
    s.heap.pop_back();
    const auto i = static_cast<uint32_t>(top);
    if (s.rank[i] != static_cast<uint32_t>(top >> 32)) continue;
    const uint32_t right = s.next[i];
    s.id[i] = find(s.id[i], s.id[right])->joined;
    s.rank[right] = kNoRank;
    s.next[i] = s.next[right];
    if (s.next[i] < n) s.prev[s.next[i]] = i;
    push(i);
    if (i > 0) push(s.prev[i]);
  }
  for (uint32_t i = 0; i < n; i = s.next[i]) out.push_back(s.id[i]);
}

}  // namespace spk
