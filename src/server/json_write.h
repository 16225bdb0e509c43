// Answers: JSON written straight to text, in the order in which it is said.
//
//   JsonWriter w; w.object().key("n").integer(3).key("list").array().string("a").end().end();  //
//   {"n":3,"list":["a"]}
//
// Strings that are not UTF-8 get U+FFFD, numbers that are not finite become null: what goes out
// always parses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace spk::server {

class JsonWriter {
 public:
  JsonWriter& object() { return open('{', '}'); }
  JsonWriter& array() { return open('[', ']'); }
  JsonWriter& end();
  JsonWriter& key(std::string_view name);
  JsonWriter& string(std::string_view value);
  JsonWriter& integer(int64_t value);
  JsonWriter& number(double value);
  JsonWriter& boolean(bool value);
  JsonWriter& null();
  JsonWriter& raw(std::string_view json);  // one finished value

  JsonWriter& field(std::string_view name, std::string_view value) {
    return key(name).string(value);
  }
  JsonWriter& field(std::string_view name, const char* value) { return key(name).string(value); }
  JsonWriter& field(std::string_view name, int64_t value) { return key(name).integer(value); }
  JsonWriter& field(std::string_view name, int value) { return key(name).integer(value); }
  JsonWriter& field(std::string_view name, double value) { return key(name).number(value); }
  JsonWriter& field(std::string_view name, bool value) { return key(name).boolean(value); }

  std::string take();  // everything must be closed

 private:
  JsonWriter& open(char begin, char end);
  void separate();

  std::string out_;
  std::string closers_;
  bool first_ = true;
};

}  // namespace spk::server
