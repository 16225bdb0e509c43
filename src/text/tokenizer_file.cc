// The vocabulary and the merges, some 300,000 strings, go straight from the parser into vectors;
// the small rest of the file is copied as text and parsed as a document.
#include "text/tokenizer_file.h"

#include "base/error.h"
#include "base/file.h"
#include "base/json_whole.h"
#include "text/json_text.h"
#include "text/utf8.h"

#include <nlohmann/json.hpp>

#include <array>
#include <optional>

namespace spk {
namespace {

using nlohmann::json;

constexpr size_t kMaxFile = size_t{256} << 20;  // the largest known is 33 MB
constexpr size_t kMaxDepth = 64;

class FileReader : public nlohmann::json_sax<json> {
 public:
  FileReader(TokenizerFile& file, const std::string& name) : file_(file), name_(name) {}

  bool null() override { return scalar("null"); }
  bool boolean(bool b) override { return scalar(b ? "true" : "false"); }
  bool number_integer(number_integer_t n) override { return number(n); }
  bool number_unsigned(number_unsigned_t n) override {
    return number(n > INT64_MAX ? INT64_MAX : static_cast<int64_t>(n));
  }
  bool number_float(number_float_t /*n*/, const string_t& text) override { return scalar(text); }
  bool string(string_t& text) override {
    if (part_ == Part::kMerges) return merge(std::move(text));
    if (part_ == Part::kVocab) unexpected("model.vocab", "a number for each token", "a string");
    return scalar(json_quote(text));
  }
  bool binary(binary_t& /*bytes*/) override { return false; }
  bool key(string_t& text) override {
    if (part_ == Part::kVocab) {
      token_ = std::move(text);
      return true;
    }
    if (depth_ == 1) section_ = text;
    if (depth_ == 2) entry_ = text;
    comma();
    rest += json_quote(text) + ':';
    after_key_ = true;
    return true;
  }
  bool start_object(std::size_t /*n*/) override {
    if (part_ == Part::kVocab || part_ == Part::kMerges) unexpected_inside();
    if (at_model_entry("vocab")) {
      once(has_vocab, "model.vocab");
      part_ = Part::kVocab;
      return scalar("0");
    }
    return open('{');
  }
  bool end_object() override {
    if (part_ == Part::kVocab) {
      part_ = Part::kRest;
      return true;
    }
    return close('}');
  }
  bool start_array(std::size_t /*n*/) override {
    if (part_ == Part::kVocab) unexpected_inside();
    if (part_ == Part::kMerges) {
      if (in_pair_) unexpected_inside();
      in_pair_ = true;
      return true;
    }
    if (at_model_entry("merges")) {
      once(has_merges, "model.merges");
      part_ = Part::kMerges;
      return scalar("0");
    }
    return open('[');
  }
  bool end_array() override {
    if (part_ != Part::kMerges) return close(']');
    if (!in_pair_) {
      part_ = Part::kRest;
      return true;
    }
    if (pair_size_ != 2) {
      unexpected("model.merges", "two strings in each pair", cat(pair_size_));
    }
    in_pair_ = false;
    pair_size_ = 0;
    return true;
  }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*e*/) override {
    fail_input(name_, ": expected JSON in UTF-8, found an error at byte ", position);
  }

  std::string rest;  // the file without vocabulary and merges
  bool has_vocab = false;
  bool has_merges = false;

 private:
  enum class Part { kRest, kVocab, kMerges };

  [[noreturn]] void unexpected(std::string_view key, std::string_view expected,
                               std::string_view found) const {
    fail_input(name_, ": ", key, ": expected ", expected, ", found ", found);
  }
  [[noreturn]] void unexpected_inside() const {
    unexpected(part_ == Part::kVocab ? "model.vocab" : "model.merges", "plain entries",
               "a nested value");
  }
  void once(bool& seen, std::string_view key) const {
    if (seen) unexpected(key, "one such key", "two");
    seen = true;
  }
  bool at_model_entry(std::string_view entry) const {
    return depth_ == 2 && after_key_ && section_ == "model" && entry_ == entry;
  }
  void comma() {
    if (!rest.empty() && rest.back() != '{' && rest.back() != '[' && rest.back() != ':')
      rest += ',';
  }
  bool scalar(std::string_view text) {
    if (part_ == Part::kMerges && text != "0") unexpected("model.merges", "strings", text);
    if (part_ == Part::kVocab && text != "0") unexpected("model.vocab", "whole numbers", text);
    if (!after_key_) comma();
    rest += text;
    after_key_ = false;
    return true;
  }
  bool number(int64_t n) {
    if (part_ == Part::kVocab) {
      file_.vocab.emplace_back(std::move(token_), n);
      return true;
    }
    if (part_ == Part::kMerges) unexpected("model.merges", "strings", "a number");
    return scalar(std::to_string(n));
  }
  bool open(char bracket) {
    if (depth_ >= kMaxDepth) fail_input(name_, ": nested deeper than ", kMaxDepth);
    if (!after_key_) comma();
    rest += bracket;
    after_key_ = false;
    ++depth_;
    return true;
  }
  bool close(char bracket) {
    rest += bracket;
    after_key_ = false;
    --depth_;
    return true;
  }
  // Either one half of a pair, or both with a space between.
  bool merge(std::string text) {
    if (in_pair_) {
      if (pair_size_ == 0) {
        file_.merges.emplace_back(std::move(text), std::string());
      } else {
        file_.merges.back().second = std::move(text);
      }
      ++pair_size_;
      return true;
    }
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      unexpected("model.merges", "'left right'", cat("'", text, "'"));
    }
    std::string right = text.substr(space + 1);
    text.resize(space);
    file_.merges.emplace_back(std::move(text), std::move(right));
    return true;
  }

  TokenizerFile& file_;
  const std::string& name_;
  Part part_ = Part::kRest;
  size_t depth_ = 0;
  bool after_key_ = false;
  bool in_pair_ = false;
  size_t pair_size_ = 0;
  std::string section_;  // key at depth 1
  std::string entry_;    // key at depth 2
  std::string token_;
};

// Checked access to the small rest of the file.
class Document {
 public:
  Document(const json& value, std::string path, const std::string& name)
      : value_(value), path_(std::move(path)), name_(name) {}

  [[noreturn]] void refuse(std::string_view key, std::string_view expected,
                           std::string_view found) const {
    fail_input(name_, ": ", path_, path_.empty() || key.empty() ? "" : ".", key, ": expected ",
               expected, ", found ", found);
  }
  const json& raw(const char* key) const {
    static const json kNull;
    if (!value_.is_object()) refuse("", "an object", value_.type_name());
    const auto at = value_.find(key);
    return at == value_.end() ? kNull : *at;
  }
  Document at(const char* key) const {
    return {raw(key), path_.empty() ? key : path_ + "." + key, name_};
  }
  std::vector<Document> list(const char* key) const {
    const json& array = raw(key);
    if (!array.is_array()) refuse(key, "an array", array.type_name());
    std::vector<Document> out;
    for (size_t i = 0; i < array.size(); ++i) {
      out.emplace_back(array[i], cat(path_, path_.empty() ? "" : ".", key, "[", i, "]"), name_);
    }
    return out;
  }
  bool is_null() const { return value_.is_null(); }
  bool flag(const char* key, bool otherwise) const {
    const json& v = raw(key);
    if (v.is_null()) return otherwise;
    if (!v.is_boolean()) refuse(key, "true or false", v.type_name());
    return v.get<bool>();
  }
  std::string text(const char* key) const {
    const json& v = raw(key);
    if (!v.is_string()) refuse(key, "a string", v.type_name());
    return v.get<std::string>();
  }
  // Null, absent or empty; anything else is refused.
  void unset(const char* key) const {
    const json& v = raw(key);
    const bool empty = v.is_null() || (v.is_string() && v.get_ref<const std::string&>().empty()) ||
                       (v.is_boolean() && !v.get<bool>());
    if (!empty) refuse(key, "nothing, for it is not supported", shown(v));
  }
  static std::string shown(const json& v) {
    std::string text = v.dump(-1, ' ', false, json::error_handler_t::replace);
    if (text.size() > 60) text.resize(60);
    return text;
  }
  int64_t whole(const char* key) const {
    const json& v = raw(key);
    if (!v.is_number_integer()) refuse(key, "a whole number", v.type_name());
    return v.get<int64_t>();
  }

 private:
  const json& value_;
  std::string path_;
  const std::string& name_;
};

void read_normalizer(const Document& doc, TokenizerFile& file, int depth) {
  if (doc.is_null()) return;
  const std::string type = doc.text("type");
  if (type == "NFC") {
    file.nfc = true;
  } else if (type == "Sequence" && depth < 4) {
    for (const Document& part : doc.list("normalizers")) read_normalizer(part, file, depth + 1);
  } else {
    doc.refuse("type", "NFC or Sequence", type);
  }
}

SplitBehavior read_behavior(const Document& doc) {
  const std::string name = doc.text("behavior");
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  doc.refuse("behavior", "Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous",
             name);
}

// A plain string as a pattern that matches just that.
std::string quoted_pattern(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const char small = static_cast<char>(c | 0x20);
    const bool plain = static_cast<unsigned char>(c) > 0x7f || c < 0x20 || (c >= '0' && c <= '9') ||
                       (small >= 'a' && small <= 'z');
    if (!plain) out += '\\';
    out += c;
  }
  return out;
}

void read_pre_tokenizer(const Document& doc, TokenizerFile& file, int depth) {
  if (doc.is_null()) return;
  const std::string type = doc.text("type");
  PreStage stage;
  if (type == "Sequence" && depth < 4) {
    for (const Document& part : doc.list("pretokenizers")) {
      read_pre_tokenizer(part, file, depth + 1);
    }
    return;
  }
  if (type == "Split") {
    stage.kind = PreStage::Kind::kSplit;
    const Document pattern = doc.at("pattern");
    if (!pattern.raw("Regex").is_null()) {
      stage.pattern = pattern.text("Regex");
    } else {
      stage.pattern = quoted_pattern(pattern.text("String"));
    }
    stage.behavior = read_behavior(doc);
    stage.invert = doc.flag("invert", false);
    // Isolated treats matches and gaps alike, so invert changes nothing there.
  } else if (type == "Digits") {
    stage.kind = PreStage::Kind::kDigits;
    stage.behavior = doc.flag("individual_digits", false) ? SplitBehavior::kIsolated
                                                          : SplitBehavior::kContiguous;
  } else if (type == "ByteLevel") {
    stage.kind = PreStage::Kind::kByteLevel;
    stage.add_prefix_space = doc.flag("add_prefix_space", true);
    stage.use_regex = doc.flag("use_regex", true);
  } else {
    doc.refuse("type", "Split, Digits, ByteLevel or Sequence", type);
  }
  if (file.stages.size() >= 64) doc.refuse("", "at most 64 sections", "more");
  file.stages.push_back(std::move(stage));
}

void read_model(const Document& model, TokenizerFile& file) {
  const std::string type = model.text("type");
  if (type != "BPE") model.refuse("type", "BPE", type);
  for (const char* key : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                          "byte_fallback"}) {
    model.unset(key);
  }
  file.ignore_merges = model.flag("ignore_merges", false);
}

void read_added(const Document& doc, TokenizerFile& file) {
  if (doc.raw("added_tokens").is_null()) return;
  for (const Document& entry : doc.list("added_tokens")) {
    AddedToken token;
    token.content = entry.text("content");
    const int64_t id = entry.whole("id");
    if (id < 0 || id > INT32_MAX) entry.refuse("id", "0 to 2147483647", cat(id));
    token.id = static_cast<int32_t>(id);
    token.lstrip = entry.flag("lstrip", false);
    token.rstrip = entry.flag("rstrip", false);
    token.special = entry.flag("special", false);
    token.normalized = entry.flag("normalized", !token.special);
    if (entry.flag("single_word", false)) {
      entry.refuse("single_word", "false, for it is not supported", "true");
    }
    if (token.content.empty() || token.content.size() > 1024) {
      entry.refuse("content", "1 to 1024 bytes", cat(token.content.size()));
    }
    file.added.push_back(std::move(token));
  }
}

}  // namespace

TokenizerFile read_tokenizer_file(std::string_view text, const std::string& name) {
  if (text.size() > kMaxFile) {
    fail_input(name, ": expected at most ", kMaxFile, " bytes, found ", text.size());
  }
  if (const std::string_view hint = lfs_hint(text); !hint.empty())
    fail_input(name, ": expected JSON, found text", hint);
  TokenizerFile file;
  FileReader reader(file, name);
  if (!json::sax_parse(json_whole(text), &reader))
    fail_input(name, ": expected JSON, found something else");
  const json rest = json::parse(reader.rest);
  const Document doc(rest, "", name);
  read_model(doc.at("model"), file);
  if (!reader.has_vocab) doc.refuse("model.vocab", "an object", "none");
  if (!reader.has_merges) doc.refuse("model.merges", "an array", "none");
  read_normalizer(doc.at("normalizer"), file, 0);
  read_pre_tokenizer(doc.at("pre_tokenizer"), file, 0);
  const Document decoder = doc.at("decoder");
  if (!decoder.is_null() && decoder.text("type") != "ByteLevel") {
    decoder.refuse("type", "ByteLevel", decoder.text("type"));
  }
  read_added(doc, file);
  return file;
}

bool from_byte_alphabet(std::string_view text, std::string& bytes) {
  // Printable bytes stand for themselves, the other 68 follow from U+0100 on, in order.
  static const std::array<int16_t, 324> kByte = [] {
    std::array<int16_t, 324> table{};
    table.fill(-1);
    size_t next = 256;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      table[printable ? static_cast<size_t>(b) : next++] = static_cast<int16_t>(b);
    }
    return table;
  }();
  bytes.clear();
  while (!text.empty()) {
    const Utf8Char c = read_utf8(text);
    if (c.code >= kByte.size() || kByte[c.code] < 0) return false;
    bytes.push_back(static_cast<char>(kByte[c.code]));
    text.remove_prefix(c.length);
  }
  return true;
}

}  // namespace spk
