#include "cli/draft_ids.h"

#include "base/error.h"
#include "formats/untrusted.h"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace spk::cli {
namespace {

struct Count {
  int64_t id = 0, count = 0;
};

// "id count"; nullopt when the line is something else.
std::optional<Count> count_of(std::string_view line) {
  Count c;
  const char* end = line.data() + line.size();
  const auto first = std::from_chars(line.data(), end, c.id);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ' ') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, c.count);
  if (second.ec != std::errc() || second.ptr != end || c.count < 0) return std::nullopt;
  return c;
}

// All lines, the most frequent first; equal ones in their order.
std::vector<Count> counts_of(std::string_view text, int64_t vocab, std::string_view file) {
  std::vector<bool> taken(static_cast<size_t>(vocab), false);
  std::vector<Count> all;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::optional<Count> c = count_of(line);
    if (!c || c->id < 0 || c->id >= vocab || taken[static_cast<size_t>(c->id)]) {
      fail_input(printable(file), " line ", number, ": expected 'id count' with an id from 0 to ",
                 vocab - 1, " that was not there before, found '", printable(line.substr(0, 60)),
                 "'");
    }
    taken[static_cast<size_t>(c->id)] = true;
    all.push_back(*c);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Count& a, const Count& b) { return a.count > b.count; });
  return all;
}

}  // namespace

std::vector<int32_t> draft_ids(int64_t rows, int64_t vocab,
                               const std::optional<std::string>& counts, std::string_view file) {
  if (rows > vocab)
    fail_usage("--draft-head: expected at most ", vocab, " rows (the vocabulary), found ", rows);
  std::vector<bool> taken(static_cast<size_t>(vocab), false);
  std::vector<int32_t> ids;
  for (const Count& c : counts_of(counts ? *counts : std::string_view(), vocab, file)) {
    taken[static_cast<size_t>(c.id)] = true;
    if (static_cast<int64_t>(ids.size()) < rows) ids.push_back(static_cast<int32_t>(c.id));
  }
  for (int64_t id = 0; static_cast<int64_t>(ids.size()) < rows; ++id)
    if (!taken[static_cast<size_t>(id)]) ids.push_back(static_cast<int32_t>(id));
  std::sort(ids.begin(), ids.end());
  return ids;
}

int64_t frequent_rows(int64_t vocab, std::string_view counts, std::string_view file) {
  constexpr int64_t kStep = 256;  // rows that the packed kernels and several workers share evenly
  constexpr double kHeld = 0.975;
  const std::vector<Count> all = counts_of(counts, vocab, file);
  double total = 0, held = 0;
  for (const Count& c : all) total += static_cast<double>(c.count);
  int64_t rows = 0;
  for (; rows < static_cast<int64_t>(all.size()) && (held < kHeld * total || rows % kStep != 0);
       ++rows)
    held += static_cast<double>(all[static_cast<size_t>(rows)].count);
  return rows % kStep == 0 && 2 * rows <= vocab ? rows : 0;
}

}  // namespace spk::cli
