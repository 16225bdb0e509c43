#include "formats/checkpoint.h"

#include "base/direct_file.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_whole.h"
#include "formats/untrusted.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>
#include <utility>

namespace spk {
namespace {

constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr std::string_view kSingle = "model.safetensors";
constexpr std::string_view kShardEnd = ".safetensors";
constexpr std::array<std::string_view, 6> kTexts = {"config.json",         "generation_config.json",
                                                    "tokenizer.json",      "tokenizer_config.json",
                                                    "chat_template.jinja", "token_counts.txt"};

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// weight_map of the index, in file order, duplicates kept (a document tree would hide them).
class IndexReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<std::pair<std::string, std::string>> entries;
  std::string broken;
  bool seen = false;

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("a boolean"); }
  bool number_float(double, const string_t&) override { return other("a number"); }
  bool number_integer(int64_t) override { return other("a number"); }
  bool number_unsigned(uint64_t) override { return other("a number"); }
  bool binary(binary_t&) override { return false; }
  bool string(string_t& value) override {
    if (inside()) entries.emplace_back(key_, value);
    return true;
  }
  bool key(string_t& value) override {
    if (depth_ == 1 && value == "weight_map" && std::exchange(seen, true))
      return stop("weight_map twice");
    if (depth_ == 1) in_map_ = value == "weight_map";
    key_ = value;
    return true;
  }
  bool start_object(size_t) override { return enter(); }
  bool start_array(size_t) override { return inside() ? other("an array") : enter(); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& /*error*/) override {
    return stop(
        cat("not valid JSON: expected a value, a name or an end, found something else near byte ",
            position));
  }

 private:
  bool inside() const { return in_map_ && depth_ == 2; }
  bool enter() {
    if (inside()) return other("an object");
    return ++depth_ <= 64 || stop("nested deeper than 64");
  }
  bool leave() {
    --depth_;
    return true;
  }
  bool other(const char* what) {
    if (!in_map_) return true;
    return stop(cat("expected a file name for ", printable(key_), ", found ", what));
  }
  bool stop(const std::string& why) {
    broken = why;
    return false;
  }

  std::string key_;
  int depth_ = 0;
  bool in_map_ = false;
};

struct Shard {
  std::string path;  // for messages
  std::string_view bytes;
  MappedFile map;                      // empty when the bytes live in memory
  std::unique_ptr<DirectFile> direct;  // beside the map
  std::vector<StoredTensor> tensors;
};

class OpenCheckpoint : public Checkpoint {
 public:
  OpenCheckpoint(std::string name, std::map<std::string, Shard, std::less<>> shards,
                 std::map<std::string, std::string, std::less<>> texts)
      : name_(std::move(name)), shards_(std::move(shards)), texts_(std::move(texts)) {}

  // The checks of the header comment; index is the text of the index file if there is one.
  void check(const std::optional<std::string>& index, Complaints complaints) {
    read_headers(complaints);
    if (index) {
      check_index(*index, complaints);
    } else {
      for (const auto& [file, shard] : shards_) {
        if (file != kSingle) complaints.add(shard.path, ": a shard, but ", kIndex, " is missing");
      }
    }
    complaints.throw_if_any(name_ + ": bad checkpoint");
  }

  std::string_view name() const override { return name_; }

  std::optional<TensorBytes> find(std::string_view tensor) const override {
    const auto it = where_.find(tensor);
    if (it == where_.end()) return std::nullopt;
    return view(*it->second.first, *it->second.second);
  }

  void for_each(const std::function<void(const TensorBytes&)>& visit) const override {
    for (const auto& [file, shard] : shards_)
      for (const StoredTensor& t : shard.tensors) visit(view(shard, t));
  }

  std::span<const std::byte> file_of(const std::byte* data) const override {
    const Shard* shard = mapped(data);
    if (shard == nullptr) return {};
    return {reinterpret_cast<const std::byte*>(shard->bytes.data()), shard->bytes.size()};
  }
  const std::byte* read(const std::byte* data, size_t bytes, std::byte* buffer) const override {
    const Shard* shard = mapped(data);
    if (shard == nullptr) return data;
    const auto offset =
        static_cast<uint64_t>(data - reinterpret_cast<const std::byte*>(shard->bytes.data()));
    SPK_CHECK(offset + bytes <= shard->bytes.size());
    return shard->direct->read(offset, bytes, buffer);
  }

  void drop(const std::byte* data, size_t bytes) const override {
    for (const auto& [file, shard] : shards_) {
      if (shard.map.contains(data)) return shard.map.drop(data, bytes);
      const auto* begin = reinterpret_cast<const std::byte*>(shard.bytes.data());
      if (data >= begin && data < begin + shard.bytes.size())
        return;  // memory of the caller's: nothing to give back
    }
  }

  std::optional<std::string_view> text(std::string_view file) const override {
    const auto it = texts_.find(file);
    if (it == texts_.end()) return std::nullopt;
    return it->second;
  }

  uint64_t file_bytes() const override {
    uint64_t sum = 0;
    for (const auto& [file, shard] : shards_) sum += shard.bytes.size();
    return sum;
  }

 private:
  // The shard on disk that holds these bytes.
  const Shard* mapped(const std::byte* data) const {
    for (const auto& [file, shard] : shards_)
      if (shard.map.contains(data)) return &shard;
    return nullptr;
  }
  static TensorBytes view(const Shard& shard, const StoredTensor& t) {
    return {&t, reinterpret_cast<const std::byte*>(shard.bytes.data()) + t.offset, &shard.path};
  }

  void read_headers(Complaints& complaints) {
    for (auto& [file, shard] : shards_) {
      try {
        shard.tensors = parse_safetensors_header(shard.bytes, shard.bytes.size(), shard.path);
      } catch (const Error& error) {
        complaints.add(error.what());
      }
      for (const StoredTensor& t : shard.tensors) {
        const auto [it, fresh] = where_.try_emplace(t.name, &shard, &t);
        if (!fresh) {
          complaints.add(shard.path, ": ", printable(t.name), ": also in ", it->second.first->path);
        }
      }
    }
  }

  void check_index(const std::string& text, Complaints& complaints) {
    const std::string path = name_ + "/" + std::string(kIndex);
    IndexReader reader;
    if (!nlohmann::json::sax_parse(json_whole(text), &reader)) {
      complaints.add(path, ": bad index: ", reader.broken);
      return;
    }
    if (!reader.seen) complaints.add(path, ": expected a weight_map, found none");
    std::unordered_map<std::string_view, std::string_view> map;
    std::map<std::string_view, bool> named;  // shard -> present
    for (const auto& [tensor, file] : reader.entries) {
      if (!map.try_emplace(tensor, file).second)
        complaints.add(path, ": names ", printable(tensor), " twice");
      if (named.try_emplace(file, shards_.count(file) != 0).second && shards_.count(file) == 0)
        complaints.add(name_, "/", printable(file), ": named by the index, but missing");
    }
    for (const auto& [tensor, file] : map) {
      const auto shard = shards_.find(file);
      if (shard == shards_.end()) continue;
      const auto it = where_.find(tensor);
      if (it == where_.end() || it->second.first != &shard->second) {
        complaints.add(shard->second.path, ": ", printable(tensor), ": named by the index, ",
                       it == where_.end() ? "but in no shard" : "but in another shard");
      }
    }
    for (const auto& [file, shard] : shards_) {
      if (named.count(file) == 0) {
        complaints.add(shard.path, file == kSingle ? ": beside an index that does not name it"
                                                   : ": a foreign shard: not named by the index");
        continue;
      }
      for (const StoredTensor& t : shard.tensors)
        if (map.count(t.name) == 0)
          complaints.add(shard.path, ": ", printable(t.name), ": not named by the index");
    }
  }

  std::string name_;
  std::map<std::string, Shard, std::less<>> shards_;
  std::map<std::string, std::string, std::less<>> texts_;
  std::unordered_map<std::string_view, std::pair<const Shard*, const StoredTensor*>> where_;
};

}  // namespace

std::unique_ptr<Checkpoint> Checkpoint::open(const std::string& folder) {
  if (!file_exists(folder)) fail_input(folder, ": expected a checkpoint folder, found nothing");
  if (!is_folder(folder)) fail_input(folder, ": expected a checkpoint folder, found a file");
  Complaints complaints;
  std::map<std::string, Shard, std::less<>> shards;
  std::map<std::string, std::string, std::less<>> texts;
  std::optional<std::string> index;
  for (const std::string& file : list_folder(folder)) {
    const std::string path = cat(folder, "/", file);
    try {
      if (ends_with(file, ".incomplete")) {
        complaints.add(path, ": the leftover of a download: finish or remove it");
      } else if (ends_with(file, kShardEnd)) {
        Shard shard;
        shard.path = path;
        shard.map = MappedFile(path);
        shard.bytes = shard.map.bytes();
        shard.direct = std::make_unique<DirectFile>(path);
        shards.emplace(file, std::move(shard));
      } else if (file == kIndex) {
        index = read_small_file(path, kMaxText);
      } else if (std::find(kTexts.begin(), kTexts.end(), file) != kTexts.end()) {
        texts.emplace(file, read_small_file(path, kMaxText));
      }
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInput) throw;
      complaints.add(error.what());
    }
  }
  auto checkpoint = std::make_unique<OpenCheckpoint>(folder, std::move(shards), std::move(texts));
  checkpoint->check(index, std::move(complaints));
  return checkpoint;
}

std::unique_ptr<Checkpoint> Checkpoint::from_memory(std::string name,
                                                    const std::vector<MemoryFile>& files) {
  std::map<std::string, Shard, std::less<>> shards;
  std::map<std::string, std::string, std::less<>> texts;
  std::optional<std::string> index;
  for (const MemoryFile& file : files) {
    if (ends_with(file.name, kShardEnd)) {
      Shard shard;
      shard.path = cat(name, "/", file.name);
      shard.bytes = file.bytes;
      shards.emplace(file.name, std::move(shard));
    } else if (file.name == kIndex) {
      index = std::string(file.bytes);
    } else {
      texts.emplace(file.name, file.bytes);
    }
  }
  auto checkpoint =
      std::make_unique<OpenCheckpoint>(std::move(name), std::move(shards), std::move(texts));
  checkpoint->check(index, {});
  return checkpoint;
}

}  // namespace spk
