// Text of the command line -> checked values: numbers with ranges, sizes, id lists, biases; and
// did-you-mean.
//
// Owns the one wording of every complaint: "expected ..., found '...'". Knows no option names and
// no CLI library, so that the config file, the environment and the command line meet the same
// rules. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spk::cli {

// The whole text as a number inside [low, high]; Error(kUsage) "expected a whole number from 0 to
// 7, found 'x'".
int64_t parse_int(std::string_view text, int64_t low, int64_t high);
// The same, or nothing for "auto".
std::optional<int64_t> parse_auto_or_int(std::string_view text, int64_t low, int64_t high);
double parse_real(std::string_view text, double low, double high);

// "none" and "" are 0; "1048576", "12GiB", "500MB", "80%" (of `machine_bytes`). Units: B, KB..TB,
// KiB..TiB, any case.
uint64_t parse_size(std::string_view text, uint64_t machine_bytes);

// Ids separated by commas or white space; "@FILE" reads them from a file. Only the form is checked
// here.
std::vector<int32_t> parse_ids(std::string_view text);
// Error(kInput) naming the first id outside [0, vocab) and its place.
void check_ids(std::span<const int32_t> ids, int64_t vocab);

// "5:-1.5,7:100"
std::vector<std::pair<int32_t, double>> parse_bias(std::string_view text);

// One of `choices`, else Error(kUsage) that lists them and suggests the nearest.
void check_choice(std::string_view text, std::span<const std::string_view> choices);

// The nearest candidate when it is near enough to be a slip of the finger (Damerau-Levenshtein
// distance at most a third of the length, transpositions count one), else nothing.
std::optional<std::string> nearest(std::string_view text,
                                   std::span<const std::string_view> candidates);
// "; did you mean 'x'?" or "".
std::string did_you_mean(std::string_view text, std::span<const std::string_view> candidates,
                         std::string_view prefix = "");

// "a, b or c"
std::string join_choices(std::span<const std::string_view> choices);

// Bytes for people: "5.49 GiB", "312 B".
std::string show_bytes(double bytes);
// "4.70 B", "12.3 M": counts of parameters.
std::string show_count(double count);
// printf-like fixed decimals without iostream state.
std::string show_fixed(double value, int decimals);

}  // namespace spk::cli
