#include "cli/draft_ids.h"

#include "base/error.h"
#include "formats/untrusted.h"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace spk::cli {
namespace {

// "id count" -> id; nullopt when the line is something else.
std::optional<int64_t> id_of(std::string_view line) {
  int64_t id = 0, count = 0;
  const char* end = line.data() + line.size();
  const auto first = std::from_chars(line.data(), end, id);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ' ') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, count);
  if (second.ec != std::errc() || second.ptr != end || count < 0) return std::nullopt;
  return id;
}

}  // namespace

std::vector<int32_t> draft_ids(int64_t rows, int64_t vocab,
                               const std::optional<std::string>& counts, std::string_view file) {
  if (rows > vocab)
    fail_usage("--draft-head: expected at most ", vocab, " rows (the vocabulary), found ", rows);
  std::vector<bool> taken(static_cast<size_t>(vocab), false);
  std::vector<int32_t> ids;
  std::string_view rest = counts ? std::string_view(*counts) : std::string_view();
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::optional<int64_t> id = id_of(line);
    if (!id || *id < 0 || *id >= vocab || taken[static_cast<size_t>(*id)]) {
      fail_input(printable(file), " line ", number, ": expected 'id count' with an id from 0 to ",
                 vocab - 1, " that was not there before, found '", printable(line.substr(0, 60)),
                 "'");
    }
    taken[static_cast<size_t>(*id)] = true;
    if (static_cast<int64_t>(ids.size()) < rows) ids.push_back(static_cast<int32_t>(*id));
  }
  for (int64_t id = 0; static_cast<int64_t>(ids.size()) < rows; ++id)
    if (!taken[static_cast<size_t>(id)]) ids.push_back(static_cast<int32_t>(id));
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace spk::cli
