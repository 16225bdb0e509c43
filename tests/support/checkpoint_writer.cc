#include "support/checkpoint_writer.h"

#include "base/error.h"
#include "base/types.h"
#include "model/tensor_table.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <system_error>

namespace spk::test {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Normally distributed enough, and the same on every standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  float normal() {
    const uint64_t bits = engine_();  // the sum of four uniform numbers, variance 1/3
    uint64_t sum = 0;
    for (int i = 0; i < 4; ++i) sum += bits >> (16 * i) & 0xffff;
    return (static_cast<float>(sum) * 0x1p-16f - 2.f) * 1.7320508f;
  }

 private:
  std::mt19937_64 engine_;
};

Format stored_format(const TensorEntry& entry, Release release) {
  const bool routed = entry.component == Component::kRouted;
  if (entry.fp4 == Format::kF32 || entry.fp4 == Format::kBf16) return entry.fp4;
  switch (release) {
    case Release::kBf16:
      return Format::kBf16;
    case Release::kFp8:
      return Format::kFp8;
    case Release::kFp4:
      return entry.fp4;
    case Release::kInt4:
      return routed ? Format::kInt4 : Format::kBf16;
  }
  return Format::kBf16;
}

void add_int4(const std::string& base, int64_t rows, int64_t cols, const std::vector<float>& x,
              std::vector<WrittenTensor>& out) {
  std::vector<uint32_t> words(static_cast<size_t>(rows * cols / 8));
  std::vector<uint16_t> scales;
  for (size_t g = 0; g < x.size(); g += 32) {
    float largest = 0;
    for (size_t i = g; i < g + 32; ++i) largest = std::max(largest, std::fabs(x[i]));
    scales.push_back(float_to_bf16(largest / 7));
    const float scale = bf16_to_float(scales.back());
    for (size_t i = g; i < g + 32; ++i) {
      const auto code = static_cast<uint32_t>(std::clamp(std::lround(x[i] / scale), -8L, 7L) + 8);
      words[i / 8] |= code << (4 * (i % 8));
    }
  }
  out.push_back({base + ".weight_packed", "I32", {rows, cols / 8}, raw(words)});
  out.push_back({base + ".weight_scale", "BF16", {rows, cols / 32}, raw(scales)});
  out.push_back({base + ".weight_shape", "I64", {2}, raw(std::vector<int64_t>{rows, cols})});
}

void add_fp8(const std::string& name, const Expected& e, bool pow2, const std::vector<float>& x,
             std::vector<WrittenTensor>& out) {
  const int64_t r = ceil_div(e.rows, 128);
  const int64_t c = ceil_div(e.cols, 128);
  std::vector<uint8_t> codes(x.size());
  std::vector<float> scales(static_cast<size_t>(r * c));
  quantise_fp8(x.data(), e.rows, e.cols, pow2, codes.data(), scales.data());
  out.push_back({name, "F8_E4M3", {e.rows, e.cols}, raw(codes)});
  if (!pow2) {
    out.push_back({name + "_scale_inv", "F32", {r, c}, raw(scales)});
    return;
  }
  std::vector<uint8_t> exponents;
  for (const float s : scales) exponents.push_back(static_cast<uint8_t>(std::ilogb(s) + 127));
  out.push_back({name + "_scale_inv", "F8_E8M0", {r, c}, raw(exponents)});
}

void add(const Expected& e, Release release, Random& random, std::vector<WrittenTensor>& out) {
  const TensorEntry& entry = *e.entry;
  std::vector<float> x(static_cast<size_t>(e.rows * e.cols));
  const bool vector = entry.stored == Stored::kVector || entry.stored == Stored::kFlat;
  const auto size = static_cast<float>(1.0 / std::sqrt(static_cast<double>(e.cols)));
  for (float& v : x) {
    v = random.normal();
    if (entry.fp4 == Format::kF32) {
      v = e.name.find("A_log") != std::string::npos ? .5f + .3f * v : .1f * v;
    } else {
      v = vector ? 1.f + .1f * v : v * size * (entry.component == Component::kEmbed ? 8.f : 1.f);
    }
  }
  std::vector<int64_t> shape = {e.rows, e.cols};
  if (vector) shape = {e.cols};
  if (entry.stored == Stored::kConv) shape = {e.rows, 1, e.cols};
  switch (stored_format(entry, release)) {
    case Format::kF32:
      out.push_back({e.name, "F32", shape, raw(x)});
      return;
    case Format::kBf16: {
      std::vector<uint16_t> bits;
      for (const float v : x) bits.push_back(float_to_bf16(v));
      out.push_back({e.name, "BF16", shape, raw(bits)});
      return;
    }
    case Format::kFp8:
      add_fp8(e.name, e, release == Release::kFp4, x, out);
      return;
    case Format::kMxfp4: {
      std::vector<uint8_t> codes(x.size() / 2);
      std::vector<uint8_t> scales(x.size() / 32);
      quantise_mxfp4(x.data(), e.rows, e.cols, codes.data(), scales.data());
      out.push_back({e.name, "I8", {e.rows, e.cols / 2}, raw(codes)});
      out.push_back({e.name + "_scale_inv", "U8", {e.rows, e.cols / 32}, raw(scales)});
      return;
    }
    case Format::kInt4:
      add_int4(e.name.substr(0, e.name.size() - 7), e.rows, e.cols, x, out);  // ".weight"
      return;
    case Format::kFp8Row:
      throw std::logic_error("no file holds FP8 scaled by row");
  }
}

}  // namespace

TempFolder::TempFolder() {
  std::string name = std::filesystem::temp_directory_path().string() + "/sparkling-test-XXXXXX";
  if (!::mkdtemp(name.data())) throw std::runtime_error("cannot make a temporary folder");
  path_ = name;
}
TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out) throw std::runtime_error("cannot write " + path);
}

std::string small_config(std::string_view patch) {
  Json config = Json::parse(R"({
    "architectures": ["BailingMoeV3ForCausalLM"], "model_type": "bailing_hybrid",
    "hidden_size": 160, "num_hidden_layers": 6, "layer_group_size": 3, "first_k_dense_replace": 1,
    "num_attention_heads": 2, "head_dim": 32, "intermediate_size": 192, "vocab_size": 96,
    "num_experts": 8, "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2,
    "moe_intermediate_size": 32, "moe_shared_expert_intermediate_size": 48,
    "num_shared_experts": 1, "routed_scaling_factor": 2.5, "q_lora_rank": null,
    "kv_lora_rank": 32, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32,
    "rope_theta": 6000000, "rms_norm_eps": 1e-6, "short_conv_kernel_size": 4,
    "max_position_embeddings": 4096, "num_nextn_predict_layers": 1, "eos_token_id": 3,
    "pad_token_id": 0, "expert_swiglu_limit_list": [0, 0, 0, 0, 0.3, 0.3],
    "share_expert_swiglu_limit_list": [0, 0, 0, 0.4, 0.4, 0.6]})");
  const Json changes = Json::parse(patch);
  for (const auto& [key, value] : changes.items()) config[key] = value;
  return config.dump(1);
}

std::string safetensors_file(const std::vector<WrittenTensor>& tensors) {
  Json header = Json::object();
  size_t offset = 0;
  for (const WrittenTensor& t : tensors) {
    header[t.name] = {{"dtype", t.dtype},
                      {"shape", t.shape},
                      {"data_offsets", {offset, offset + t.bytes.size()}}};
    offset += t.bytes.size();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(text.size() >> (8 * i));
  file += text;
  for (const WrittenTensor& t : tensors) file += t.bytes;
  return file;
}

WrittenCheckpoint::WrittenCheckpoint(std::string config_text, Release release, uint64_t seed)
    : config(std::move(config_text)) {
  const ModelConfig c = parsed();
  Random random(seed);
  for_each_expected(c, c.mtp_layers > 0,
                    [&](const Expected& e) { add(e, release, random, tensors); });
}

WrittenTensor& WrittenCheckpoint::at(std::string_view name) {
  for (WrittenTensor& t : tensors)
    if (t.name == name) return t;
  throw std::out_of_range(std::string(name));
}

void WrittenCheckpoint::erase(std::string_view name) {
  at(name);  // a test that removes nothing would test nothing
  tensors.erase(std::find_if(tensors.begin(), tensors.end(),
                             [&](const WrittenTensor& t) { return t.name == name; }));
}

void WrittenCheckpoint::erase_prefix(std::string_view prefix) {
  const auto begins = [&](const WrittenTensor& t) { return t.name.rfind(prefix, 0) == 0; };
  tensors.erase(std::remove_if(tensors.begin(), tensors.end(), begins), tensors.end());
}

void WrittenCheckpoint::write(const std::string& folder, int shards) const {
  write_file(folder + "/config.json", config);
  if (shards == 0) {
    write_file(folder + "/model.safetensors", safetensors_file(tensors));
    return;
  }
  Json index = {{"metadata", Json::object()}, {"weight_map", Json::object()}};
  const size_t per =
      (tensors.size() + static_cast<size_t>(shards) - 1) / static_cast<size_t>(shards);
  for (size_t s = 0; s < static_cast<size_t>(shards); ++s) {
    const std::string file = cat("model-0000", s + 1, "-of-0000", shards, ".safetensors");
    const size_t first = std::min(tensors.size(), s * per);
    const size_t last = std::min(tensors.size(), first + per);
    const auto begin = tensors.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = tensors.begin() + static_cast<std::ptrdiff_t>(last);
    for (auto it = begin; it != end; ++it) index["weight_map"][it->name] = file;
    write_file(folder + "/" + file, safetensors_file({begin, end}));
  }
  write_file(folder + "/model.safetensors.index.json", index.dump(1));
}

std::unique_ptr<Checkpoint> WrittenCheckpoint::open() {
  file_ = safetensors_file(tensors);
  return Checkpoint::from_memory("memory", {{"config.json", config}, {"model.safetensors", file_}});
}

}  // namespace spk::test
