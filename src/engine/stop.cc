#include "engine/stop.h"

#include "base/error.h"

#include <algorithm>
#include <utility>

namespace spk {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  if (stops_.size() > 16) fail_usage("stop: expected at most 16 strings, found ", stops_.size());
  for (const std::string& s : stops_)
    if (s.empty()) fail_usage("stop: expected a string of at least one byte, found an empty one");
}

std::string StopMatcher::push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  size_t cut = std::string::npos;
  for (const std::string& s : stops_) {
    const size_t at = held_.find(s);
    if (at < cut) {
      cut = at;
      matched_ = s;
    }
  }
  if (cut != std::string::npos) {
    stopped_ = true;
    held_.resize(cut);
    return std::exchange(held_, {});
  }
  // The longest suffix that is a proper prefix of some stop string must wait.
  size_t keep = 0;
  for (const std::string& s : stops_) {
    for (size_t n = std::min(s.size() - 1, held_.size()); n > keep; --n) {
      if (held_.compare(held_.size() - n, n, s, 0, n) == 0) keep = n;
    }
  }
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return out;
}

std::string StopMatcher::finish() { return std::exchange(held_, {}); }

}  // namespace spk
