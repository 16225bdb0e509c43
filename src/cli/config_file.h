// The --config file: TOML or INI, read strictly.
//
//     top-k = 20            # for every verb that takes the option
//     [run]                 # for one verb; goes before the top
//     system = "Be brief."  # "..." with \" \\ \n \t, or '...' as it is
//     stop = ["one", 'two']
//
// Every line is blank, a comment (# or ;), a [section] or `key = value`; a bare value ends at the
// line's end or at a #. What is anything else is refused with its line: a typing error must not
// run a model with other settings than the file says.
#pragma once

#include "cli/option_table.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spk::cli {

struct ConfigEntry {
  std::string section;  // "": the top of the file
  std::string key;      // '_' is written '-'
  std::vector<std::string> values;
  bool is_list = false;
  int64_t line = 0;
};

// Error(kInput) with the file and the line for what is not of the form above.
std::vector<ConfigEntry> parse_config_text(std::string_view text, const std::string& file);

// Sets the options of `verb` that are not `given` otherwise. The whole file is checked, entries of
// other verbs too: Error(kUsage) for an unknown section or option and for a value that the option
// does not take.
void apply_config(std::span<const ConfigEntry> entries, const std::string& file, Verb verb,
                  std::span<const OptionRow> rows,
                  const std::function<bool(const OptionRow&)>& given);

}  // namespace spk::cli
