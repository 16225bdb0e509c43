#include "cli/values.h"

#include "base/error.h"
#include "base/file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <system_error>

namespace spk::cli {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string show_real(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", value);
  return text.data();
}

bool is_separator(char c) { return c == ',' || c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// A binary or decimal unit as a factor; 0 when unknown.
double unit_factor(std::string_view unit) {
  const std::string u = lower(unit);
  if (u.empty() || u == "b") return 1.0;
  constexpr std::string_view kPrefixes = "kmgt";
  const size_t power = kPrefixes.find(u[0]);
  if (power == std::string_view::npos) return 0.0;
  const std::string_view rest = std::string_view(u).substr(1);
  if (rest == "ib" || rest == "i") return std::pow(1024.0, static_cast<double>(power + 1));
  if (rest == "b" || rest.empty()) return std::pow(1000.0, static_cast<double>(power + 1));
  return 0.0;
}

// Optimal string alignment distance; words are short, so the full table is fine.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

std::optional<int64_t> whole_number(std::string_view text, int64_t low, int64_t high) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const bool good = error == std::errc() && rest == end && !text.empty();
  if (!good || value < low || value > high) return std::nullopt;
  return value;
}

}  // namespace

std::optional<int64_t> parse_auto_or_int(std::string_view text, int64_t low, int64_t high) {
  if (text == "auto") return std::nullopt;
  const std::optional<int64_t> value = whole_number(text, low, high);
  if (!value)
    fail_usage("expected auto or a whole number from ", low, " to ", high, ", found '", text, "'");
  return value;
}

int64_t parse_int(std::string_view text, int64_t low, int64_t high) {
  const std::optional<int64_t> value = whole_number(text, low, high);
  if (!value) {
    if (high == std::numeric_limits<int64_t>::max() && low == 0) {
      fail_usage("expected a whole number from 0 to 2^63-1, found '", text, "'");
    }
    fail_usage("expected a whole number from ", low, " to ", high, ", found '", text, "'");
  }
  return *value;
}

double parse_real(std::string_view text, double low, double high) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || text.empty() || !(value >= low && value <= high)) {
    fail_usage("expected a number from ", show_real(low), " to ", show_real(high), ", found '",
               text, "'");
  }
  return value;
}

uint64_t parse_size(std::string_view text, uint64_t machine_bytes) {
  if (text.empty() || text == "none") return 0;
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  std::string_view unit(rest, static_cast<size_t>(end - rest));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  double bytes = -1;
  if (error == std::errc() && number > 0) {
    if (unit == "%") {
      if (number <= 100) bytes = number / 100 * static_cast<double>(machine_bytes);
    } else if (const double factor = unit_factor(unit); factor > 0) {
      bytes = number * factor;
    }
  }
  if (!(bytes >= 1 && bytes < 0x1p60)) {
    fail_usage("expected a size such as 8000000000, 12GiB or 80%, found '", text, "'");
  }
  return static_cast<uint64_t>(bytes);
}

std::vector<int32_t> parse_ids(std::string_view text) {
  std::string from_file;
  if (!text.empty() && text.front() == '@') {
    constexpr uint64_t kMaxIds = 64u << 20;  // a million ids have 7 MB
    from_file = read_input(std::string(text.substr(1)), kMaxIds);
    text = from_file;
  }
  std::vector<int32_t> ids;
  size_t at = 0;
  while (true) {
    int commas = 0;
    for (; at < text.size() && is_separator(text[at]); ++at) commas += text[at] == ',' ? 1 : 0;
    if (at == text.size()) break;
    if (commas > (ids.empty() ? 0 : 1)) {  // a number that was lost on the way here
      fail_usage("expected token ids separated by commas, found none as number ", ids.size() + 1);
    }
    size_t end = at;
    while (end < text.size() && !is_separator(text[end])) ++end;
    const std::string_view word = text.substr(at, end - at);
    int32_t id = 0;
    const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || rest != word.data() + word.size()) {
      fail_usage("expected token ids separated by commas, found '", word, "' as number ",
                 ids.size() + 1);
    }
    ids.push_back(id);
    at = end;
  }
  return ids;
}

void check_ids(std::span<const int32_t> ids, int64_t vocab) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab) {
      fail_input("token ids: expected 0 to ", vocab - 1, " (the vocabulary), found ", ids[i],
                 " at position ", i);
    }
  }
}

std::vector<std::pair<int32_t, double>> parse_bias(std::string_view text) {
  std::vector<std::pair<int32_t, double>> bias;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, comma);
    const size_t colon = item.find(':');
    if (colon == std::string_view::npos) {
      fail_usage("expected ID:VALUE pairs separated by commas, found '", item, "'");
    }
    const auto id = parse_int(item.substr(0, colon), 0, std::numeric_limits<int32_t>::max());
    bias.emplace_back(static_cast<int32_t>(id), parse_real(item.substr(colon + 1), -1000, 1000));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return bias;
}

void check_choice(std::string_view text, std::span<const std::string_view> choices) {
  if (std::find(choices.begin(), choices.end(), text) != choices.end()) return;
  fail_usage("expected ", join_choices(choices), ", found '", text, "'",
             did_you_mean(text, choices));
}

std::optional<std::string> nearest(std::string_view text,
                                   std::span<const std::string_view> candidates) {
  const std::string wanted = lower(text);
  size_t best = std::max<size_t>(1, wanted.size() / 3) + 1;
  std::optional<std::string> found;
  if (wanted.empty() || wanted.size() > 64) return found;
  for (const std::string_view candidate : candidates) {
    const size_t d = distance(wanted, lower(candidate));
    // A word of one or two letters is "near" to everything; at least one letter must agree.
    if (d < best && d < candidate.size()) {
      best = d;
      found = std::string(candidate);
    }
  }
  return found;
}

std::string did_you_mean(std::string_view text, std::span<const std::string_view> candidates,
                         std::string_view prefix) {
  const auto near = nearest(text, candidates);
  return near ? cat("; did you mean '", prefix, *near, "'?") : std::string();
}

std::string join_choices(std::span<const std::string_view> choices) {
  std::string out;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) out += i + 1 == choices.size() ? " or " : ", ";
    out += choices[i];
  }
  return out;
}

std::string show_bytes(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return cat(show_fixed(bytes, unit == 0 ? 0 : 2), " ", kUnits[unit]);
}

std::string show_count(double count) {
  constexpr std::array<const char*, 4> kUnits = {"", " K", " M", " B"};
  size_t unit = 0;
  while (count >= 1000 && unit + 1 < kUnits.size()) {
    count /= 1000;
    ++unit;
  }
  return show_fixed(count, unit == 0 ? 0 : 2) + kUnits[unit];
}

std::string show_fixed(double value, int decimals) {
  std::array<char, 352> text{};  // the largest double has 309 digits before the point
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

}  // namespace spk::cli
