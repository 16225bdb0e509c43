// Which tokens a draft head knows (--draft-head ROWS).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spk::cli {

// The `rows` most frequent ids, ascending. `counts` is token_counts.txt of the checkpoint: lines
// "id count", most frequent first, as `tokenize --count` prints them; ids that it does not list
// follow in order, since byte-level BPE gives the frequent tokens the low ids. Error(kUsage) when
// the vocabulary is smaller than `rows`; Error(kInput) with file and line for a line that is none.
std::vector<int32_t> draft_ids(int64_t rows, int64_t vocab,
                               const std::optional<std::string>& counts, std::string_view file);

// Rows of a draft head that nobody asked for in numbers: the fewest multiples of 256 that hold
// 97.5 % of what `counts` counted, or 0 (the target's head) when that is more than half of the
// vocabulary. Errors as above.
int64_t frequent_rows(int64_t vocab, std::string_view counts, std::string_view file);

}  // namespace spk::cli
