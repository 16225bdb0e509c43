// One JSON text of a file from anybody, before a parser builds a tree of it.
#pragma once

#include "base/error.h"
#include "base/json_whole.h"
#include "formats/untrusted.h"

#include <string>
#include <string_view>

namespace spk {

// json_whole of a text that is not nested deeper than anything that is read here: the library
// copies and prints trees by recursion, and 100,000 brackets would end the program. `place` names
// file and line.
inline std::string_view json_row(std::string_view text, const std::string& place) {
  constexpr size_t kMaxDepth = 32;
  if (const size_t depth = json_depth(text); depth > kMaxDepth)
    fail_input(place, ": expected JSON of at most ", kMaxDepth, " levels, found ", depth);
  return json_whole(text);
}

}  // namespace spk
