#include "cli/config_file.h"

#include "base/error.h"
#include "cli/values.h"
#include "formats/untrusted.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace spk::cli {
namespace {

constexpr std::string_view kBlanks = " \t";

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

// One pass over the text; `at_` never leaves it.
class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : text_(text), file_(file) {
    constexpr std::string_view kMark = "\xef\xbb\xbf";  // as some editors begin a file
    if (text_.substr(0, kMark.size()) == kMark) text_.remove_prefix(kMark.size());
  }

  std::vector<ConfigEntry> read() {
    while (at_ < text_.size()) {
      skip_blanks();
      const char c = peek();
      if (c == '[') {
        section_ = bracketed();
      } else if (c != '\n' && c != '#' && c != ';') {
        entries_.push_back(entry());
      }
      end_line();
    }
    return std::move(entries_);
  }

 private:
  // The text reads as if it ended in a newline, and CRLF as a newline.
  char peek() const {
    if (at_ >= text_.size()) return '\n';
    const bool crlf = text_[at_] == '\r' && (at_ + 1 == text_.size() || text_[at_ + 1] == '\n');
    return crlf ? '\n' : text_[at_];
  }

  char take() {
    const char c = peek();
    if (at_ < text_.size() && text_[at_] == '\r' && c == '\n') ++at_;
    ++at_;
    if (c == '\n') ++line_;
    const auto code = static_cast<unsigned char>(c);
    if ((code < 0x20 && c != '\n' && c != '\t') || code == 0x7f)
      fail("text", cat("a control byte, ", printable(std::string_view(&c, 1))));
    return c;
  }

  [[noreturn]] void fail(const std::string& expected, const std::string& found) const {
    fail_input(file_, ": line ", line_, ": expected ", expected, ", found ", found);
  }
  [[noreturn]] void fail_here(const std::string& expected) const {
    const size_t end = std::min(text_.find('\n', std::min(at_, text_.size())), text_.size());
    const std::string_view rest =
        at_ < end ? text_.substr(at_, std::min<size_t>(end - at_, 40)) : std::string_view();
    fail(expected, rest.empty() ? "the end of the line" : cat("'", printable(rest), "'"));
  }

  void skip_blanks() {
    while (kBlanks.find(peek()) != std::string_view::npos) take();
  }
  void skip_comment() {
    while (peek() != '\n') take();
  }
  void end_line() {
    skip_blanks();
    if (peek() == '#' || peek() == ';') skip_comment();
    if (peek() != '\n') fail_here("the end of the line");
    take();
  }

  std::string name(const std::string& what) {
    const bool quoted = peek() == '"' || peek() == '\'';
    std::string out;
    if (quoted) {
      out = string();
    } else {
      while (is_name(peek())) out += take();
    }
    if (out.empty()) fail_here(what);
    return out;
  }

  std::string bracketed() {
    take();
    skip_blanks();
    std::string out = name("the name of a section");
    skip_blanks();
    if (peek() != ']') fail_here("']' after the name of a section");
    take();
    return out == "default" ? "" : out;
  }

  ConfigEntry entry() {
    ConfigEntry e;
    e.line = line_;
    e.section = section_;
    e.key = name("a [section] or 'option = value'");
    if (const size_t dot = e.key.find('.'); dot != std::string::npos && e.section.empty()) {
      e.section = e.key.substr(0, dot);
      e.key.erase(0, dot + 1);
      if (e.section.empty() || e.key.empty()) fail("section.option", "an empty part");
    }
    std::replace(e.key.begin(), e.key.end(), '_', '-');
    skip_blanks();
    if (peek() != '=') fail_here(cat("'=' after '", e.key, "'"));
    take();
    skip_blanks();
    e.is_list = peek() == '[';
    if (e.is_list) {
      e.values = list();
    } else {
      e.values.push_back(value(""));
    }
    return e;
  }

  std::string value(std::string_view ends) {
    if (peek() == '"' || peek() == '\'') return string();
    std::string out;
    while (peek() != '\n' && peek() != '#' && ends.find(peek()) == std::string_view::npos)
      out += take();
    out.erase(out.find_last_not_of(kBlanks) + 1);
    if (out.empty()) fail_here("a value");
    return out;
  }

  std::vector<std::string> list() {
    take();
    std::vector<std::string> values;
    for (;;) {
      between_items();
      if (peek() == ']') break;
      values.push_back(value(",]"));
      between_items();
      if (peek() == ']') break;
      if (peek() != ',') fail_here("',' or ']' in a list");
      take();
    }
    take();
    return values;
  }
  void between_items() {
    for (;;) {
      skip_blanks();
      if (peek() == '#') skip_comment();
      if (peek() != '\n') return;
      if (at_ >= text_.size()) fail("']' after a list", "the end of the file");
      take();
    }
  }

  std::string string() {
    const char quote = take();
    std::string out;
    while (peek() != quote) {
      if (peek() == '\n') fail(cat(quote, " at the end of a text"), "the end of the line");
      char c = take();
      if (quote == '"' && c == '\\') {
        constexpr std::string_view kNames = "\"\\nt", kMeant = "\"\\\n\t";
        const size_t which = kNames.find(peek());
        if (which == std::string_view::npos)
          fail_here("one of \\\" \\\\ \\n \\t (or '...', which keeps its text)");
        take();
        c = kMeant[which];
      }
      out += c;
    }
    take();
    return out;
  }

  std::string_view text_;
  const std::string& file_;
  size_t at_ = 0;
  int64_t line_ = 1;
  std::string section_;
  std::vector<ConfigEntry> entries_;
};

std::optional<Verb> verb_named(const std::string& section, const std::string& where) {
  if (section.empty()) return std::nullopt;
  std::vector<std::string_view> names;
  for (const VerbInfo& info : verbs()) {
    if (info.name == section) return info.verb;
    names.push_back(info.name);
  }
  fail_usage(where, "unknown section [", printable(section), "]", did_you_mean(section, names));
}

// The row that an entry speaks of: of the section's verb, else of the verb that runs, else of any.
const OptionRow& row_of(const ConfigEntry& entry, std::span<const OptionRow> rows,
                        std::optional<Verb> section, Verb verb, const std::string& where) {
  const OptionRow* any = nullptr;
  for (const OptionRow& row : rows) {
    if (row.name != entry.key) continue;
    if (row.taken_by(section.value_or(verb))) return row;
    any = &row;
  }
  if (any == nullptr) {
    fail_usage(where, "unknown option '", printable(entry.key), "'",
               did_you_mean(entry.key, names_of(rows)));
  }
  if (section) {
    fail_usage(where, "option '", entry.key, "' in section [", entry.section,
               "] belongs to: ", owners_of(rows, entry.key));
  }
  return *any;
}

bool is_on(const std::string& text) {
  constexpr std::array<std::string_view, 4> kOn = {"true", "on", "yes", "1"};
  constexpr std::array<std::string_view, 4> kOff = {"false", "off", "no", "0"};
  if (std::find(kOn.begin(), kOn.end(), text) != kOn.end()) return true;
  if (std::find(kOff.begin(), kOff.end(), text) != kOff.end()) return false;
  fail_usage("expected true or false, found '", printable(text), "'");
}

void set(const ConfigEntry& entry, const OptionRow& row, const std::string& where) {
  try {
    if (entry.is_list && !row.collects())
      fail_usage("expected one value, found a list of ", entry.values.size());
    for (const std::string& text : entry.values) {
      if (row.kind != OptionRow::Kind::kSwitch) {
        row.parse(text);
      } else if (is_on(text)) {
        row.parse("");
      }
    }
  } catch (const Error& error) {
    throw Error(error.kind(), cat(where, entry.key, ": ", error.what()));
  }
}

}  // namespace

std::vector<ConfigEntry> parse_config_text(std::string_view text, const std::string& file) {
  return Reader(text, file).read();
}

void apply_config(std::span<const ConfigEntry> entries, const std::string& file, Verb verb,
                  std::span<const OptionRow> rows,
                  const std::function<bool(const OptionRow&)>& given) {
  Options scratch;  // takes what is only checked
  const std::vector<OptionRow> checked = option_rows(scratch);
  std::map<std::pair<std::string, std::string>, int64_t> seen;  // -> line
  std::vector<std::pair<const ConfigEntry*, const OptionRow*>> wanted;
  for (const ConfigEntry& entry : entries) {
    const std::string where = cat(file, ": line ", entry.line, ": ");
    const std::optional<Verb> section = verb_named(entry.section, where);
    const OptionRow& row = row_of(entry, rows, section, verb, where);
    const auto [first, fresh] = seen.try_emplace({entry.section, entry.key}, entry.line);
    if (!fresh && !row.collects())
      fail_usage(where, entry.key, ": expected once, found in line ", first->second, " too");
    set(entry, checked[static_cast<size_t>(&row - rows.data())], where);
    if (section.value_or(verb) == verb && row.taken_by(verb) && !given(row))
      wanted.emplace_back(&entry, &row);
  }
  for (const auto& [entry, row] : wanted) {
    const bool general = entry->section.empty();
    if (general && seen.count({std::string(verb_name(verb)), entry->key}) != 0) continue;
    set(*entry, *row, cat(file, ": line ", entry->line, ": "));
  }
}

}  // namespace spk::cli
