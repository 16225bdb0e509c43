// What every JSON parser here is given instead of the text itself.
//
// The library takes a NUL for the end of the text and does not look at what follows: `{"a":1}`, a
// NUL and anything would be a valid document. A NUL stands nowhere in JSON, so a text with one
// becomes no text at all, which every parser refuses.
#pragma once

#include <string_view>

namespace spk {

inline std::string_view json_whole(std::string_view text) {
  return text.find('\0') == std::string_view::npos ? text : std::string_view();
}

}  // namespace spk
