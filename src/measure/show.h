// Numbers and columns of reports as text.
#pragma once

#include <cstddef>
#include <string>

namespace spk {

// printf's %.*f: no iostream state, no locale.
std::string fixed(double value, int decimals);
// "40 s", "12 min", "1 h 05 min".
std::string show_duration(double seconds);
std::string left_aligned(const std::string& text, size_t width);
std::string right_aligned(const std::string& text, size_t width);

}  // namespace spk
