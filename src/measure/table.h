// Rows of results with the frame that says what they were measured on: as aligned text, markdown,
// CSV or JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace spk {

struct TableColumn {
  std::string head;  // in text and markdown; "": only in CSV and JSON
  std::string key;   // in CSV and JSON; "": only in text and markdown
  int decimals = 0;  // of a number in text
  double scale = 1;  // numbers are multiplied by it in text
};
// Empty: not measured.
using Cell = std::variant<std::monostate, std::string, double, int64_t, bool>;
Cell measured(const std::optional<double>& value);
Cell measured_if(bool there, double value);

struct ResultTable {
  std::string command, commit, build, machine, model, weights;
  std::vector<std::pair<std::string, std::string>> notes;  // clocks, sampling, ...: name and text
  std::vector<TableColumn> columns;
  std::vector<std::vector<Cell>> rows;
};

// `format`: table, md, csv or json. In text the first column is aligned left, the others right, and
// a column in which nothing was measured is left out.
std::string render(const ResultTable& table, const std::string& format);

}  // namespace spk
