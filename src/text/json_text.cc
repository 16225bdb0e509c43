// A SAX handler that writes each value as soon as it is complete; nothing is kept as numbers, so
// nothing is rounded.
#include "text/json_text.h"

#include "base/error.h"
#include "base/json_whole.h"

#include <nlohmann/json.hpp>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <unordered_map>
#include <utility>

namespace spk {
namespace {

// Every level copies what is below it once, so depth bounds the work; Python itself stops at about
// 1,000.
constexpr size_t kMaxDepth = 128;

class PythonWriter : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit PythonWriter(std::string_view what) : what_(what) { frames_.emplace_back(); }

  bool null() override { return value("null"); }
  bool boolean(bool b) override { return value(b ? "true" : "false"); }
  bool number_integer(number_integer_t n) override { return value(std::to_string(n)); }
  bool number_unsigned(number_unsigned_t n) override { return value(std::to_string(n)); }
  bool number_float(number_float_t n, const string_t& text) override {
    // The parser also brings integers here that fit no 64 bits; Python keeps all their digits.
    const bool integer = text.find_first_of(".eE") == std::string::npos;
    return value(integer ? text : python_float(n));
  }
  bool string(string_t& text) override {
    // Members of the outermost value keep their raw content for json_members.
    if (frames_.size() == 2) return add({{}, true, std::move(text)});
    return value(json_quote(text));
  }
  bool binary(binary_t& /*bytes*/) override { return false; }
  bool start_object(std::size_t /*n*/) override { return open(true); }
  bool start_array(std::size_t /*n*/) override { return open(false); }
  bool key(string_t& text) override {
    frames_.back().key = std::move(text);
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*e*/) override {
    fail_input(what_, ": expected JSON, found an error at byte ", position);
  }

  std::string text() const { return frames_[0].members.at(0).text; }
  bool object = false;  // the outermost value is one
  std::vector<JsonMember> outer;

 private:
  struct Frame {
    bool object = false;
    std::string key;
    std::vector<JsonMember> members;
    std::unordered_map<std::string, size_t> index;
  };

  bool value(std::string text) { return add({{}, false, std::move(text)}); }

  bool add(JsonMember member) {
    Frame& frame = frames_.back();
    if (frame.object) {
      member.key = frame.key;
      const auto [at, added] = frame.index.emplace(member.key, frame.members.size());
      if (!added) {
        frame.members[at->second] = std::move(member);
        return true;
      }
    }
    frame.members.push_back(std::move(member));
    return true;
  }

  bool open(bool is_object) {
    if (frames_.size() > kMaxDepth) {
      fail_input(what_, ": JSON nested deeper than ", kMaxDepth);
    }
    frames_.emplace_back();
    frames_.back().object = is_object;
    return true;
  }

  bool close() {
    Frame frame = std::move(frames_.back());
    frames_.pop_back();
    std::string out(1, frame.object ? '{' : '[');
    for (size_t i = 0; i < frame.members.size(); ++i) {
      const JsonMember& m = frame.members[i];
      if (i > 0) out += ", ";
      if (frame.object) out += json_quote(m.key) + ": ";
      out += m.is_string ? json_quote(m.text) : m.text;
    }
    out += frame.object ? '}' : ']';
    if (frames_.size() == 1) {
      object = frame.object;
      outer = std::move(frame.members);
    }
    return value(std::move(out));
  }

  std::string what_;
  std::vector<Frame> frames_;  // [0] holds the whole value
};

// Accepts what PythonWriter accepts, without writing anything.
class Acceptor : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return true; }
  bool boolean(bool /*b*/) override { return true; }
  bool number_integer(number_integer_t /*n*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*n*/) override { return true; }
  bool number_float(number_float_t /*n*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*text*/) override { return true; }
  bool binary(binary_t& /*bytes*/) override { return false; }
  bool start_object(std::size_t /*n*/) override { return ++depth_ <= kMaxDepth; }
  bool start_array(std::size_t /*n*/) override { return ++depth_ <= kMaxDepth; }
  bool key(string_t& /*text*/) override { return true; }
  bool end_object() override { return depth_-- > 0; }
  bool end_array() override { return depth_-- > 0; }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*e*/) override {
    return false;
  }

 private:
  size_t depth_ = 0;
};

void parse(std::string_view json, PythonWriter& writer, std::string_view what) {
  if (!nlohmann::json::sax_parse(json_whole(json), &writer)) {
    fail_input(what, ": expected JSON, found something else");
  }
}

}  // namespace

std::string json_quote_inner(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  out.reserve(text.size() + 2);
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\b':
        out += "\\b";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += {'\\', 'u', '0', '0', kHex[c >> 4], kHex[c & 15]};
        } else {
          out += c;
        }
    }
  }
  return out;
}

std::string json_quote(std::string_view text) { return '"' + json_quote_inner(text) + '"'; }

std::string python_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));  // [-]d[.ddd]e[+-]dd
  std::string sign;
  if (text[0] == '-') {
    sign = "-";
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  std::string digits(text.substr(0, 1));
  if (e > 2) digits += text.substr(2, e - 2);
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  if (exponent < -4 || exponent >= 16) {  // where Python changes to the scientific form
    std::string out = sign + digits.substr(0, 1);
    if (digits.size() > 1) out += '.' + digits.substr(1);
    const std::string power = std::to_string(std::abs(exponent));
    return out + (exponent < 0 ? "e-" : "e+") + (power.size() < 2 ? "0" : "") + power;
  }
  if (exponent < 0) {
    digits.insert(0, static_cast<size_t>(-exponent), '0');
    return sign + "0." + digits.substr(1);
  }
  const size_t point = static_cast<size_t>(exponent) + 1;
  if (digits.size() < point) digits.resize(point, '0');
  if (digits.size() == point) return sign + digits + ".0";
  return sign + digits.substr(0, point) + '.' + digits.substr(point);
}

std::string python_json(std::string_view json, std::string_view what) {
  PythonWriter writer(what);
  parse(json, writer, what);
  return writer.text();
}

std::vector<JsonMember> json_members(std::string_view json, std::string_view what) {
  PythonWriter writer(what);
  parse(json, writer, what);
  if (!writer.object) fail_input(what, ": expected a JSON object, found another value");
  return std::move(writer.outer);
}

std::vector<JsonMember> json_parts(std::string_view json) {
  PythonWriter writer("JSON");
  parse(json, writer, "JSON");
  return std::move(writer.outer);
}

bool is_json(std::string_view text) {
  Acceptor acceptor;
  return nlohmann::json::sax_parse(json_whole(text), &acceptor);
}

}  // namespace spk
