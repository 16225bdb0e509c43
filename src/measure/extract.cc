#include "measure/extract.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <utility>
#include <vector>

namespace spk {
namespace {

constexpr std::string_view kMarker = "####";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

std::string_view trim(std::string_view s) {
  while (!s.empty() && is_space(s.front())) s.remove_prefix(1);
  while (!s.empty() && is_space(s.back())) s.remove_suffix(1);
  return s;
}

// U+FF10 to U+FF19 at the start of the text as 0 to 9, else -1.
int wide_digit(std::string_view s) {
  if (s.size() < 3 || s.substr(0, 2) != "\xef\xbc") return -1;
  const int last = static_cast<unsigned char>(s[2]);
  return last >= 0x90 && last <= 0x99 ? last - 0x90 : -1;
}

// What typesetting puts into numbers, as ASCII: the true minus and the dash that stands in for it,
// currencies, digit groups set apart by LaTeX or by spaces that do not break, the digits of East
// Asian full width.
std::string plain(std::string_view text) {
  static constexpr std::pair<std::string_view, std::string_view> kForms[] = {
      {"\xe2\x88\x92", "-"},  // minus sign
      {"\xe2\x80\x93", "-"},  // en dash
      {"\xef\xbc\x8d", "-"},  // minus of full width
      {"\\$", "$"},          {"\xe2\x82\xac", "$"},    {"\xc2\xa3", "$"},
      {"\xc2\xa5", "$"},     {"\xef\xbf\xa5", "$"},  // euro, pound, yen
      {"\xc2\xa0", "\x01"},  {"\xe2\x80\x89", "\x01"}, {"\xe2\x80\xaf", "\x01"},
      {"{,}", "\x01"},       {"\\,", "\x01"},          {",\\!", "\x01"},
      {"\xef\xbc\x8c", ","}, {"\xef\xbc\x8e", "."},  // comma and point of full width
  };
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const std::string_view rest = text.substr(i);
    const auto* form = std::find_if(std::begin(kForms), std::end(kForms), [&](const auto& f) {
      return rest.substr(0, f.first.size()) == f.first;
    });
    if (form != std::end(kForms)) {
      out += form->second;
      i += form->first.size();
    } else if (const int digit = wide_digit(rest); digit >= 0) {
      out += static_cast<char>('0' + digit);
      i += 3;
    } else {
      out += text[i++];
    }
  }
  return out;
}

// A number found in plain text: where it stands, with its sign, and its value in plain form.
struct Found {
  size_t begin, end;
  std::string value;
};

size_t digits_from(std::string_view s, size_t at) {
  size_t end = at;
  while (end < s.size() && is_digit(s[end])) ++end;
  return end - at;
}

// Whether the '-' at `at` is a sign: no operand before it.
bool is_sign(std::string_view s, size_t at) {
  if (at > 0 && (is_letter(s[at - 1]) || s[at - 1] == '-')) return false;  // "pre-1", "--5"
  while (at > 0 && s[at - 1] == ' ') --at;
  return at == 0 || !(is_digit(s[at - 1]) || s[at - 1] == ')' || s[at - 1] == '%');
}

std::string normal(bool negative, std::string whole, std::string fraction) {
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
  fraction.erase(fraction.find_last_not_of('0') + 1);
  if (whole.empty()) whole = "0";
  const bool zero = whole == "0" && fraction.empty();
  return (negative && !zero ? "-" : "") + whole + (fraction.empty() ? "" : "." + fraction);
}

// The number that starts at or after `from`.
std::optional<Found> next_number(std::string_view s, size_t from) {
  for (size_t i = from; i < s.size(); ++i) {
    const bool point =
        s[i] == '.' && i + 1 < s.size() && is_digit(s[i + 1]) && (i == 0 || !is_digit(s[i - 1]));
    if (!is_digit(s[i]) && !point) continue;
    size_t end = i + digits_from(s, i);
    if (i >= 2 && s[i - 1] == '^' && is_letter(s[i - 2])) {  // cm^2 is a unit
      i = end;
      continue;
    }
    std::string whole(s.substr(i, end - i));
    if (!whole.empty() && whole.size() <= 3) {
      while (end < s.size() && (s[end] == ',' || s[end] == '\x01') &&
             digits_from(s, end + 1) == 3) {
        whole += s.substr(end + 1, 3);
        end += 4;
      }
    }
    std::string fraction;
    if (end + 1 < s.size() && s[end] == '.' && is_digit(s[end + 1])) {
      const size_t n = digits_from(s, end + 1);
      fraction = s.substr(end + 1, n);
      end += 1 + n;
    }
    // The sign stands before the digits or before the currency: -5, -$5, $-5.
    size_t begin = i;
    const auto minus_before = [&](size_t at) {
      return at > 0 && s[at - 1] == '-' && is_sign(s, at - 1);
    };
    bool negative = minus_before(i);
    if (negative) {
      begin = i - 1;
    } else if (i > 0 && s[i - 1] == '$' && minus_before(i - 1)) {
      negative = true;
      begin = i - 2;
    }
    return Found{begin, end, normal(negative, std::move(whole), std::move(fraction))};
  }
  return std::nullopt;
}

std::string folded(std::string_view text) {
  std::string out;
  for (const char c : trim(text)) {
    if (c == '*') continue;
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  if (!out.empty() && out.back() == '.') out.pop_back();
  return std::string(trim(out));
}

}  // namespace

std::optional<std::string> extract_number(std::string_view raw) {
  const std::string text = plain(raw);
  const std::string_view s = text;
  for (size_t at = s.find(kMarker); at != std::string_view::npos; at = s.find(kMarker, at)) {
    at += kMarker.size();
    const std::string_view line = s.substr(at, s.find('\n', at) - at);
    if (const auto found = next_number(line, 0)) return found->value;
  }
  std::optional<std::string> last;
  for (auto found = next_number(s, 0); found; found = next_number(s, found->end)) {
    last = std::move(found->value);
  }
  return last;
}

GoldAnswer parse_gold(std::string_view answer) {
  const size_t marker = answer.rfind(kMarker);
  if (marker != std::string_view::npos) answer.remove_prefix(marker + kMarker.size());
  GoldAnswer gold;
  gold.value = trim(answer);
  const std::string text = plain(gold.value);
  const auto found = next_number(text, 0);
  if (!found) return gold;
  // Nothing but a currency before it.
  const std::string_view before = trim(std::string_view(text).substr(0, found->begin));
  if (!before.empty() && before != "$") return gold;
  const std::string_view unit = trim(std::string_view(text).substr(found->end));
  if (std::any_of(unit.begin(), unit.end(), [](char c) { return is_digit(c) || is_space(c); }))
    return gold;
  gold.numeric = true;
  gold.value = found->value;
  return gold;
}

std::optional<std::string> extract_answer(std::string_view text, const GoldAnswer& gold) {
  if (gold.numeric) return extract_number(text);
  const size_t marker = text.rfind(kMarker);
  if (marker != std::string_view::npos) text.remove_prefix(marker + kMarker.size());
  text = trim(text);
  text = marker != std::string_view::npos ? text.substr(0, text.find('\n'))
                                          : text.substr(text.rfind('\n') + 1);
  std::string answer = folded(text);
  if (answer.empty()) return std::nullopt;
  return answer;
}

bool same_answer(const std::optional<std::string>& answer, const GoldAnswer& gold) {
  return answer && *answer == (gold.numeric ? gold.value : folded(gold.value));
}

}  // namespace spk
