// Which weights are taps of the short convolutions. Back ends keep those as floats and turned, one
// row per tap. Their name says it, as it does everywhere in the family: a shape does not, since a
// matrix may be as narrow as the convolution is long.
#pragma once

#include <string_view>

namespace spk {

inline bool is_conv_taps(std::string_view name) {
  constexpr std::string_view kEnd = "_conv1d.weight";
  return name.size() >= kEnd.size() && name.substr(name.size() - kEnd.size()) == kEnd;
}

}  // namespace spk
