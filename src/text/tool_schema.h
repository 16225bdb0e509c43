// Which JSON type an argument of a tool call should have, and how its text becomes JSON.
//
// The markup carries arguments as bare text; only the tool's JSON schema tells 5 from "5". The
// order in which a schema is read, first hit wins: $ref (local), const and enum (types of the
// values), type (a name or a list), anyOf and oneOf (union), allOf (the first part that says
// something), then properties => object, items => array; nullable adds null. Otherwise any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace spk {

// Set of JSON types; 0 is "any".
using TypeSet = uint8_t;
constexpr TypeSet kTypeString = 1;
constexpr TypeSet kTypeNumber = 2;  // integer too
constexpr TypeSet kTypeBoolean = 4;
constexpr TypeSet kTypeNull = 8;
constexpr TypeSet kTypeArray = 16;
constexpr TypeSet kTypeObject = 32;

// Only a string may stand there, so the text is taken as it is and may be streamed.
inline bool is_raw_string(TypeSet types) { return types == kTypeString; }

// The JSON text of an argument:
//  - only string: the text itself, nothing stripped;
//  - any: its JSON reading if it has one, else a string;
//  - else a JSON reading of an admitted type other than string wins; then, if string is admitted,
//  the text as a string; then
//    any JSON reading (a string literal that holds admitted JSON is unwrapped; True, False and None
//    are understood); and text that is no JSON is a string.
std::string argument_json(TypeSet types, std::string_view text);

class ToolSchemas {
 public:
  // JSON text of each tool, OpenAI's form or the bare function ({name, parameters or
  // input_schema}). Throws Error (kInput) when one is not a JSON object; odd schemas inside are
  // never an error, they just say nothing.
  explicit ToolSchemas(const std::vector<std::string>& tools);

  TypeSet types(const std::string& tool, const std::string& argument) const;

 private:
  struct Arguments {
    std::unordered_map<std::string, TypeSet> named;
    TypeSet other = 0;  // additionalProperties
  };
  std::unordered_map<std::string, Arguments> tools_;
};

}  // namespace spk
