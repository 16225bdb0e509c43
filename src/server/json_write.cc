#include "server/json_write.h"

#include "base/error.h"
#include "text/json_text.h"
#include "text/utf8.h"

#include <cmath>
#include <cstdio>

namespace spk::server {

void JsonWriter::separate() {
  if (!first_) out_ += ',';
  first_ = false;
}

JsonWriter& JsonWriter::open(char begin, char end) {
  separate();
  out_ += begin;
  closers_ += end;
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::end() {
  SPK_CHECK(!closers_.empty());
  out_ += closers_.back();
  closers_.pop_back();
  first_ = false;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  out_ += json_quote(name);
  out_ += ':';
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view value) {
  separate();
  out_ += is_utf8(value) ? json_quote(value) : json_quote(clean_utf8(value));
  return *this;
}

JsonWriter& JsonWriter::integer(int64_t value) {
  separate();
  out_ += std::to_string(value);
  return *this;
}

JsonWriter& JsonWriter::number(double value) {
  separate();
  char text[32] = "null";
  if (std::isfinite(value)) std::snprintf(text, sizeof text, "%.9g", value);
  out_ += text;
  return *this;
}

JsonWriter& JsonWriter::boolean(bool value) {
  separate();
  out_ += value ? "true" : "false";
  return *this;
}

JsonWriter& JsonWriter::null() { return raw("null"); }

JsonWriter& JsonWriter::raw(std::string_view json) {
  separate();
  out_ += json;
  return *this;
}

std::string JsonWriter::take() {
  SPK_CHECK(closers_.empty());
  first_ = true;
  return std::move(out_);
}

}  // namespace spk::server
