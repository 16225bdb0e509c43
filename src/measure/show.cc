#include "measure/show.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>

namespace spk {

std::string fixed(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}
std::string show_duration(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 90) return std::to_string(whole) + " s";
  const int64_t minutes = (whole + 30) / 60;
  if (minutes < 60) return std::to_string(minutes) + " min";
  const int64_t rest = minutes % 60;
  return std::to_string(minutes / 60) + (rest < 10 ? " h 0" : " h ") + std::to_string(rest) +
         " min";
}
std::string left_aligned(const std::string& text, size_t width) {
  return text + std::string(std::max(width, text.size()) - text.size(), ' ');
}
std::string right_aligned(const std::string& text, size_t width) {
  return std::string(std::max(width, text.size()) - text.size(), ' ') + text;
}

}  // namespace spk
