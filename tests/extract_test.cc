// Every form in which an answer's value was seen or is likely to be written, and what counts.
#include "measure/extract.h"

#include <gtest/gtest.h>

#include <string>

namespace spk {
namespace {

struct Form {
  const char* text;
  const char* value;  // null: no number in it
};

// The value after the marker.
constexpr Form kMarked[] = {
    {"She makes 9 * 2 = $<<9*2=18>>18 a day.\n#### 18", "18"},
    {"#### 18", "18"},
    {"####18", "18"},
    {"####   18   ", "18"},
    {"#### 18.", "18"},
    {"#### 18.0", "18"},
    {"#### 18.00", "18"},
    {"#### 18.50", "18.5"},
    {"#### $18", "18"},
    {"#### $18.00.", "18"},
    {"#### \\$18", "18"},
    {"#### 18$", "18"},
    {"#### \xe2\x82\xac"
     "18",
     "18"},
    {"#### \xc2\xa3"
     "1,250",
     "1250"},
    {"#### 1,234", "1234"},
    {"#### 1,234,567.", "1234567"},
    {"#### 1,234.50", "1234.5"},
    {"#### 18 dollars", "18"},
    {"#### 18 apples in 3 days", "18"},
    {"#### 18%", "18"},
    {"#### 18 \\%", "18"},
    {"#### 5km", "5"},
    {"#### -5", "-5"},
    {"#### -$5", "-5"},
    {"#### $-5", "-5"},
    {"#### -\\$5", "-5"},
    {"#### -\xe2\x82\xac"
     "5",
     "-5"},
    {"#### \xe2\x80\x93"
     "5",
     "-5"},
    {"#### \xef\xbc\x8d\xef\xbc\x95", "-5"},
    {"#### \xef\xbf\xa5"
     "1\xef\xbc\x8c"
     "250",
     "1250"},
    {"#### 1,\\!234", "1234"},
    {"#### \\$1{,}234.50", "1234.5"},
    {"#### ~18", "18"},
    {"#### 18!!!", "18"},
    {"#### 18 (see #### below)", "18"},
    {"#### \n\n#### 18", "18"},
    {"#### 1,234,56", "1234"},
    {"#### 18,", "18"},
    {"#### <<18=18>>18", "18"},
    {"#### \xe2\x88\x92"
     "5",
     "-5"},
    {"#### +5", "5"},
    {"#### .5", "0.5"},
    {"#### 0.50", "0.5"},
    {"#### 007", "7"},
    {"#### 0", "0"},
    {"#### -0", "0"},
    {"#### **18**", "18"},
    {"#### \\boxed{18}", "18"},
    {"#### The answer is 18.", "18"},
    {"#### = 18", "18"},
    {"##### 18", "18"},
    {"#### 18\n", "18"},
    {"#### 18\r\n", "18"},
    {"#### 18\n\nLet me check: 3 * 6 = 18, and 20 - 2 = 18. Step 2.", "18"},
    {"#### 18\n#### 19", "18"},
    {"#### none\nso 7 remain", "7"},
    {"#### \n12", "12"},
    {"456 liters\n#### 456", "456"},
    {"#### 1\xe2\x80\xaf"
     "234",
     "1234"},
    {"#### 1{,}234", "1234"},
    {"#### 1\\,234", "1234"},
    {"#### \xef\xbc\x91\xef\xbc\x98", "18"},
};

// No marker: the last number.
constexpr Form kUnmarked[] = {
    {"18", "18"},
    {"The answer is 18", "18"},
    {"The answer is 18.", "18"},
    {"The answer is 18!", "18"},
    {"**Answer:** 18", "18"},
    {"\\boxed{18}", "18"},
    {"So she has $1,234.", "1234"},
    {"So she has $1,234.56.", "1234.56"},
    {"It takes 20 - 2 = 18 days", "18"},
    {"He has 8-5", "5"},
    {"He has 8 - 5", "5"},
    {"He has 8 -5", "5"},
    {"It is -5 degrees", "-5"},
    {"(-5)", "-5"},
    {"x=-5", "-5"},
    {"between 3-5", "5"},
    {"between 3\xe2\x80\x93"
     "5",
     "5"},
    {"a loss of -$1,200.50", "-1200.5"},
    {"$18 - $5", "5"},
    {"$18 -$5", "5"},
    {"\\(\\boxed{-18}\\)", "-18"},
    {"\\boxed{\\$18}", "18"},
    {"**$18**", "18"},
    {"`18`", "18"},
    {"\xe7\xad\x94\xe6\xa1\x88\xe6\x98\xaf"
     "18\xe3\x80\x82",
     "18"},
    {"pages 3, 4, 5", "5"},
    {"pages 3,4,5", "5"},
    {"ids 1,2345", "2345"},
    {"ids 1234,567", "567"},
    {"3/4", "4"},
    {"at 3:30", "30"},
    {"1 234", "234"},
    {"version 2.", "2"},
    {"the 2nd", "2"},
    {"an area of 12 cm^2", "12"},
    {"Answer: 18 (eighteen)", "18"},
    {"### 7", "7"},
    {"- 18", "18"},
    {"non-5", "5"},
    {"no number here", nullptr},
    {"", nullptr},
    {"####", nullptr},
    {"...", nullptr},
    {"$,.-", nullptr},
};

void check(const Form& form) {
  const auto value = extract_number(form.text);
  if (form.value == nullptr) {
    EXPECT_FALSE(value) << form.text << " gave " << value.value_or("");
  } else {
    EXPECT_EQ(value.value_or("nothing"), form.value) << form.text;
  }
}

TEST(Extract, NumbersAfterTheMarker) {
  for (const Form& form : kMarked) check(form);
}
TEST(Extract, LastNumberWithoutMarker) {
  for (const Form& form : kUnmarked) check(form);
}
static_assert(std::size(kMarked) + std::size(kUnmarked) >= 60);

TEST(Extract, GoldAnswers) {
  const struct {
    const char* text;
    const char* value;
    bool numeric;
  } rows[] = {
      {"She makes <<9*2=18>>18.\n#### 18", "18", true},
      {"#### 70,000", "70000", true},
      {"18", "18", true},
      {" $18.00 ", "18", true},
      {"-$18", "-18", true},
      {"-\xe2\x82\xac"
       "18",
       "-18", true},
      {"\\$1,234", "1234", true},
      {"\xef\xbf\xa5"
       "18",
       "18", true},
      {"0", "0", true},
      {"1/2", "1/2", false},
      {"a18", "a18", false},
      {"5 apples", "5", true},
      {"-3", "-3", true},
      {"45%", "45", true},
      {"Paris", "Paris", false},
      {"#### Apollo 11", "Apollo 11", false},
      {"3 or 4", "3 or 4", false},
      {"7 of them are blue", "7 of them are blue", false},
      {"####", "", false},
  };
  for (const auto& row : rows) {
    const GoldAnswer gold = parse_gold(row.text);
    EXPECT_EQ(gold.value, row.value) << row.text;
    EXPECT_EQ(gold.numeric, row.numeric) << row.text;
  }
}

TEST(Extract, TextAnswersIgnoreCaseAndDecoration) {
  const GoldAnswer paris = parse_gold("Paris");
  for (const char* text : {"Paris", "paris.", "It is in France.\n**Paris**\n", "#### PARIS",
                           "Lyon\n#### Paris\nbecause"}) {
    EXPECT_TRUE(same_answer(extract_answer(text, paris), paris)) << text;
  }
  for (const char* text : {"", "Lyon", "Paris is it", "Paris\nLyon"}) {
    EXPECT_FALSE(same_answer(extract_answer(text, paris), paris)) << text;
  }
}

TEST(Extract, EqualNumbersInAnyForm) {
  const GoldAnswer gold = parse_gold("#### 1,200");
  for (const char* text : {"1200", "$1,200.00", "1200.0 dollars", "#### 1,200."})
    EXPECT_TRUE(same_answer(extract_answer(text, gold), gold)) << text;
  for (const char* text : {"1200.5", "-1200", "120", "none"})
    EXPECT_FALSE(same_answer(extract_answer(text, gold), gold)) << text;
}

}  // namespace
}  // namespace spk
