// Which rows a draft head gets, asked for in numbers or by token_counts.txt.
#include "cli/draft_ids.h"

#include "base/error.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace spk::cli {
namespace {

// `frequent` tokens from the highest id down that were seen `times` times each, then all others
// once.
std::string counts(int64_t vocab, int64_t frequent, int64_t times) {
  std::string text;
  for (int64_t i = 0; i < vocab; ++i) {
    text += std::to_string(vocab - 1 - i);
    text += i < frequent ? " " + std::to_string(times) + "\n" : " 1\n";
  }
  return text;
}

TEST(DraftIds, AreTheMostFrequentAscending) {
  EXPECT_EQ(draft_ids(3, 10, "7 9\n2 8\n5 1\n1 1\n", "f"), (std::vector<int32_t>{2, 5, 7}));
  EXPECT_EQ(draft_ids(2, 10, "5 1\n2 8\n7 9\n", "f"), (std::vector<int32_t>{2, 7}));
  EXPECT_EQ(draft_ids(3, 10, "7 9\n", "f"), (std::vector<int32_t>{0, 1, 7}));
  EXPECT_EQ(draft_ids(2, 10, std::nullopt, "f"), (std::vector<int32_t>{0, 1}));
  EXPECT_THROW(draft_ids(11, 10, std::nullopt, "f"), Error);
  EXPECT_THROW(draft_ids(1, 10, "7 9\n7 8\n", "f"), Error);
}

TEST(DraftIds, AutomaticRowsHoldNearlyAllThatWasCounted) {
  // 300 tokens hold 300,000 of 303,796: 256 of them are 84 %, so one step more.
  EXPECT_EQ(frequent_rows(4096, counts(4096, 300, 1000), "f"), 512);
  EXPECT_EQ(frequent_rows(4096, counts(4096, 250, 1000), "f"), 256);
  // Every token as frequent as any other: a head of nearly all of them saves nothing.
  EXPECT_EQ(frequent_rows(4096, counts(4096, 0, 1), "f"), 0);
  EXPECT_EQ(frequent_rows(1024, counts(1024, 300, 100000), "f"), 512);
  EXPECT_EQ(frequent_rows(1000, counts(1000, 300, 100000), "f"), 0);  // 512 are more than half
  EXPECT_EQ(frequent_rows(4096, "5 100\n", "f"), 0);                  // one line is no 256 rows
  EXPECT_EQ(frequent_rows(4096, "", "f"), 0);
  EXPECT_THROW(frequent_rows(4096, "5 100\n4096 1\n", "f"), Error);
}

}  // namespace
}  // namespace spk::cli
