// Schemas are read once per request into a set of types per argument.
#include "text/tool_schema.h"

#include "base/error.h"
#include "text/json_text.h"

#include <algorithm>

namespace spk {
namespace {

constexpr int kMaxDepth = 16;
// Bytes of schema read for one tool: references can fan out, a request must not.
constexpr int64_t kBudget = int64_t{16} << 20;

TypeSet named_type(const std::string& name) {
  if (name == "string") return kTypeString;
  if (name == "integer" || name == "number") return kTypeNumber;
  if (name == "boolean") return kTypeBoolean;
  if (name == "null") return kTypeNull;
  if (name == "array") return kTypeArray;
  if (name == "object") return kTypeObject;
  return 0;
}

// The type of a JSON text by its first character.
TypeSet json_type(std::string_view json) {
  switch (json[0]) {
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

TypeSet value_type(const JsonMember& value) {
  return value.is_string ? kTypeString : json_type(value.text);
}

using Members = std::vector<JsonMember>;

const JsonMember* get(const Members& members, std::string_view key) {
  const auto at = std::find_if(members.begin(), members.end(),
                               [&](const JsonMember& m) { return m.key == key; });
  return at == members.end() ? nullptr : &*at;
}

const JsonMember* get_object(const Members& members, std::string_view key) {
  const JsonMember* member = get(members, key);
  return member && value_type(*member) == kTypeObject ? member : nullptr;
}

class SchemaReader {
 public:
  // `root` is what "#" in references means.
  explicit SchemaReader(const JsonMember& root) : root_(root) {}

  TypeSet read(const JsonMember& schema, int depth = 0) {
    if (value_type(schema) != kTypeObject || depth > kMaxDepth || !pay(schema)) return 0;
    const Members members = json_parts(schema.text);
    TypeSet types = direct(members, depth);
    const JsonMember* nullable = get(members, "nullable");
    if (types != 0 && nullable && nullable->text == "true") types |= kTypeNull;
    return types;
  }

 private:
  bool pay(const JsonMember& text) {
    budget_ -= static_cast<int64_t>(text.text.size());
    return budget_ >= 0;
  }

  // A list's elements; nothing when the key is missing or no list.
  static Members list(const Members& members, std::string_view key) {
    const JsonMember* member = get(members, key);
    return member && value_type(*member) == kTypeArray ? json_parts(member->text) : Members();
  }

  TypeSet direct(const Members& members, int depth) {
    if (const JsonMember* ref = get(members, "$ref"); ref && ref->is_string) {
      return read(resolve(ref->text), depth + 1);
    }
    if (const JsonMember* value = get(members, "const")) return value_type(*value);
    TypeSet types = 0;
    for (const JsonMember& value : list(members, "enum")) types |= value_type(value);
    if (types != 0) return types;
    if (const JsonMember* type = get(members, "type"); type && type->is_string) {
      types = named_type(type->text);
    }
    for (const JsonMember& name : list(members, "type")) types |= named_type(name.text);
    if (types != 0) return types;
    for (const char* key : {"anyOf", "oneOf"}) {
      bool all = true;  // one alternative that admits anything makes the whole admit anything
      for (const JsonMember& part : list(members, key)) {
        const TypeSet one = read(part, depth + 1);
        all = all && one != 0;
        types |= one;
      }
      if (types != 0) return all ? types : TypeSet{0};
    }
    for (const JsonMember& part : list(members, "allOf")) {
      if (const TypeSet one = read(part, depth + 1)) return one;
    }
    if (get(members, "properties")) return kTypeObject;
    return get(members, "items") ? kTypeArray : TypeSet{0};
  }

  // What a local reference ("#/$defs/name") points to; null when nothing.
  JsonMember resolve(std::string_view ref) {
    JsonMember at = root_;
    if (!ref.starts_with('#')) return {{}, false, "null"};
    ref.remove_prefix(1);
    while (!ref.empty()) {
      if (ref[0] != '/' || value_type(at) != kTypeObject || !pay(at)) return {{}, false, "null"};
      ref.remove_prefix(1);
      const std::string_view step = ref.substr(0, ref.find('/'));
      ref.remove_prefix(step.size());
      std::string key;
      for (size_t i = 0; i < step.size(); ++i) {
        const bool escaped = step[i] == '~' && i + 1 < step.size();
        if (escaped) ++i;
        key += !escaped ? step[i] : step[i] == '1' ? '/' : '~';
      }
      const Members members = json_parts(at.text);
      const JsonMember* next = get(members, key);
      if (next == nullptr) return {{}, false, "null"};
      at = *next;
    }
    return at;
  }

  const JsonMember& root_;
  int64_t budget_ = kBudget;
};

}  // namespace

ToolSchemas::ToolSchemas(const std::vector<std::string>& tools) {
  for (size_t i = 0; i < tools.size(); ++i) {
    Members function = json_members(tools[i], cat("tools[", i, "]"));
    if (const JsonMember* inner = get_object(function, "function")) {
      Members members = json_parts(inner->text);
      function = std::move(members);
    }
    const JsonMember* name = get(function, "name");
    if (name == nullptr || !name->is_string) continue;
    const JsonMember* schema = get_object(function, "parameters");
    if (schema == nullptr) schema = get_object(function, "input_schema");
    if (schema == nullptr) continue;
    SchemaReader reader(*schema);
    Arguments& arguments = tools_[name->text];
    const Members members = json_parts(schema->text);
    if (const JsonMember* properties = get_object(members, "properties")) {
      for (const JsonMember& property : json_parts(properties->text)) {
        arguments.named[property.key] = reader.read(property);
      }
    }
    if (const JsonMember* other = get(members, "additionalProperties")) {
      arguments.other = reader.read(*other);
    }
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
      const Members inner = json_parts(cat('[', trimmed, ']'));
      const std::string_view value = trim(inner.at(0).text);
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
