#include "formats/safetensors.h"

#include "base/file.h"
#include "base/json_whole.h"
#include "formats/untrusted.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

namespace spk {
namespace {

constexpr uint64_t kMaxHeader = 100'000'000;  // the format's own limit
constexpr size_t kMaxRank = 8;

struct TypeName {
  std::string_view name;
  StoredType type;
  int64_t bytes;
};
constexpr TypeName kTypes[] = {
    {"F64", StoredType::kF64, 8},        {"F32", StoredType::kF32, 4},
    {"F16", StoredType::kF16, 2},        {"BF16", StoredType::kBf16, 2},
    {"F8_E4M3", StoredType::kF8E4m3, 1}, {"F8_E8M0", StoredType::kF8E8m0, 1},
    {"I64", StoredType::kI64, 8},        {"I32", StoredType::kI32, 4},
    {"I8", StoredType::kI8, 1},          {"U8", StoredType::kU8, 1},
};

// Event handler instead of a document tree: the header may have 100 MB, and a tree of it many times
// that. What is kept is bounded by the header's own length.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(const std::string& file) : file_(file) {}

  std::vector<StoredTensor> tensors;
  Complaints complaints;
  std::string broken;  // why parsing stopped

  bool null() override { return scalar("null"); }
  bool boolean(bool) override { return scalar("a boolean"); }
  bool number_float(double, const string_t&) override { return scalar("a fraction"); }
  bool number_integer(int64_t) override { return scalar("a negative number"); }
  bool number_unsigned(uint64_t value) override {
    if (place_ == Place::kShape) {
      if (tensor_.shape.size() >= kMaxRank) return stop("a shape of more than 8 dimensions");
      // Beyond int64 no file could hold it; -1 is refused by the checked product.
      tensor_.shape.push_back(value > INT64_MAX ? -1 : static_cast<int64_t>(value));
      return true;
    }
    if (place_ == Place::kOffsets) {
      if (offsets_ < 2) offset_[offsets_] = value;
      ++offsets_;
      return true;
    }
    return scalar("a number");
  }
  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) return true;
    if (place_ != Place::kTensor || key_ != "dtype") return stop("an unexpected string");
    type_name_ = value;
    return true;
  }
  bool binary(binary_t&) override { return false; }

  bool start_object(size_t) override {
    if (place_ == Place::kOutside) {
      place_ = Place::kTop;
      return true;
    }
    if (place_ != Place::kTop) return stop("an unexpected object");
    if (key_ == "__metadata__") {
      if (std::exchange(seen_metadata_, true)) return stop("__metadata__ twice");
      place_ = Place::kMetadata;
      return true;
    }
    tensor_ = {};
    tensor_.name = key_;
    type_name_.reset();
    has_shape_ = has_offsets_ = false;
    offsets_ = 0;
    place_ = Place::kTensor;
    return true;
  }
  bool end_object() override {
    if (place_ == Place::kTensor) finish_tensor();
    place_ = place_ == Place::kTop ? Place::kOutside : Place::kTop;
    return true;
  }
  bool key(string_t& value) override {
    key_ = value;
    if (place_ != Place::kTensor) return true;
    const bool twice = (value == "dtype" && type_name_) || (value == "shape" && has_shape_) ||
                       (value == "data_offsets" && has_offsets_);
    if (twice) return stop("the same key twice");
    if (value == "dtype" || value == "shape" || value == "data_offsets") return true;
    return stop("an unknown key");
  }
  bool start_array(size_t) override {
    if (place_ != Place::kTensor) return stop("an unexpected array");
    if (key_ == "shape") {
      has_shape_ = true;
      place_ = Place::kShape;
    } else if (key_ == "data_offsets") {
      has_offsets_ = true;
      place_ = Place::kOffsets;
    } else {
      return stop("an unexpected array");
    }
    return true;
  }
  bool end_array() override {
    place_ = Place::kTensor;
    return true;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& /*error*/) override {
    broken =
        cat("not valid JSON: expected a value, a name or an end, found something else near byte ",
            position);
    return false;
  }

 private:
  enum class Place { kOutside, kTop, kMetadata, kTensor, kShape, kOffsets };

  bool scalar(const char* what) { return stop(cat("an unexpected value: ", what)); }
  bool stop(const std::string& what) {
    broken = what;
    if (place_ >= Place::kTensor) broken += cat(" in tensor ", printable(tensor_.name));
    if (place_ >= Place::kTop && !key_.empty()) broken += cat(" at key '", printable(key_), "'");
    return false;
  }

  void finish_tensor() {
    const auto complain = [&](auto&&... args) {
      complaints.add(file_, ": ", printable(tensor_.name), ": ", args...);
    };
    if (!type_name_ || !has_shape_ || !has_offsets_) {
      complain("expected dtype, shape and data_offsets, found less");
      return;
    }
    const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                    [&](const TypeName& t) { return t.name == *type_name_; });
    if (type == std::end(kTypes)) {
      std::string names;
      for (const TypeName& known : kTypes) names += cat(names.empty() ? "" : ", ", known.name);
      complain("unknown dtype: expected ", names, ", found '", printable(*type_name_), "'");
      return;
    }
    tensor_.type = type->type;
    if (offsets_ != 2) {
      complain("expected two data_offsets, found ", offsets_);
      return;
    }
    std::optional<int64_t> bytes = type->bytes;
    for (const int64_t n : tensor_.shape) bytes = bytes ? checked_mul(*bytes, n) : bytes;
    if (!bytes) {
      complain("the shape's product overflows");
      return;
    }
    if (offset_[0] > offset_[1]) {
      complain("data_offsets are reversed: [", offset_[0], ", ", offset_[1], "]");
      return;
    }
    if (offset_[1] - offset_[0] != static_cast<uint64_t>(*bytes)) {
      complain("expected ", *bytes, " bytes (shape x dtype), found ", offset_[1] - offset_[0],
               " (data_offsets)");
      return;
    }
    tensor_.offset =
        offset_[0];  // from the header's end for now: adding could wrap before the check
    tensor_.bytes = static_cast<uint64_t>(*bytes);
    tensors.push_back(std::move(tensor_));
  }

  const std::string& file_;
  Place place_ = Place::kOutside;
  std::string key_;
  StoredTensor tensor_;
  std::optional<std::string> type_name_;
  bool has_shape_ = false, has_offsets_ = false, seen_metadata_ = false;
  uint64_t offset_[2] = {};
  size_t offsets_ = 0;
};

// The bytes after the header must be exactly the tensors, one behind the other. Holes and trailing
// bytes are refused on every path (the reference implementation refuses them too): nobody's bytes
// are more often a damaged file than a wish.
void check_layout(std::vector<StoredTensor>& tensors, uint64_t data_begin, uint64_t data_bytes,
                  const std::string& file, Complaints& complaints) {
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  uint64_t end = 0;
  for (StoredTensor& t : tensors) {
    const std::string name = printable(t.name);
    if (t.offset > data_bytes || t.bytes > data_bytes - t.offset) {
      complaints.add(file, ": ", name, ": data_offsets [", t.offset, ", +", t.bytes,
                     "] are outside the file: expected at least ", data_begin, " + ", t.offset,
                     " + ", t.bytes, " bytes in the file, found ", data_begin + data_bytes);
    } else if (t.offset < end) {
      complaints.add(file, ": ", name, ": overlaps the tensor before it: expected offset ", end,
                     ", found ", t.offset);
    } else if (t.offset > end) {
      complaints.add(file, ": ", name, ": a hole of ", t.offset - end,
                     " bytes before it: expected offset ", end, ", found ", t.offset);
    }
    if (t.offset <= data_bytes && t.bytes <= data_bytes - t.offset)
      end = std::max(end, t.offset + t.bytes);
    t.offset += data_begin;
  }
  if (complaints.empty() && end != data_bytes) {
    complaints.add(file, ": ", data_bytes - end, " bytes after the last tensor: expected ",
                   data_begin + end, " bytes in the file, found ", data_begin + data_bytes);
  }
}

void check_names(const std::vector<StoredTensor>& tensors, const std::string& file,
                 Complaints& complaints) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const StoredTensor& t : tensors) names.push_back(t.name);
  std::sort(names.begin(), names.end());
  for (size_t i = 1; i < names.size(); ++i)
    if (names[i] == names[i - 1])
      complaints.add(file, ": ", printable(names[i]), ": named twice in the header");
}

}  // namespace

std::string_view stored_type_name(StoredType type) {
  return kTypes[static_cast<size_t>(type)].name;
}
int64_t stored_type_bytes(StoredType type) { return kTypes[static_cast<size_t>(type)].bytes; }

std::vector<StoredTensor> parse_safetensors_header(std::string_view head, uint64_t file_size,
                                                   const std::string& file) {
  if (file_size < 8 || head.size() < 8) {
    fail_input(file, ": expected at least 8 bytes (header length), found ",
               std::min<uint64_t>(file_size, head.size()));
  }
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i)
    length = length << 8 | static_cast<unsigned char>(head[static_cast<size_t>(i)]);
  if (length > kMaxHeader) {
    fail_input(file, ": expected a header of at most ", kMaxHeader, " bytes, found ", length,
               lfs_hint(head).empty() ? " (is this a safetensors file?)" : lfs_hint(head));
  }
  if (length > file_size - 8 || length > head.size() - 8) {
    fail_input(file, ": header is truncated: expected ", length, " bytes, found ",
               std::min<uint64_t>(file_size, head.size()) - 8);
  }
  const std::string_view text = head.substr(8, length);
  if (text.empty() || text[0] != '{') fail_input(file, ": the header does not begin with '{'");

  const uint64_t data_begin = 8 + length;
  HeaderReader reader(file);
  if (!nlohmann::json::sax_parse(json_whole(text), &reader))
    fail_input(file, ": bad header: ", reader.broken);
  check_names(reader.tensors, file, reader.complaints);
  check_layout(reader.tensors, data_begin, file_size - data_begin, file, reader.complaints);
  reader.complaints.throw_if_any(file + ": bad header");
  return std::move(reader.tensors);
}

}  // namespace spk
