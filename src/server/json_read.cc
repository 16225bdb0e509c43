#include "server/json_read.h"

#include "server/api_error.h"
#include "text/utf8.h"

#include <nlohmann/json.hpp>

#include <cmath>
#include <unordered_set>

namespace spk::server {
namespace {

using Node = nlohmann::ordered_json;

constexpr size_t kDepth = 64;
constexpr size_t kKeys = 4096;       // members are searched one by one
constexpr size_t kValues = 1 << 21;  // two bytes of text can be 70 of the tree
constexpr size_t kShown = 60;

[[noreturn]] void bad_body(const std::string& why) {
  throw ApiError(400, "invalid_json", "", cat("request body: ", why));
}

const Node& node(const void* pointer) { return *static_cast<const Node*>(pointer); }

std::string child(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : cat(path, ".", key);
}

}  // namespace

struct JsonDocument::Impl {
  Node root;
};

JsonDocument::~JsonDocument() = default;
JsonDocument::JsonDocument(JsonDocument&&) noexcept = default;
JsonDocument& JsonDocument::operator=(JsonDocument&&) noexcept = default;

JsonDocument::JsonDocument(std::string_view text) : impl_(std::make_unique<Impl>()) {
  if (text.empty()) bad_body("expected a JSON object, found nothing");
  if (text.substr(0, 3) == "\xef\xbb\xbf") bad_body("expected JSON, found a byte order mark");
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos)
    bad_body(cat("expected JSON, found a NUL at byte ", nul + 1));
  std::vector<std::unordered_set<std::string>> keys;
  size_t values = 0;
  const auto watch = [&](int, Node::parse_event_t event, Node& parsed) {
    if (event != Node::parse_event_t::key && ++values > kValues)
      bad_body(cat("expected at most ", kValues,
                   " values, lists and objects counting twice, found more"));
    switch (event) {
      case Node::parse_event_t::object_start:
      case Node::parse_event_t::array_start:
        if (keys.size() == kDepth) bad_body(cat("nested deeper than ", kDepth, " levels"));
        keys.emplace_back();
        break;
      case Node::parse_event_t::object_end:
      case Node::parse_event_t::array_end:
        keys.pop_back();
        break;
      case Node::parse_event_t::key: {
        const auto& key = parsed.get_ref<const std::string&>();
        if (!keys.back().insert(key).second)
          bad_body(cat("the key '", key.substr(0, kShown), "' stands twice in one object"));
        if (keys.back().size() > kKeys) bad_body(cat("more than ", kKeys, " keys in one object"));
        break;
      }
      case Node::parse_event_t::value:
        break;
    }
    return true;
  };
  try {
    impl_->root = Node::parse(text, watch);
  } catch (const Node::parse_error& error) {
    bad_body(cat(is_utf8(text) ? "expected JSON" : "expected JSON in UTF-8",
                 ", found something else at byte ", error.byte));
  } catch (const Node::exception&) {
    bad_body("a number is outside the range of a double");
  }
  if (!impl_->root.is_object())
    bad_body(cat("expected a JSON object, found ", impl_->root.type_name()));
}

JsonValue JsonDocument::root() const { return {&impl_->root, ""}; }

JsonValue::Kind JsonValue::kind() const {
  const Node& n = node(node_);
  if (n.is_string()) return Kind::kString;
  if (n.is_number()) return Kind::kNumber;
  if (n.is_boolean()) return Kind::kBool;
  if (n.is_array()) return Kind::kArray;
  if (n.is_object()) return Kind::kObject;
  return Kind::kNull;
}

std::string JsonValue::path() const { return index_ < 0 ? path_ : cat(path_, "[", index_, "]"); }

std::string JsonValue::dump() const {
  return node(node_).dump(-1, ' ', false, Node::error_handler_t::replace);
}

std::string JsonValue::shown() const {
  std::string text = dump();
  if (text.size() > kShown) text = clean_utf8(text.substr(0, kShown)) + "...";
  return text;
}

void JsonValue::expected(std::string_view what) const {
  const std::string place = path();
  throw ApiError(
      400, "invalid_value", place,
      cat(place.empty() ? "request body" : place, ": expected ", what, ", found ", shown()));
}

std::string JsonValue::string() const {
  if (!is_string()) expected("a string");
  return node(node_).get<std::string>();
}

bool JsonValue::boolean() const {
  if (!is_bool()) expected("true or false");
  return node(node_).get<bool>();
}

int64_t JsonValue::integer(int64_t low, int64_t high) const {
  const auto refuse = [&] { expected(cat("an integer from ", low, " to ", high)); };
  const Node& n = node(node_);
  int64_t value = 0;
  if (n.is_number_unsigned()) {
    const auto big = n.get<uint64_t>();
    if (big > static_cast<uint64_t>(INT64_MAX)) refuse();
    value = static_cast<int64_t>(big);
  } else if (n.is_number_integer()) {
    value = n.get<int64_t>();
  } else if (n.is_number_float()) {
    const auto real = n.get<double>();
    if (std::abs(real) > 9e15 || real != std::floor(real)) refuse();
    value = static_cast<int64_t>(real);
  } else {
    refuse();
  }
  if (value < low || value > high) refuse();
  return value;
}

double JsonValue::number(double low, double high) const {
  const std::string range = cat("a number from ", low, " to ", high);
  if (kind() != Kind::kNumber) expected(range);
  const auto value = node(node_).get<double>();
  if (!(value >= low && value <= high)) expected(range);
  return value;
}

size_t JsonValue::size() const { return node(node_).size(); }

JsonValue JsonValue::at(size_t index) const {
  if (!is_array()) expected("an array");
  // A list in a list is rare, so that its own path may be made.
  return {&node(node_).at(index), path(), static_cast<int64_t>(index)};
}

JsonValue::Elements JsonValue::elements() const {
  if (!is_array()) expected("an array");
  return Elements(*this);
}

std::vector<std::pair<std::string, JsonValue>> JsonValue::members() const {
  if (!is_object()) expected("an object");
  std::vector<std::pair<std::string, JsonValue>> out;
  for (const auto& [key, value] : node(node_).items())
    out.emplace_back(key, JsonValue(&value, child(path(), key)));
  return out;
}

std::optional<JsonValue> JsonValue::find(std::string_view key) const {
  if (!is_object()) expected("an object");
  const auto at = node(node_).find(std::string(key));
  if (at == node(node_).end() || at->is_null()) return std::nullopt;
  return JsonValue(&*at, child(path(), key));
}

JsonValue JsonValue::need(std::string_view key) const {
  if (auto value = find(key)) return *value;
  const std::string missing = child(path(), key);
  throw ApiError(400, "missing_required_parameter", missing, cat(missing, ": missing"));
}

std::string JsonValue::string_or(std::string_view key, std::string otherwise) const {
  const auto value = find(key);
  return value ? value->string() : std::move(otherwise);
}

bool JsonValue::boolean_or(std::string_view key, bool otherwise) const {
  const auto value = find(key);
  return value ? value->boolean() : otherwise;
}

int64_t JsonValue::integer_or(std::string_view key, int64_t low, int64_t high,
                              int64_t otherwise) const {
  const auto value = find(key);
  return value ? value->integer(low, high) : otherwise;
}

bool same_json(std::string_view a, std::string_view b) {
  if (a == b) return true;
  using Json = nlohmann::json;
  const Json one = Json::parse(a, nullptr, false), two = Json::parse(b, nullptr, false);
  return !one.is_discarded() && !two.is_discarded() && one == two;
}

double JsonValue::number_or(std::string_view key, double low, double high, double otherwise) const {
  const auto value = find(key);
  return value ? value->number(low, high) : otherwise;
}

}  // namespace spk::server
