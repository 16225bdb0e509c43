#include "engine/align.h"

#include <algorithm>
#include <string_view>

namespace spk {

std::vector<int32_t> align_prompt(std::span<const int32_t> live, std::span<const int32_t> prompt,
                                  const Tokenizer& tokenizer) {
  std::vector<int32_t> unchanged(prompt.begin(), prompt.end());
  size_t i = 0, j = 0;
  std::string_view a, b;  // what is left of the two tokens at hand
  while (i < live.size() || !a.empty()) {
    if (a.empty() && tokenizer.is_added(live[i])) {
      if (!b.empty() || j == prompt.size() || prompt[j] != live[i]) return unchanged;
      ++i, ++j;
      continue;
    }
    if (a.empty()) {
      a = tokenizer.token_bytes(live[i++]);
      if (a.empty()) return unchanged;  // an id without text cannot come back as text
    }
    if (b.empty()) {
      if (j == prompt.size() || tokenizer.is_added(prompt[j])) return unchanged;
      b = tokenizer.token_bytes(prompt[j++]);
    }
    const size_t n = std::min(a.size(), b.size());
    if (a.substr(0, n) != b.substr(0, n)) return unchanged;
    a.remove_prefix(n);
    b.remove_prefix(n);
  }
  if (!b.empty() || live.empty()) return unchanged;
  std::vector<int32_t> out(live.begin(), live.end());
  out.insert(out.end(), prompt.begin() + static_cast<std::ptrdiff_t>(j), prompt.end());
  return out;
}

}  // namespace spk
