// The option table: one row an option, with its names, range, help and the verbs that take it.
//
// Plain data. Whoever parses a command line, prints help, completes words or reads a config file
// (options.cc, config_file.cc) works over these rows and knows no option by name. A row's parser
// checks the text and stores the value.
#pragma once

#include "cli/options.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spk::cli {

constexpr unsigned bit(Verb verb) { return 1u << static_cast<unsigned>(verb); }

struct OptionRow {
  enum class Kind : uint8_t {
    kSwitch,    // no value
    kOne,       // one value, the last counts
    kMaybe,     // one value or none, which is ""
    kRepeated,  // one value each time it is given
    kMany,      // all words that follow
  };
  std::string flags;  // "-o,--output"
  std::string name;   // "output"
  std::string type;   // what the help shows for the value
  std::string help;
  std::string group;
  unsigned verbs = 0;  // bits of those that take it
  Kind kind = Kind::kOne;
  // Error(kUsage) for a text that is no value of it. A switch that is on gets "".
  std::function<void(const std::string&)> parse;

  bool taken_by(Verb verb) const { return (verbs & bit(verb)) != 0; }
  bool collects() const { return kind == Kind::kRepeated || kind == Kind::kMany; }
};

// The rows in the order of the help. Their parsers write to `o`, which must outlive them. A name
// may have several rows, never two for one verb.
std::vector<OptionRow> option_rows(Options& o);

// The names of all rows, or of those that `verb` takes.
std::vector<std::string_view> names_of(std::span<const OptionRow> rows);
std::vector<std::string_view> names_of(std::span<const OptionRow> rows, Verb verb);

// "logits, compare": the verbs that take the option.
std::string owners_of(std::span<const OptionRow> rows, std::string_view name);

}  // namespace spk::cli
