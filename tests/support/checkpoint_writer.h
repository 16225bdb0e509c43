// Random checkpoints of small dimensions in the four published layouts, for tests: made from the
// tensor table, changed at will (drop, rename, relabel), then opened from memory or from a folder.
#pragma once

#include "formats/checkpoint.h"
#include "model/config.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace spk::test {

enum class Release { kBf16, kFp8, kFp4, kInt4 };
inline constexpr Release kReleases[] = {Release::kBf16, Release::kFp8, Release::kFp4,
                                        Release::kInt4};

// A folder under the system's temporary one, removed with everything in it.
class TempFolder {
 public:
  TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder();
  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

void write_file(const std::string& path, std::string_view bytes);

// A config.json of a small member of the family: 6 layers (MLA at 2 and 5), 1 dense, one MTP layer.
// `patch` is a JSON object whose keys replace (null: set to null) those of the base.
std::string small_config(std::string_view patch = "{}");

struct WrittenTensor {
  std::string name;
  std::string dtype;  // as in the header
  std::vector<int64_t> shape;
  std::string bytes;
};

// One .safetensors file.
std::string safetensors_file(const std::vector<WrittenTensor>& tensors);

struct WrittenCheckpoint {
  std::string config;
  std::vector<WrittenTensor> tensors;

  WrittenCheckpoint(std::string config_text, Release release, uint64_t seed);
  WrittenTensor& at(std::string_view name);  // the stored name; throws std::out_of_range
  void erase(std::string_view name);
  // Removes every tensor whose name begins so.
  void erase_prefix(std::string_view prefix);

  ModelConfig parsed() const { return parse_config(config, "config.json"); }
  void write(const std::string& folder, int shards) const;  // 0: model.safetensors, no index
  // One shard in memory; the checkpoint must not outlive this object or see it change.
  std::unique_ptr<Checkpoint> open();

 private:
  std::string file_;
};

}  // namespace spk::test
