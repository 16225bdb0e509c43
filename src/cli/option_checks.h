// Checks of single option values that know what this version can do. Error(kUsage) says what is
// expected; a value that the contract names but this version lacks is refused, never taken for
// something else.
#pragma once

#include "cli/options.h"

#include <array>
#include <span>
#include <string>
#include <string_view>

namespace spk::cli {

inline constexpr std::array<std::string_view, 3> kMoe = {"plain", "packed", "jit"};
inline constexpr std::array<std::string_view, 2> kMoeNow = {"plain", "packed"};
inline constexpr std::array<std::string_view, 5> kHead = {"stored", "fp32", "bf16", "fp8", "mxfp4"};

// `known`: what the contract names; `now`: what this version has of it.
void check_available(const std::string& text, std::span<const std::string_view> known,
                     std::span<const std::string_view> now);
void check_draft(const std::string& text);
void check_require(const std::string& text);
void check_rope_scaling(const std::string& text);
void check_backend_spec(const std::string& text);
bool parse_on_off(const std::string& text);

// The words after `eval` into its fields; Error(kUsage) for a form that it does not have.
void settle_eval(Options& o);

// What ends up in a header, a log line or an address: not empty, no blanks, control bytes or
// characters beyond ASCII.
void check_visible(std::string_view text, std::string_view what);
void check_origin(const std::string& text);  // scheme://host[:port]
bool is_name(std::string_view text);         // not empty, UTF-8 without control bytes
void check_name(std::string_view text);      // Error(kUsage) where it is none

}  // namespace spk::cli
