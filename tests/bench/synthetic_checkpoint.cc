// Writes a synthetic model as a checkpoint folder, and reads a folder's files as fast as they come:
// what loading is measured with and against (docs/CUDA.md).
//
//   synthetic_checkpoint write NAME LAYERS FOLDER   shards of 2 GiB, and config.json; LAYERS: whole
//                                                   groups of the model's schedule
//   synthetic_checkpoint read FOLDER                16 threads, direct reads of 4 MiB: GB/s
#include "base/direct_file.h"
#include "base/error.h"
#include "base/file.h"
#include "model/synthetic.h"

#include <nlohmann/json.hpp>

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>
#include <vector>

namespace spk {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr uint64_t kShard = uint64_t{2} << 30;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void write_shard(const std::string& path, const std::vector<TensorBytes>& tensors,
                 const TensorSource& source) {
  Json header;
  uint64_t at = 0;
  for (const TensorBytes& t : tensors) {
    header[t.info->name] = {{"dtype", std::string(stored_type_name(t.info->type))},
                            {"shape", t.info->shape},
                            {"data_offsets", {at, at + t.info->bytes}}};
    at += t.info->bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::ofstream file(path, std::ios::binary);
  const uint64_t length = text.size();
  file.write(reinterpret_cast<const char*>(&length), sizeof length);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  std::vector<std::byte> buffer;
  for (const TensorBytes& t : tensors) {
    buffer.resize(t.info->bytes + 8);
    const std::byte* bytes = source.read(t.data, t.info->bytes, buffer.data());
    file.write(reinterpret_cast<const char*>(bytes), static_cast<std::streamsize>(t.info->bytes));
  }
  file.close();
  if (!file) fail_resource(path, ": cannot write");
}

void write(const std::string& name, int64_t layers, const fs::path& folder) {
  const std::string text(known_config(name));
  ModelConfig config = parse_config(text, name);
  keep_layers(config, layers);
  const auto source = make_synthetic(config, 1, 4, MakeExperts::kWhenRead);
  fs::create_directories(folder);
  std::vector<std::vector<TensorBytes>> shards(1);
  uint64_t filled = 0;
  source->for_each([&](const TensorBytes& t) {
    if (filled > kShard) shards.emplace_back(), filled = 0;
    shards.back().push_back(t);
    filled += t.info->bytes;
  });
  Json map;
  std::vector<std::thread> team;
  for (size_t s = 0; s < shards.size(); ++s) {
    char file[64];
    std::snprintf(file, sizeof file, "model-%05zu-of-%05zu.safetensors", s + 1, shards.size());
    for (const TensorBytes& t : shards[s]) map[t.info->name] = file;
    team.emplace_back(
        [&, s, path = (folder / file).string()] { write_shard(path, shards[s], *source); });
  }
  for (std::thread& t : team) t.join();
  Json cut = Json::parse(text);
  cut["num_hidden_layers"] = layers;
  for (const char* list : {"expert_swiglu_limit_list", "share_expert_swiglu_limit_list"}) {
    if (cut.contains(list) && cut[list].is_array())
      cut[list].erase(cut[list].begin() + layers, cut[list].end());
  }
  std::ofstream(folder / "config.json") << cut.dump(2) << "\n";
  std::ofstream(folder / "model.safetensors.index.json") << Json{{"weight_map", map}}.dump();
}

int64_t layers_from(const std::string& text) {
  int64_t layers = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), layers);
  if (error != std::errc() || end != text.data() + text.size() || layers < 1)
    fail_usage("LAYERS: expected a number from 1, found ", text);
  return layers;
}

void read(const fs::path& folder) {
  struct Piece {
    const DirectFile* file;
    uint64_t offset;
    size_t bytes;
  };
  constexpr size_t kPiece = size_t{4} << 20;
  std::vector<std::unique_ptr<DirectFile>> files;
  std::vector<Piece> pieces;
  uint64_t total = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    files.push_back(std::make_unique<DirectFile>(entry.path().string()));
    const uint64_t size = entry.file_size();
    for (uint64_t at = 0; at < size; at += kPiece)
      pieces.push_back({files.back().get(), at, std::min<size_t>(kPiece, size - at)});
    total += size;
  }
  std::atomic<size_t> next{0};
  const Clock::time_point start = Clock::now();
  std::vector<std::thread> team;
  for (int i = 0; i < 16; ++i) {
    team.emplace_back([&] {
      auto* buffer =
          static_cast<std::byte*>(std::aligned_alloc(DirectFile::kAlign, DirectFile::room(kPiece)));
      for (size_t p = next++; p < pieces.size(); p = next++)
        pieces[p].file->read(pieces[p].offset, pieces[p].bytes, buffer);
      std::free(buffer);
    });
  }
  for (std::thread& t : team) t.join();
  const double seconds = seconds_since(start);
  std::printf("read %.2f GB in %.3f s, %.2f GB/s\n", static_cast<double>(total) / 1e9, seconds,
              static_cast<double>(total) / 1e9 / seconds);
}

}  // namespace
}  // namespace spk

int main(int argc, char** argv) try {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "write" && argc == 5) {
    spk::write(argv[2], spk::layers_from(argv[3]), argv[4]);
  } else if (what == "read" && argc == 3) {
    spk::read(argv[2]);
  } else {
    std::fprintf(stderr,
                 "synthetic_checkpoint: expected write NAME LAYERS FOLDER or read FOLDER\n");
    return 2;
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "synthetic_checkpoint: %s\n", error.what());
  return 1;
}
