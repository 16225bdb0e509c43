// JSON as text, with the order of keys and the digits of numbers kept, and without a JSON type in
// any header.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace spk {

// A string as JSON, as Python's json.dumps(..., ensure_ascii=False) writes it. `inner` leaves the
// quotes out.
std::string json_quote(std::string_view text);
std::string json_quote_inner(std::string_view text);

// One member of an object or element of an array: `text` is the string's content or any other value
// in Python's style.
struct JsonMember {
  std::string key;  // empty in arrays
  bool is_string = false;
  std::string text;
};

// Re-spaces one JSON value as Python's json.loads and json.dumps(..., ensure_ascii=False) would: ",
// " and ": ", keys in order (of equal ones the last value at the first place), floats as Python
// prints them, integers of any length kept. Throws Error (kInput) naming `what` when it is not JSON
// or nested deeper than 128.
std::string python_json(std::string_view json, std::string_view what);

// The members of one JSON object; throws when it is not an object.
std::vector<JsonMember> json_members(std::string_view json, std::string_view what);

// The members of an object or the elements of an array; nothing for any other value. The text must
// be JSON.
std::vector<JsonMember> json_parts(std::string_view json);

// A double as Python's repr: 0.1, 1e-05, 1e+16, 5.0.
std::string python_float(double value);

// Whether python_json would take it.
bool is_json(std::string_view text);

}  // namespace spk
