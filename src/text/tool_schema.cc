// Schemas are read once per request into a set of types per argument.
#include "text/tool_schema.h"

#include "base/error.h"
#include "text/json_text.h"

#include <nlohmann/json.hpp>

namespace spk {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 16;
// Nodes visited for one tool: references can fan out, a request must not.
constexpr int kBudget = 100000;

TypeSet named_type(const std::string& name) {
  if (name == "string") return kTypeString;
  if (name == "integer" || name == "number") return kTypeNumber;
  if (name == "boolean") return kTypeBoolean;
  if (name == "null") return kTypeNull;
  if (name == "array") return kTypeArray;
  if (name == "object") return kTypeObject;
  return 0;
}

TypeSet value_type(const json& value) {
  if (value.is_string()) return kTypeString;
  if (value.is_number()) return kTypeNumber;
  if (value.is_boolean()) return kTypeBoolean;
  if (value.is_null()) return kTypeNull;
  return value.is_array() ? kTypeArray : kTypeObject;
}

class SchemaReader {
 public:
  explicit SchemaReader(const json& root) : root_(root) {}

  TypeSet read(const json& schema, int depth = 0) {
    if (!schema.is_object() || depth > kMaxDepth || --budget_ < 0) return 0;
    TypeSet types = direct(schema, depth);
    const auto nullable = schema.find("nullable");
    if (types != 0 && nullable != schema.end() && *nullable == true) types |= kTypeNull;
    return types;
  }

 private:
  TypeSet direct(const json& schema, int depth) {
    if (const json* ref = get(schema, "$ref"); ref && ref->is_string()) {
      const json* target = resolve(ref->get<std::string>());
      return target ? read(*target, depth + 1) : TypeSet{0};
    }
    if (const json* value = get(schema, "const")) return value_type(*value);
    if (const json* values = get(schema, "enum"); values && values->is_array()) {
      TypeSet types = 0;
      for (const json& value : *values) types |= value_type(value);
      if (types != 0) return types;
    }
    if (const json* type = get(schema, "type")) {
      TypeSet types = 0;
      if (type->is_string()) types = named_type(type->get<std::string>());
      if (type->is_array()) {
        for (const json& name : *type) {
          if (name.is_string()) types |= named_type(name.get<std::string>());
        }
      }
      if (types != 0) return types;
    }
    for (const char* key : {"anyOf", "oneOf"}) {
      const json* parts = get(schema, key);
      if (parts == nullptr || !parts->is_array()) continue;
      TypeSet types = 0;
      bool all = true;  // one alternative that admits anything makes the whole admit anything
      for (const json& part : *parts) {
        const TypeSet one = read(part, depth + 1);
        all = all && one != 0;
        types |= one;
      }
      if (types != 0) return all ? types : TypeSet{0};
    }
    if (const json* parts = get(schema, "allOf"); parts && parts->is_array()) {
      for (const json& part : *parts) {
        if (const TypeSet types = read(part, depth + 1)) return types;
      }
    }
    if (schema.contains("properties")) return kTypeObject;
    if (schema.contains("items")) return kTypeArray;
    return 0;
  }

  static const json* get(const json& object, const char* key) {
    const auto at = object.find(key);
    return at == object.end() ? nullptr : &*at;
  }

  const json* resolve(const std::string& ref) const {
    if (ref.empty() || ref[0] != '#') return nullptr;
    try {
      return &root_.at(json::json_pointer(ref.substr(1)));
    } catch (const json::exception&) {
      return nullptr;
    }
  }

  const json& root_;
  int budget_ = kBudget;
};

}  // namespace

ToolSchemas::ToolSchemas(const std::vector<std::string>& tools) {
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string what = cat("tools[", i, "]");
    if (!is_json(tools[i])) fail_input(what, ": expected JSON, at most 128 levels deep");
    const json tool = json::parse(tools[i]);
    if (!tool.is_object()) fail_input(what, ": expected a JSON object");
    const json& function =
        tool.contains("function") && tool["function"].is_object() ? tool["function"] : tool;
    const auto name = function.find("name");
    if (name == function.end() || !name->is_string()) continue;
    auto schema = function.find("parameters");
    if (schema == function.end()) schema = function.find("input_schema");
    if (schema == function.end() || !schema->is_object()) continue;
    SchemaReader reader(*schema);
    Arguments& arguments = tools_[name->get<std::string>()];
    const auto properties = schema->find("properties");
    if (properties != schema->end() && properties->is_object()) {
      for (const auto& [key, property] : properties->items()) {
        arguments.named[key] = reader.read(property);
      }
    }
    const auto other = schema->find("additionalProperties");
    if (other != schema->end()) arguments.other = reader.read(*other);
  }
}

TypeSet ToolSchemas::types(const std::string& tool, const std::string& argument) const {
  const auto at = tools_.find(tool);
  if (at == tools_.end()) return 0;
  const auto named = at->second.named.find(argument);
  return named == at->second.named.end() ? at->second.other : named->second;
}

namespace {

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

TypeSet json_type(std::string_view json_text) {
  switch (json_text[0]) {
    case '"':
      return kTypeString;
    case '{':
      return kTypeObject;
    case '[':
      return kTypeArray;
    case 't':
    case 'f':
      return kTypeBoolean;
    case 'n':
      return kTypeNull;
    default:
      return kTypeNumber;
  }
}

}  // namespace

std::string argument_json(TypeSet types, std::string_view text) {
  if (is_raw_string(types)) return json_quote(text);
  const std::string_view trimmed = trim(text);
  const bool admits_string = (types & kTypeString) != 0;
  if (!trimmed.empty() && is_json(trimmed)) {
    const TypeSet found = json_type(trimmed);
    if (types == 0) return std::string(trimmed);
    if (found != kTypeString && (found & types) != 0) return std::string(trimmed);
    if (admits_string) return json_quote(text);
    if (found == kTypeString) {  // encoded twice
      const std::string inner = json::parse(trimmed).get<std::string>();
      const std::string_view value = trim(inner);
      if (!value.empty() && is_json(value) && (json_type(value) & types) != 0)
        return std::string(value);
    }
    return std::string(trimmed);
  }
  if (!admits_string) {
    if ((types & kTypeBoolean) != 0 && trimmed == "True") return "true";
    if ((types & kTypeBoolean) != 0 && trimmed == "False") return "false";
    if ((types & kTypeNull) != 0 && trimmed == "None") return "null";
  }
  return json_quote(text);
}

}  // namespace spk
