#include "engine/stop.h"

#include "base/error.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

namespace spk {
namespace {

// What the rule says, on the whole text at once.
std::string plain_cut(const std::string& text, const std::vector<std::string>& stops) {
  size_t cut = text.size();
  for (const std::string& s : stops) cut = std::min(cut, text.find(s));
  return text.substr(0, cut);
}

// Whatever the pieces, the shown text ends right before the first stop string, and
// nothing of it is shown.
TEST(StopMatcher, PiecesDoNotMatter) {
  rc::check([] {
    const auto letters = rc::gen::container<std::string>(rc::gen::elementOf(std::string("abc")));
    const auto text = *letters;
    const auto count = *rc::gen::inRange(0, 4);
    std::vector<std::string> stops;
    for (int i = 0; i < count; ++i)
      stops.push_back(*rc::gen::container<std::string>(static_cast<size_t>(*rc::gen::inRange(1, 5)),
                                                       rc::gen::elementOf(std::string("abc"))));
    StopMatcher matcher(stops);
    std::string shown;
    for (size_t at = 0; at < text.size();) {
      const auto n = static_cast<size_t>(*rc::gen::inRange(1, 4));
      shown += matcher.push(std::string_view(text).substr(at, n));
      at += n;
      // Safe at any moment: what is shown is always a prefix of the final text.
      RC_ASSERT(plain_cut(text, stops).compare(0, shown.size(), shown) == 0);
    }
    if (!matcher.stopped()) shown += matcher.finish();
    RC_ASSERT(shown == plain_cut(text, stops));
  });
}

TEST(StopMatcher, LongAndManyStrings) {
  const std::string forty(40, 'x');
  StopMatcher matcher({forty, "ix, sev", "\n\n", "\xf0\x9f\x8c\x8d"});
  EXPECT_EQ(matcher.push("six, "), "s");  // "ix, " may go on to the stop string
  EXPECT_EQ(matcher.push("se"), "");
  EXPECT_EQ(matcher.push("lf"), "ix, self");
  EXPECT_EQ(matcher.push("xx"), "");
  EXPECT_EQ(matcher.push("y\n"), "xxy");
  EXPECT_EQ(matcher.push("\nrest"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.push("more"), "");
}

TEST(StopMatcher, RefusesWhatCannotBeMeant) {
  EXPECT_THROW(StopMatcher({""}), Error);
  EXPECT_THROW(StopMatcher(std::vector<std::string>(17, "a")), Error);
  EXPECT_NO_THROW(StopMatcher(std::vector<std::string>(16, "a")));
}

}  // namespace
}  // namespace spk
