// Request bodies: JSON with bounds, read field by field; every complaint names the field's path.
//
// The body comes from anybody. Refused are: what is not UTF-8, anything after the value, duplicate
// keys (two readers would disagree about them), a byte order mark, more than 64 levels, more than
// 4096 keys in one object, more than 2 million values. `null` counts as absent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spk::server {

class JsonDocument;

// A value inside a document, which must outlive it.
class JsonValue {
 public:
  enum class Kind : uint8_t { kNull, kBool, kNumber, kString, kArray, kObject };

  Kind kind() const;
  bool is_string() const { return kind() == Kind::kString; }
  bool is_array() const { return kind() == Kind::kArray; }
  bool is_object() const { return kind() == Kind::kObject; }
  bool is_bool() const { return kind() == Kind::kBool; }
  std::string path() const;  // made when asked for: a list may have millions of elements

  // Typed reads; ApiError 400 when it is something else or out of range.
  std::string string() const;
  bool boolean() const;
  int64_t integer(int64_t low, int64_t high) const;
  double number(double low, double high) const;

  // Arrays and objects; the errors are those of a wrong type.
  size_t size() const;
  JsonValue at(size_t index) const;
  class Elements;
  Elements elements() const;  // for a range-based for
  std::vector<std::pair<std::string, JsonValue>> members() const;
  std::optional<JsonValue> find(std::string_view key) const;
  JsonValue need(std::string_view key) const;

  // Fields of an object.
  std::string string_or(std::string_view key, std::string otherwise) const;
  bool boolean_or(std::string_view key, bool otherwise) const;
  int64_t integer_or(std::string_view key, int64_t low, int64_t high, int64_t otherwise) const;
  double number_or(std::string_view key, double low, double high, double otherwise) const;

  std::string dump() const;   // JSON text
  std::string shown() const;  // the same, cut to what a message may hold
  [[noreturn]] void expected(std::string_view what) const;

 private:
  friend class JsonDocument;
  JsonValue(const void* node, std::string path, int64_t index = -1)
      : node_(node), path_(std::move(path)), index_(index) {}
  const void* node_;
  std::string path_;
  int64_t index_;  // of an element, whose list has the path; -1: it is no element
};

class JsonValue::Elements {
 public:
  class Iterator {
   public:
    Iterator(const JsonValue& list, size_t index) : list_(&list), index_(index) {}
    JsonValue operator*() const { return list_->at(index_); }
    Iterator& operator++() { return ++index_, *this; }
    bool operator!=(const Iterator& other) const { return index_ != other.index_; }

   private:
    const JsonValue* list_;
    size_t index_;
  };
  explicit Elements(JsonValue list) : list_(std::move(list)), size_(list_.size()) {}
  Iterator begin() const { return {list_, 0}; }
  Iterator end() const { return {list_, size_}; }

 private:
  JsonValue list_;
  size_t size_;
};

class JsonDocument {
 public:
  explicit JsonDocument(std::string_view text);  // ApiError 400
  ~JsonDocument();
  JsonDocument(JsonDocument&&) noexcept;
  JsonDocument& operator=(JsonDocument&&) noexcept;
  // The root, which is an object.
  JsonValue root() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Whether two texts are the same JSON value. Clients parse what they got and write it again:
// spacing, the order of keys (maps that sort), escapes and the form of a number (1.0 comes back as
// 1) are theirs. Both texts are JSON whose depth somebody has bounded.
bool same_json(std::string_view a, std::string_view b);

}  // namespace spk::server
