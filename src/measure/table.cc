#include "measure/table.h"

#include "base/error.h"
#include "measure/show.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace spk {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Cell& cell, const TableColumn& column) {
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* number = std::get_if<double>(&cell))
    return fixed(*number * column.scale, column.decimals);
  if (const auto* count = std::get_if<int64_t>(&cell)) return std::to_string(*count);
  if (const auto* flag = std::get_if<bool>(&cell)) return *flag ? "yes" : "no";
  return "-";
}

Json json_of(const Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* number = std::get_if<double>(&cell)) return *number;
  if (const auto* count = std::get_if<int64_t>(&cell)) return *count;
  if (const auto* flag = std::get_if<bool>(&cell)) return *flag;
  return nullptr;
}

std::string table_text(const ResultTable& table, bool markdown) {
  std::vector<std::vector<std::string>> columns;  // each with its head first
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const TableColumn& column = table.columns[i];
    const bool any = std::any_of(table.rows.begin(), table.rows.end(), [i](const auto& row) {
      return !std::holds_alternative<std::monostate>(row[i]);
    });
    if (column.head.empty() || !any) continue;
    columns.push_back({column.head});
    for (const auto& row : table.rows) columns.back().push_back(text_of(row[i], column));
  }
  std::string out;
  for (size_t line = 0; line <= table.rows.size(); ++line) {
    if (markdown) out += "| ";
    for (size_t k = 0; k < columns.size(); ++k) {
      size_t width = 0;
      for (const std::string& cell : columns[k]) width = std::max(width, cell.size());
      const std::string& cell = columns[k][line];
      const bool last = k + 1 == columns.size();
      out += k > 0 ? right_aligned(cell, width) : last ? cell : left_aligned(cell, width);
      out += markdown ? (last ? " |" : " | ") : (last ? "" : "  ");
    }
    out += "\n";
    if (!markdown || line > 0) continue;
    out += "|";
    for (size_t k = 0; k < columns.size(); ++k) out += k == 0 ? "---|" : "---:|";
    out += "\n";
  }
  return out;
}

std::string frame_text(const ResultTable& table, bool markdown) {
  std::string out;
  const auto note = [&](const std::string& name, const std::string& text) {
    out += cat(markdown ? "- " : "", left_aligned(name + ":", 9), " ", text, "\n");
  };
  note("command", markdown ? cat("`", table.command, "`") : table.command);
  note("commit", cat(table.commit, ", ", table.build));
  note("machine", table.machine);
  note("model", cat(table.model, ", weights ", table.weights));
  for (const auto& [name, text] : table.notes) note(name, text);
  return out;
}

Json row_json(const ResultTable& table, const std::vector<Cell>& row) {
  Json j;
  for (size_t i = 0; i < row.size(); ++i)
    if (!table.columns[i].key.empty()) j[table.columns[i].key] = json_of(row[i]);
  return j;
}

std::string as_json(const ResultTable& table) {
  Json root;
  root["command"] = table.command;
  root["commit"] = table.commit;
  root["machine"] = table.machine;
  root["model"] = table.model;
  root["build"] = table.build;
  root["weights"] = table.weights;
  for (const auto& [name, text] : table.notes) root[name] = text;
  root["rows"] = Json::array();
  for (const auto& row : table.rows) root["rows"].push_back(row_json(table, row));
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string as_csv(const ResultTable& table) {
  std::string head = "commit", out;
  for (const TableColumn& column : table.columns)
    if (!column.key.empty()) head += "," + column.key;
  for (const auto& row : table.rows) {
    out += table.commit;
    const Json json = row_json(table, row);  // lives as long as its items are looked at
    for (const auto& [key, value] : json.items()) {
      out += ",";
      if (value.is_string()) {
        out += "\"" + value.get<std::string>() + "\"";
      } else if (!value.is_null()) {
        out += value.dump();
      }
    }
    out += "\n";
  }
  return head + "\n" + out;
}

}  // namespace

Cell measured(const std::optional<double>& value) {
  Cell cell;
  if (value) cell = *value;
  return cell;
}
Cell measured_if(bool there, double value) {
  return measured(there ? std::optional<double>(value) : std::nullopt);
}

std::string render(const ResultTable& table, const std::string& format) {
  if (format == "json") return as_json(table);
  if (format == "csv") return as_csv(table);
  const bool markdown = format == "md";
  return table_text(table, markdown) + "\n" + frame_text(table, markdown);
}

}  // namespace spk
