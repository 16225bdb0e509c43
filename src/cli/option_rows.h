// Short forms for writing rows of the option table, and which verbs share which rows.
//
// For the files that hold rows (option_table.cc, option_table_measure.cc); nobody else needs them.
#pragma once

#include "cli/option_table.h"
#include "cli/values.h"

#include <optional>
#include <utility>

namespace spk::cli {

inline constexpr unsigned kAll = (1u << kVerbs) - 1;
inline constexpr unsigned kModel = kAll & ~bit(Verb::kCompletion);
inline constexpr unsigned kTensors = kModel & ~bit(Verb::kTokenize);
inline constexpr unsigned kRunning = kTensors & ~bit(Verb::kInspect) & ~bit(Verb::kPlan);

// Short forms for the usual kinds of rows.
class Table {
 public:
  using Parser = std::function<void(const std::string&)>;
  std::vector<OptionRow> rows;

  void group(std::string title, unsigned verbs) {
    group_ = std::move(title);
    verbs_ = verbs;
  }
  void value(const std::string& flags, const std::string& type, const std::string& help,
             Parser parse, OptionRow::Kind kind = OptionRow::Kind::kOne) {
    rows.push_back(
        {flags, long_name_of(flags), type, help, group_, verbs_, kind, std::move(parse)});
  }
  void text(const std::string& flags, const std::string& type, std::string& field,
            const std::string& help) {
    value(flags, type, help, [&field](const std::string& s) { field = s; });
  }
  void integer(const std::string& flags, const std::string& type, int64_t low, int64_t high,
               const std::string& help, const std::function<void(int64_t)>& set) {
    value(flags, type, help, [=](const std::string& s) { set(parse_int(s, low, high)); });
  }
  void real(const std::string& flags, double low, double high, std::optional<double>& field,
            const std::string& help) {
    value(flags, "X", help,
          [=, &field](const std::string& s) { field = parse_real(s, low, high); });
  }
  void flag(const std::string& flags, const std::string& help, const std::function<void()>& set) {
    value(
        flags, "", help, [set](const std::string&) { set(); }, OptionRow::Kind::kSwitch);
  }
  void choice(const std::string& flags, std::vector<std::string_view> choices, std::string& field,
              const std::string& help) {
    std::string type;
    for (const std::string_view c : choices) type += (type.empty() ? "" : "|") + std::string(c);
    value(flags, type, help, [choices = std::move(choices), &field](const std::string& s) {
      check_choice(s, choices);
      field = s;
    });
  }

 private:
  // "-o,--output" -> "output"
  static std::string long_name_of(std::string_view flags) {
    const size_t dashes = flags.find("--");
    return std::string(dashes == std::string_view::npos ? flags : flags.substr(dashes + 2));
  }

  std::string group_;
  unsigned verbs_ = 0;
};

// Rows of bench, eval and plan.
void add_measure(Table& t, Options& o);
// Temperature, top-k and the like, for verbs that sample, with the defaults to show.
void add_choice_of_tokens(Table& t, SamplingOptions& s, const std::string& temperature,
                          const std::string& top_k);

}  // namespace spk::cli
