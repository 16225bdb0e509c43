// One pass over the pattern gives a list of syntax pieces and sets; a second turns the sets into
// classes.
#include "text/regex_rewrite.h"

#include "base/error.h"
#include "text/utf8.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace spk {
namespace {

// Far above any real pattern (the longest known has about 600 bytes); keeps hostile files cheap.
constexpr size_t kMaxPattern = 16384;
constexpr size_t kMaxSets = 512;
constexpr size_t kNone = ~size_t{0};

struct Item {
  std::string syntax;  // copied as it is, when set is kNone
  size_t set = kNone;  // index of a distinct set
};

class Parser {
 public:
  Parser(std::string_view pattern, const std::string& where) : text_(pattern), where_(where) {}

  void run() {
    if (text_.size() > kMaxPattern) {
      fail_input(where_, ": pattern: expected at most ", kMaxPattern, " bytes, found ",
                 text_.size());
    }
    while (pos_ < text_.size()) step();
    if (!groups_.empty()) refuse("a group that is not closed");
  }

  std::vector<Item> items;
  std::vector<CodeSet> sets;

 private:
  struct Group {
    size_t start;      // index of its first item
    bool ignore_case;  // to restore at its end
    bool repeatable;   // look-arounds are not
  };

  [[noreturn]] void refuse(const std::string& what) const {
    fail_input(where_, ": the pattern has ", what, " before byte ", pos_, " of '", text_,
               "'; expected the syntax that docs/TEXT.md lists");
  }

  bool at(std::string_view token) const { return text_.substr(pos_).starts_with(token); }
  bool take(std::string_view token) {
    if (!at(token)) return false;
    pos_ += token.size();
    return true;
  }
  uint32_t next_code() {
    if (pos_ >= text_.size()) refuse("an end in the middle of a construct");
    const Utf8Char c = read_utf8(text_.substr(pos_));
    pos_ += c.length;
    return c.code;
  }

  void emit(std::string syntax) { items.push_back({std::move(syntax), kNone}); }
  void emit_set(CodeSet set) {
    set = normalize(std::move(set));
    const auto [found, added] = known_.emplace(std::move(set), sets.size());
    if (added) sets.push_back(found->first);
    if (sets.size() > kMaxSets) refuse(cat("more than ", kMaxSets, " different sets"));
    items.push_back({{}, found->second});
  }
  void atom(CodeSet set) {
    atom_ = items.size();
    emit_set(std::move(set));
  }

  void step() {
    const uint32_t code = next_code();
    const uint32_t before = std::exchange(last_letter_, 0);
    switch (code) {
      case '\\':
        return escape();
      case '[':
        return atom(char_class());
      case '(':
        return open_group();
      case ')':
        return close_group();
      case '|':
        atom_ = kNone;
        return emit("|");
      case '.':
        return atom(complement({{'\n', '\n'}}));
      case '^':  // lines, as always in Ruby: not after a line feed that ends the text
        atom_ = kNone;
        emit("(?:\\A|(?<=");
        emit_set({{'\n', '\n'}});
        return emit(")(?!\\z))");
      case '$':
        atom_ = kNone;
        emit("(?:\\z|(?=");
        emit_set({{'\n', '\n'}});
        return emit("))");
      case '*':
      case '+':
      case '?':
        return quantifier(static_cast<char>(code));
      case '{':
        if (interval()) return;
        return literal(code, before);
      default:
        return literal(code, before);
    }
  }

  void literal(uint32_t code, uint32_t before) {
    if (ignore_case_ && before && folds_to_ligature(before, code)) {
      refuse("two letters under (?i) that one ligature can stand for");
    }
    last_letter_ = code;
    atom(one(code));
  }

  // One character, under (?i) with all that folds to it.
  CodeSet one(uint32_t code) const {
    if (!ignore_case_) return {{code, code}};
    if (code > 0x7f) refuse("a character outside ASCII under (?i)");
    return fold_ascii(code);
  }

  void open_group() {
    const Group group = {items.size(), ignore_case_, true};
    atom_ = kNone;
    if (!take("?")) {
      emit("(?:");  // nobody asks for the captures
    } else if (take(":") || take("-i:")) {
      if (text_[pos_ - 2] == 'i') ignore_case_ = false;
      emit("(?:");
    } else if (take("i:")) {
      ignore_case_ = true;
      emit("(?:");
    } else if (take("i)")) {
      if (!items.empty()) refuse("(?i) not at its start");
      ignore_case_ = true;
      return;
    } else if (take(">")) {
      emit("(?>");
    } else {
      static constexpr std::string_view kLooks[] = {"=", "!", "<=", "<!"};
      const auto* look = std::find_if(std::begin(kLooks), std::end(kLooks),
                                      [&](std::string_view l) { return take(l); });
      if (look == std::end(kLooks)) {
        refuse(cat("the group '(?", text_.substr(pos_, 1), "'"));
      }
      emit(cat("(?", *look));
      groups_.push_back({group.start, group.ignore_case, false});
      return;
    }
    groups_.push_back(group);
  }

  void close_group() {
    if (groups_.empty()) refuse("a ')' without its '('");
    const Group group = groups_.back();
    groups_.pop_back();
    ignore_case_ = group.ignore_case;
    emit(")");
    atom_ = group.repeatable ? group.start : kNone;
  }

  void quantifier(char mark) {
    if (atom_ == kNone) refuse(cat("nothing that '", mark, "' could repeat"));
    std::string out(1, mark);
    if (take("?")) {
      out += '?';
    } else if (take("+")) {
      out += '+';
    }
    emit(std::move(out));
    atom_ = kNone;  // a second quantifier on the first would be read differently
  }

  std::optional<uint32_t> number() {
    const size_t start = pos_;
    uint32_t value = 0;
    while (pos_ < text_.size() && text_[pos_] >= '0' && text_[pos_] <= '9') {
      value = std::min(value * 10 + static_cast<uint32_t>(text_[pos_++] - '0'), 100000u);
    }
    if (start == pos_) return std::nullopt;
    return value;
  }

  // {n} {n,} {,m} {n,m}; false (and nothing read) when the brace is a literal.
  bool interval() {
    const size_t start = pos_;
    const std::optional<uint32_t> low = number();
    const bool comma = take(",");
    const std::optional<uint32_t> high = comma ? number() : low;
    if (!take("}") || (!low && !high)) {
      pos_ = start;
      return false;
    }
    if (atom_ == kNone) refuse("nothing that an interval could repeat");
    if (low && high && *low > *high) refuse("an interval with its bounds reversed");
    if (low.value_or(0) > 1000 || high.value_or(0) > 1000) refuse("an interval above 1000");
    emit(cat("{", low.value_or(0), comma ? "," : "", comma && high ? cat(*high) : "", "}"));
    if (comma && take("?")) {
      emit("?");
      atom_ = kNone;
      return true;
    }
    // What follows is a quantifier of the whole: in Ruby {n,m}+ repeats and {n}? is optional,
    // whereas PCRE2 takes them for possessive and lazy.
    items.insert(items.begin() + static_cast<std::ptrdiff_t>(atom_), Item{"(?:", kNone});
    emit(")");
    return true;
  }

  // Either one code point or a set; `code` is kNone-like when it is a set.
  struct Escaped {
    std::optional<uint32_t> code;
    CodeSet set;
  };

  uint32_t hex(size_t digits) {
    uint32_t value = 0;
    for (size_t i = 0; i < digits; ++i) {
      const uint32_t c = next_code();
      const uint32_t small = c | 0x20;
      if (c >= '0' && c <= '9') {
        value = value << 4 | (c - '0');
      } else if (small >= 'a' && small <= 'f') {
        value = value << 4 | (small - 'a' + 10);
      } else {
        refuse("an escape with a bad hexadecimal digit");
      }
    }
    return value;
  }

  Escaped property(bool negate) {
    if (!take("{")) refuse("\\p without braces");
    if (take("^")) negate = !negate;
    const size_t end = text_.find('}', pos_);
    if (end == std::string_view::npos) refuse("\\p{ without its end");
    const std::string_view name = text_.substr(pos_, end - pos_);
    std::optional<CodeSet> set = unicode_property(name);
    if (!set) refuse(cat("the unknown property '", name, "'"));
    if (ignore_case_) refuse("a property under (?i)");
    pos_ = end + 1;
    return {{}, negate ? complement(*set) : *std::move(set)};
  }

  Escaped read_escape() {
    const uint32_t c = next_code();
    switch (c) {
      case 's':
        return {{}, unicode_space()};
      case 'S':
        return {{}, complement(unicode_space())};
      case 'd':
        return {{}, unicode_decimal()};
      case 'D':
        return {{}, complement(unicode_decimal())};
      case 'w':
        return {{}, unicode_word()};
      case 'W':
        return {{}, complement(unicode_word())};
      case 'p':
        return property(false);
      case 'P':
        return property(true);
      case 'n':
        return {'\n', {}};
      case 'r':
        return {'\r', {}};
      case 't':
        return {'\t', {}};
      case 'f':
        return {'\f', {}};
      case 'v':
        return {'\v', {}};
      case 'u':
        return {hex(4), {}};
      case 'x': {
        if (!take("{")) return {hex(2), {}};
        const size_t end = text_.find('}', pos_);
        if (end == std::string_view::npos || end == pos_ || end - pos_ > 6) {
          refuse("\\x{ without one to six digits");
        }
        const uint32_t code = hex(end - pos_);
        ++pos_;
        if (code > kLastCodePoint) refuse("an escape above U+10FFFF");
        return {code, {}};
      }
      default:
        break;
    }
    const bool letter = ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (c >= '0' && c <= '9');
    if (letter || c > 0x7f)
      refuse(cat("the escape '\\", c < 0x80 ? static_cast<char>(c) : '?', "'"));
    return {c, {}};
  }

  void escape() {
    if (take("A")) return anchor("\\A");
    if (take("z")) return anchor("\\z");
    Escaped e = read_escape();
    atom(e.code ? one(*e.code) : std::move(e.set));
  }
  void anchor(std::string syntax) {
    atom_ = kNone;
    emit(std::move(syntax));
  }

  // One member of a class, or the lower end of a range.
  Escaped member() {
    if (at("[")) refuse("a class inside a class");
    if (at("&&")) refuse("an intersection of classes");
    if (take("\\")) return read_escape();
    return {next_code(), {}};
  }

  void add_range(CodeSet& set, uint32_t low, uint32_t high) const {
    if (low > high) refuse("a range with its ends reversed");
    set.push_back({low, high});
    if (!ignore_case_) return;
    if (high > 0x7f) refuse("a character outside ASCII under (?i)");
    for (uint32_t c = low; c <= high; ++c) add_all(set, fold_ascii(c));
  }

  CodeSet char_class() {
    const bool negate = take("^");
    if (at("]")) refuse("a ']' that should be escaped");
    CodeSet set;
    while (!take("]")) {
      const Escaped low = member();
      const bool range = at("-") && pos_ + 1 < text_.size() && text_[pos_ + 1] != ']';
      if (!range) {
        if (low.code) {
          add_range(set, *low.code, *low.code);
        } else {
          add_all(set, low.set);
        }
        continue;
      }
      take("-");
      const Escaped high = member();
      if (!low.code || !high.code) refuse("a range that starts or ends with a set");
      add_range(set, *low.code, *high.code);
    }
    set = normalize(std::move(set));
    return negate ? complement(set) : set;
  }

  std::string_view text_;
  const std::string& where_;
  size_t pos_ = 0;
  std::vector<Group> groups_;
  std::map<CodeSet, size_t> known_;
  size_t atom_ = kNone;  // index of the item that a quantifier would repeat from
  bool ignore_case_ = false;
  uint32_t last_letter_ = 0;
};

// Splits the code points into classes that no set tells apart.
struct Classes {
  std::vector<uint32_t> starts;  // of elementary intervals, first 0
  std::vector<size_t> of;        // class of each interval
  size_t count = 1;
};

Classes split_classes(const std::vector<CodeSet>& sets) {
  Classes result;
  result.starts.push_back(0);
  for (const CodeSet& set : sets) {
    for (const CodeRange& r : set) {
      result.starts.push_back(r.first);
      if (r.last < kLastCodePoint) result.starts.push_back(r.last + 1);
    }
  }
  std::sort(result.starts.begin(), result.starts.end());
  result.starts.erase(std::unique(result.starts.begin(), result.starts.end()), result.starts.end());
  result.of.assign(result.starts.size(), 0);
  for (const CodeSet& set : sets) {
    std::map<std::pair<size_t, bool>, size_t> refined;
    size_t range = 0;
    for (size_t i = 0; i < result.starts.size(); ++i) {
      while (range < set.size() && set[range].last < result.starts[i]) ++range;
      const bool inside = range < set.size() && set[range].first <= result.starts[i];
      result.of[i] = refined.emplace(std::pair(result.of[i], inside), refined.size()).first->second;
    }
    result.count = refined.size();
  }
  return result;
}

std::string byte_set(const CodeSet& set, const Classes& classes) {
  std::vector<bool> used(classes.count);
  size_t range = 0;
  for (size_t i = 0; i < classes.starts.size(); ++i) {
    while (range < set.size() && set[range].last < classes.starts[i]) ++range;
    if (range < set.size() && set[range].first <= classes.starts[i]) used[classes.of[i]] = true;
  }
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (size_t c = 0; c < used.size(); ++c) {
    if (used[c]) out += {'\\', 'x', kHex[c >> 4], kHex[c & 15]};
  }
  if (out.empty()) return "(?!)";
  return out.size() == 4 ? out : cat("[", out, "]");
}

}  // namespace

RewrittenRegex rewrite_regex(std::string_view pattern, const std::string& where) {
  Parser parser(pattern, where);
  parser.run();
  const Classes classes = split_classes(parser.sets);
  if (classes.count > 256) {
    fail_input(where,
               ": expected a pattern that tells at most 256 kinds of characters apart, found ",
               classes.count);
  }
  std::vector<std::string> as_bytes;
  for (const CodeSet& set : parser.sets) as_bytes.push_back(byte_set(set, classes));
  std::vector<CodePointMap::Run> runs;
  for (size_t i = 0; i < classes.starts.size(); ++i) {
    runs.push_back({classes.starts[i], static_cast<uint8_t>(classes.of[i])});
  }
  RewrittenRegex result{{}, CodePointMap(runs)};
  for (const Item& item : parser.items) {
    result.pattern += item.set == kNone ? item.syntax : as_bytes[item.set];
  }
  return result;
}

}  // namespace spk
