// The value that a worked answer ends in, as the field reads it: the number after "####", else the
// last number of the text.
//
// Owns what counts as a number in prose and when two values are equal. Pure functions; the table of
// forms is tests/extract_test.cc.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace spk {

// A number in plain decimal form: "$1,234.50." gives "1234.5", "-0" and "0.00" give "0". The first
// number after the first "####" that has one on its line, else the last number of the text; nothing
// when there is none.
//   1,234   thousands are groups of exactly three after one to three digits: "1,2,3" is a list
//   1 234   not joined: prose puts numbers side by side; no-break and thin spaces do join
//   -5      a minus counts where no operand stands before it: "8-5" ends in 5
//   .5, 5.  a leading point counts, a trailing one ends the sentence
//   3/4     two numbers; 50%, $5, 5km: what surrounds the digits is left out
std::optional<std::string> extract_number(std::string_view text);

// What a question file's `answer` asks for: the text after its last "####", else all of it,
// trimmed. `numeric`: it is one number, perhaps with a currency before and one word of unit after
// it; `value` is then in plain form.
struct GoldAnswer {
  std::string value;
  bool numeric = false;
};
GoldAnswer parse_gold(std::string_view answer);

// The answer's value in the form of `gold`: a number, or the text after the last "####", else the
// last line that is not empty, without case, outer white space, a trailing period and markdown's
// stars.
std::optional<std::string> extract_answer(std::string_view text, const GoldAnswer& gold);
bool same_answer(const std::optional<std::string>& answer, const GoldAnswer& gold);

}  // namespace spk
