// Stop strings over a stream of text: nothing of a stop string is ever released.
//
// Text that may be the beginning of a stop string is held back until it is decided. Linear in the
// text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace spk {

class StopMatcher {
 public:
  // Empty strings are an Error(kUsage), so are more than 16.
  explicit StopMatcher(std::vector<std::string> stops);

  // Appends text; returns what may be shown now. stopped() turns true when a stop string is
  // complete; the text before its first occurrence is returned and everything from it on is
  // dropped.
  std::string push(std::string_view text);
  // The text held back, when the answer ended for another reason.
  std::string finish();
  bool stopped() const { return stopped_; }
  const std::string& matched() const { return matched_; }  // the stop string that ended it
  size_t held() const { return held_.size(); }             // bytes not yet decided

 private:
  std::vector<std::string> stops_;
  std::string held_;
  std::string matched_;
  bool stopped_ = false;
};

}  // namespace spk
