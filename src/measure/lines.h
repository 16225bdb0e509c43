// Files of one value a line, from anybody.
#pragma once

#include "base/error.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace spk {

// take(line, place, number) for each line that is not blank; `place` names file and line for
// messages.
template <typename Take>
void for_each_line(std::string_view bytes, const std::string& path, Take take) {
  size_t number = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', at), bytes.size());
    const std::string_view line = bytes.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    take(line, cat(path, ": line ", number), number);
  }
}

}  // namespace spk
