// The tensor table against checkpoints: all layouts, all refusals, sizes, and the filled model.
#include "backend/backend.h"
#include "base/error.h"
#include "base/types.h"
#include "model/model.h"
#include "model/synthetic.h"
#include "model/tensor_table.h"
#include "support/checkpoint_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace spk {
namespace {

using test::kReleases;
using test::Release;
using test::small_config;
using test::WrittenCheckpoint;
using test::WrittenTensor;

bool holds(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}
#define EXPECT_HOLDS(text, part) EXPECT_TRUE(holds(text, part)) << (text)

std::string refusal(WrittenCheckpoint& w) {
  const auto source = w.open();
  try {
    bind_tensors(w.parsed(), *source);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "no error";
}
std::vector<std::string> notes(WrittenCheckpoint& w) {
  const auto source = w.open();
  return bind_tensors(w.parsed(), *source).notes;
}
std::vector<double> row_of(const TensorSet& set, const std::string& name, int64_t row) {
  const HostTensor& t = set.at(name).tensor;
  std::vector<double> values(static_cast<size_t>(t.cols));
  dequantise_row(t, row, values.data());
  return values;
}

const std::string kExpert = "model.layers.1.mlp.experts.3.gate_proj.weight";
const std::string kLinear = "model.layers.0.attention.q_proj.weight";

TEST(Tensors, EveryReleaseBindsAndMeansTheSame) {
  const std::map<Release, std::pair<Format, Format>> formats = {
      {Release::kBf16, {Format::kBf16, Format::kBf16}},
      {Release::kFp8, {Format::kFp8, Format::kFp8}},
      {Release::kFp4, {Format::kFp8, Format::kMxfp4}},
      {Release::kInt4, {Format::kBf16, Format::kInt4}},
  };
  WrittenCheckpoint plain(small_config(), Release::kBf16, 7);
  const auto plain_source = plain.open();
  const TensorSet expected = bind_tensors(plain.parsed(), *plain_source);
  for (const Release release : kReleases) {
    WrittenCheckpoint w(small_config(), release, 7);
    const auto source = w.open();
    const TensorSet set = bind_tensors(w.parsed(), *source);
    EXPECT_TRUE(set.has_mtp);
    EXPECT_TRUE(set.notes.empty());
    EXPECT_EQ(set.tensors.size(), expected.tensors.size());
    EXPECT_EQ(set.at(kLinear).tensor.format, formats.at(release).first);
    EXPECT_EQ(set.at(kExpert).tensor.format, formats.at(release).second);
    EXPECT_EQ(set.at(kExpert).expert, 3);
    EXPECT_EQ(set.at("model.layers.6.eh_proj.weight").component, Component::kMtp);
    EXPECT_EQ(set.at("model.layers.0.attention.A_log").tensor.format, Format::kF32);
    EXPECT_EQ(set.find("model.layers.0.attention.dense.weight"), nullptr);
    for (const std::string& name : {kLinear, kExpert}) {
      const std::vector<double> a = row_of(expected, name, 31);
      const std::vector<double> b = row_of(set, name, 31);
      double error = 0;
      double norm = 0;
      for (size_t i = 0; i < a.size(); ++i) {
        error += (a[i] - b[i]) * (a[i] - b[i]);
        norm += a[i] * a[i];
      }
      EXPECT_LT(std::sqrt(error / norm), .15) << name;  // MXFP4's is about 0.12
    }
  }
}

TEST(Tensors, ShardedFolderBindsToo) {
  const test::TempFolder folder;
  const WrittenCheckpoint w(small_config(), Release::kFp4, 1);
  w.write(folder.path(), 3);
  const auto source = Checkpoint::open(folder.path());
  const TensorSet set =
      bind_tensors(parse_config(*source->text("config.json"), "config.json"), *source);
  EXPECT_EQ(row_of(set, "model.norm.weight", 0).size(), 160u);
}

TEST(Tensors, QLoraForm) {
  WrittenCheckpoint w(small_config(R"({"q_lora_rank":64,"num_nextn_predict_layers":0,
      "expert_swiglu_limit_list":null,"share_expert_swiglu_limit_list":null})"),
                      Release::kFp4, 1);
  const auto source = w.open();
  const TensorSet set = bind_tensors(w.parsed(), *source);
  EXPECT_EQ(set.at("model.layers.2.attention.q_b_proj.weight").tensor.cols, 64);
  EXPECT_EQ(set.find("model.layers.2.attention.q_proj.weight"), nullptr);
  EXPECT_FALSE(set.has_mtp);
  EXPECT_TRUE(set.notes.empty());
}

TEST(Tensors, AllMismatchesAtOnce) {
  WrittenCheckpoint w(small_config(), Release::kBf16, 1);
  w.erase("model.norm.weight");
  w.at("lm_head.weight").shape = {48, 320};
  w.at("model.layers.0.attention.q_proj.weight").dtype = "F16";
  const std::string text = refusal(w);
  EXPECT_HOLDS(text, "3 problems");
  EXPECT_HOLDS(text, "model.norm.weight: expected [1, 160] (F32, BF16), found nothing");
  EXPECT_HOLDS(
      text, "memory/model.safetensors: lm_head.weight: expected shape [96, 160], found [48, 320]");
  EXPECT_HOLDS(text, "q_proj.weight: expected F32, BF16, FP8, MXFP4, INT4, found dtype F16");
}

TEST(Tensors, ManyMismatchesAreOneBoundedMessage) {
  WrittenCheckpoint w(small_config(), Release::kBf16, 1);
  w.tensors.resize(1);
  const std::string text = refusal(w);
  EXPECT_HOLDS(text, "model.norm.weight");
  EXPECT_HOLDS(text, "more");
  EXPECT_LT(text.size(), 5000u);
  w.tensors.clear();
  EXPECT_HOLDS(refusal(w), "expected weights");
}

TEST(Tensors, ConfigWithTooFewLayers) {
  WrittenCheckpoint w(small_config(), Release::kBf16, 1);
  w.config = small_config(R"({"num_hidden_layers":3,"num_nextn_predict_layers":0,
      "expert_swiglu_limit_list":null,"share_expert_swiglu_limit_list":null})");
  EXPECT_HOLDS(refusal(w), "expected layers below num_hidden_layers = 3");
  ModelConfig cut = parse_config(small_config(R"({"num_nextn_predict_layers":0})"), "config.json");
  keep_layers(cut, 3);
  const auto source = w.open();
  EXPECT_NO_THROW(bind_tensors(cut, *source));
}

TEST(Tensors, StoredShapesOfVectorsAndTaps) {
  WrittenCheckpoint w(small_config(), Release::kBf16, 1);
  w.at("model.layers.0.attention.A_log").shape = {1, 1, 2, 1};
  w.at("model.layers.0.attention.q_conv1d.weight").shape = {64, 4};
  EXPECT_EQ(refusal(w), "no error");
  w.at("model.layers.0.attention.q_conv1d.weight").shape = {4, 64};
  w.at("model.layers.0.input_layernorm.weight").shape = {1, 160};
  const std::string text = refusal(w);
  EXPECT_HOLDS(text, "q_conv1d.weight: expected shape [64, 1, 4], found [4, 64]");
  EXPECT_HOLDS(text, "input_layernorm.weight: expected shape [160], found [1, 160]");
}

TEST(Tensors, AliasOfTheBias) {
  WrittenCheckpoint w(small_config(), Release::kBf16, 1);
  const std::string name = "model.layers.1.mlp.gate.expert_bias";
  const std::string alias = "model.layers.1.mlp.gate.e_score_correction_bias";
  WrittenTensor copy = w.at(name);
  w.at(name).name = alias;
  EXPECT_EQ(refusal(w), "no error");
  w.tensors.push_back(copy);
  EXPECT_HOLDS(refusal(w), "under both of its names");
}

TEST(Tensors, CompanionsDecideThePrecision) {
  WrittenCheckpoint w(small_config(), Release::kFp4, 1);
  w.erase(kLinear + "_scale_inv");
  EXPECT_HOLDS(refusal(w), kLinear + ": expected scales in " + kLinear + "_scale_inv, found none");
  WrittenCheckpoint plain(small_config(), Release::kBf16, 1);
  plain.tensors.push_back({kLinear + "_scale_inv", "F32", {1, 2}, std::string(8, '\0')});
  EXPECT_HOLDS(refusal(plain), "expected no scales beside a BF16 tensor");
  WrittenCheckpoint both(small_config(), Release::kInt4, 1);
  both.tensors.push_back({kExpert, "BF16", {32, 160}, std::string(32 * 160 * 2, '\0')});
  EXPECT_HOLDS(refusal(both), "found both");
  // A bias or a zero point changes the arithmetic; a stray tensor does not.
  WrittenCheckpoint bias(small_config(), Release::kBf16, 1);
  bias.tensors.push_back({"model.layers.0.attention.q_proj.bias", "BF16", {1}, "xx"});
  EXPECT_HOLDS(refusal(bias), "q_proj.bias: unknown companion");
  WrittenCheckpoint stray(small_config(), Release::kBf16, 1);
  stray.tensors.push_back({"model.layers.0.attention.strange", "BOOL", {0}, ""});
  stray.tensors.back().dtype = "U8";
  ASSERT_EQ(notes(stray).size(), 1u);
  EXPECT_HOLDS(notes(stray)[0], "ignored 1 unknown tensor: model.layers.0.attention.strange");
}

TEST(Tensors, ScaleTypesOfFp8) {
  WrittenCheckpoint w(small_config(), Release::kFp4, 1);
  const auto before_source = w.open();
  const std::vector<double> before = row_of(bind_tensors(w.parsed(), *before_source), kLinear, 3);
  for (const char* type : {"U8", "BF16", "F32"}) {
    WrittenCheckpoint other(small_config(), Release::kFp4, 1);
    WrittenTensor& scales = other.at(kLinear + "_scale_inv");
    std::string bytes;
    for (const char c : scales.bytes) {
      const float value = e8m0_to_float(static_cast<uint8_t>(c));
      const uint16_t half = float_to_bf16(value);
      if (type[0] == 'U') bytes += c;
      if (type[0] == 'B') bytes.append(reinterpret_cast<const char*>(&half), 2);
      if (type[0] == 'F') bytes.append(reinterpret_cast<const char*>(&value), 4);
    }
    scales.dtype = type;
    scales.bytes = bytes;
    const auto source = other.open();
    EXPECT_EQ(row_of(bind_tensors(other.parsed(), *source), kLinear, 3), before) << type;
  }
}

TEST(Tensors, ExponentScalesUnderTheNameU8) {
  WrittenCheckpoint w(small_config(), Release::kFp4, 1);
  const auto a = w.open();
  const std::vector<double> as_u8 = row_of(bind_tensors(w.parsed(), *a), kExpert, 5);
  WrittenCheckpoint v(small_config(), Release::kFp4, 1);
  for (WrittenTensor& t : v.tensors)
    if (holds(t.name, "_scale_inv")) t.dtype = t.dtype == "U8" ? "F8_E8M0" : "U8";
  const auto b = v.open();
  EXPECT_EQ(row_of(bind_tensors(v.parsed(), *b), kExpert, 5), as_u8);
  w.at(kExpert + "_scale_inv").dtype = "I8";
  EXPECT_HOLDS(refusal(w), kExpert + "_scale_inv: unknown dtype of scales");
  w.at(kExpert + "_scale_inv").dtype = "U8";
  w.at(kExpert + "_scale_inv").shape = {5, 32};
  EXPECT_HOLDS(refusal(w), "_scale_inv: expected shape [32, 5], found [5, 32]");
}

TEST(Tensors, ScalesThatAreNoNumbers) {
  WrittenCheckpoint four(small_config(), Release::kFp4, 1);
  four.at(kExpert + "_scale_inv").bytes[17] = '\xff';
  four.at(kLinear + "_scale_inv").bytes[1] = '\xff';
  const std::string text = refusal(four);
  EXPECT_HOLDS(text, kExpert + "_scale_inv: scale 17: expected an E8M0 code below 255");
  EXPECT_HOLDS(text, kLinear + "_scale_inv: scale 1:");
  WrittenCheckpoint eight(small_config(), Release::kFp8, 1);
  const float infinity = INFINITY;
  std::memcpy(eight.at(kLinear + "_scale_inv").bytes.data() + 4, &infinity, 4);
  EXPECT_HOLDS(refusal(eight), kLinear + "_scale_inv: scale 1: expected a finite number");
  WrittenCheckpoint integer(small_config(), Release::kInt4, 1);
  const std::string scales = "model.layers.1.mlp.experts.3.gate_proj.weight_scale";
  integer.at(scales).bytes.replace(0, 2, "\xc0\x7f");  // a BF16 NaN
  EXPECT_HOLDS(refusal(integer), scales + ": scale 0: expected a finite number");
}

TEST(Tensors, Int4ShapeAndTypes) {
  const std::string base = "model.layers.1.mlp.experts.3.gate_proj.";
  WrittenCheckpoint w(small_config(), Release::kInt4, 1);
  w.at(base + "weight_shape").bytes[0] = 31;
  EXPECT_HOLDS(refusal(w), "weight_shape: expected (32, 160), found (31, 160)");
  w.erase(base + "weight_shape");
  EXPECT_EQ(refusal(w), "no error");
  w.at(base + "weight_scale").dtype = "F16";
  EXPECT_HOLDS(refusal(w), "weight_scale: expected BF16 scales");
  w.erase(base + "weight_scale");
  EXPECT_HOLDS(refusal(w), "expected scales in");
  w.tensors.push_back(
      {"model.layers.1.mlp.experts.2.gate_proj.weight_zero_point", "I32", {1}, "0000"});
  EXPECT_HOLDS(refusal(w), "weight_zero_point: unknown companion");
}

TEST(Tensors, ScalesWithAnotherBias) {
  for (const int shift : {2, -2}) {
    WrittenCheckpoint w(small_config(), Release::kFp4, 1);
    EXPECT_TRUE(notes(w).empty());
    for (WrittenTensor& t : w.tensors)
      if (holds(t.name, ".experts.") && holds(t.name, "_scale_inv"))
        for (char& c : t.bytes) c = static_cast<char>(c + shift);
    const std::vector<std::string> found = notes(w);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_HOLDS(found[0], "implausible expert norms");
  }
}

TEST(Tensors, MissingDraftLayer) {
  WrittenCheckpoint w(small_config(), Release::kBf16, 1);
  w.erase("model.layers.6.eh_proj.weight");
  w.erase("model.layers.6.mlp.experts.7.down_proj.weight");
  const std::string text = refusal(w);
  EXPECT_HOLDS(text, "2 problems");
  EXPECT_HOLDS(text, "model.layers.6.eh_proj.weight: expected");
  w.erase_prefix("model.layers.6.");
  ASSERT_EQ(notes(w).size(), 1u);
  EXPECT_EQ(notes(w)[0], "drafts off: checkpoint has no MTP layer");
  const auto source = w.open();
  EXPECT_FALSE(bind_tensors(w.parsed(), *source).has_mtp);
  // Copies of the head and the embedding alone do not make a layer.
  w.tensors.push_back({"model.layers.6.shared_head.head.weight", "BF16", {1}, "xx"});
  w.tensors.push_back({"model.mtp.0.x", "BF16", {1}, "xx"});
  ASSERT_EQ(notes(w).size(), 1u);
  EXPECT_EQ(notes(w)[0], "drafts off: checkpoint has no MTP layer");
}

TEST(Tensors, ConfigWithoutDrafts) {
  WrittenCheckpoint w(small_config(), Release::kBf16, 1);
  w.config = small_config(R"({"num_nextn_predict_layers":0})");
  ASSERT_EQ(notes(w).size(), 1u);
  EXPECT_HOLDS(notes(w)[0], "num_nextn_predict_layers is 0");
}

TEST(Tensors, DraftLayerInAnotherFormat) {
  for (const Release trunk : kReleases) {
    for (const Release draft : kReleases) {
      WrittenCheckpoint w(small_config(), trunk, 1);
      const WrittenCheckpoint other(small_config(), draft, 1);
      w.erase_prefix("model.layers.6.");
      for (const WrittenTensor& t : other.tensors)
        if (t.name.rfind("model.layers.6.", 0) == 0) w.tensors.push_back(t);
      EXPECT_EQ(refusal(w), "no error");
    }
  }
  // And an FP8 head beside them.
  WrittenCheckpoint w(small_config(), Release::kFp4, 1);
  w.erase("lm_head.weight");
  w.tensors.push_back({"lm_head.weight", "F8_E4M3", {96, 160}, std::string(96 * 160, '\x38')});
  w.tensors.push_back({"lm_head.weight_scale_inv", "F8_E8M0", {1, 2}, "\x78\x78"});
  EXPECT_EQ(refusal(w), "no error");
}

TEST(Tensors, VisionWrapper) {
  const std::string config =
      "{\"architectures\":[\"BailingMoeV3VLForConditionalGeneration\"],\"text_config\":" +
      small_config(R"({"num_nextn_predict_layers":0})") + "}";
  const auto renamed = [&](const std::string& body, const std::string& head) {
    WrittenCheckpoint w(config, Release::kFp4, 1);
    for (WrittenTensor& t : w.tensors)
      t.name = t.name.rfind("model.", 0) == 0 ? body + t.name.substr(6) : head + t.name.substr(8);
    w.tensors.push_back({"model.visual.patch_embed.weight", "BF16", {1}, "xx"});
    w.tensors.push_back({"linear_proj.0.weight", "BF16", {1}, "xx"});
    return w;
  };
  for (const auto& [body, head] : std::vector<std::pair<std::string, std::string>>{
           {"model.", "lm_head."},
           {"model.language_model.", "lm_head."},
           {"language_model.model.", "language_model.lm_head."}}) {
    WrittenCheckpoint w = renamed(body, head);
    EXPECT_EQ(notes(w), std::vector<std::string>{"pictures are not supported"}) << body;
    const auto source = w.open();
    EXPECT_NE(bind_tensors(w.parsed(), *source).find("model.layers.0.attention.A_log"), nullptr);
  }
}

// ---- counts and sizes of the released models, from the table alone ----

TensorSet table_only(const ModelConfig& config) {
  TensorSet set;
  set.has_mtp = config.mtp_layers > 0;
  for_each_expected(config, set.has_mtp, [&](const Expected& x) {
    BoundTensor bound;
    bound.name = x.name;
    bound.component = x.component;
    bound.layer = x.layer;
    bound.expert = x.expert;
    bound.tensor.format = x.entry->fp4;
    bound.tensor.scale_type = x.entry->fp4 == Format::kFp8 || x.entry->fp4 == Format::kMxfp4
                                  ? ScaleType::kE8m0
                                  : ScaleType::kNone;
    bound.tensor.rows = x.rows;
    bound.tensor.cols = x.cols;
    set.tensors.push_back(bound);
  });
  return set;
}
ModelConfig known(const char* name) { return parse_config(known_config(name), name); }

TEST(Sizes, Flash) {
  const ModelConfig c = known("ling-3.0-flash");
  const TensorSet set = table_only(c);
  EXPECT_EQ(set.tensors.size(), 63783u);
  const ModelSizes s = model_sizes(c, set);
  EXPECT_EQ(s.total_parameters, 127486405600);
  EXPECT_EQ(s.main_parameters, 124414211552);
  EXPECT_NEAR(static_cast<double>(s.active_parameters), 5.51e9, .01e9);
  EXPECT_NEAR(static_cast<double>(s.weight_bytes), 70.31e9, .03e9);  // the fp4 release
  EXPECT_EQ(s.recurrent_bytes, 73400320);
  EXPECT_EQ(s.conv_bytes, 2 * 2580480);  // the published figure is BF16's
  EXPECT_EQ(s.state_bytes, s.recurrent_bytes + s.conv_bytes);
  EXPECT_EQ(s.latent_bytes_per_token_fast, 8064 + 1152);
  EXPECT_EQ(s.latent_bytes_per_token_exact, 2 * (8064 + 1152));
  const auto routed = static_cast<size_t>(Component::kRouted);
  EXPECT_EQ(s.component_token_bytes[routed], s.component_bytes[routed] / 64);  // 8 of 512
  EXPECT_EQ(s.component_token_bytes[static_cast<size_t>(Component::kEmbed)], 2560 * 2);
  int64_t sum = 0;
  for (const int64_t bytes : s.component_bytes) sum += bytes;
  EXPECT_EQ(sum, s.weight_bytes);
}

TEST(Sizes, Tiny) {
  const ModelConfig c = known("ling-3.0-tiny");
  TensorSet set = table_only(c);
  EXPECT_EQ(set.tensors.size(), 9283u);
  int64_t released = 0;
  for (BoundTensor& bound : set.tensors) {  // the BF16 release: 4 bytes where fp4 has F32, else 2
    if (bound.tensor.format != Format::kF32) bound.tensor.format = Format::kBf16;
    released += code_bytes(bound.tensor.format, bound.tensor.rows, bound.tensor.cols);
  }
  EXPECT_NEAR(static_cast<double>(released), 15787992416.0, 2e6);  // published, headers included
  const ModelSizes s = model_sizes(c, set);
  EXPECT_EQ(s.total_parameters, 7893392800);
  EXPECT_NEAR(static_cast<double>(s.active_parameters), 1.38e9, .01e9);
  EXPECT_EQ(s.recurrent_bytes, 18874368);
  EXPECT_EQ(s.latent_bytes_per_token_fast, 6912);
}

TEST(Sizes, Flash31) {
  const ModelConfig c = known("ling-3.1-flash");
  const ModelSizes s = model_sizes(c, table_only(c));
  EXPECT_NEAR(static_cast<double>(s.main_parameters), 564e9, 1e9);
  EXPECT_NEAR(static_cast<double>(s.total_parameters - s.main_parameters), 8.2e9, .1e9);
  EXPECT_NEAR(static_cast<double>(s.active_parameters), 25.1e9, .7e9);
}

// ---- the filled model ----

TEST(LoadModel, FillsEveryWeightInItsPlace) {
  for (const Release release : kReleases) {
    WrittenCheckpoint w(small_config(), release, 1);
    const auto source = w.open();
    const ModelConfig c = w.parsed();
    const TensorSet set = bind_tensors(c, *source);
    const auto backend = make_reference_backend({});
    backend->prepare(c.shape);
    LoadProgress progress;
    const Model m = load_model(c, set, *backend, {}, &progress);
    EXPECT_EQ(progress.done, model_sizes(c, set).weight_bytes);
    ASSERT_EQ(m.layers.size(), 6u);
    for_each_expected(c, true, [&](const Expected& x) {
      Slot slot;
      Model& model = const_cast<Model&>(m);  // the table's accessors are written for loading
      slot.model = &model;
      slot.mtp = &*model.mtp;
      slot.layer = x.layer == c.layers ? &model.mtp->layer
                   : x.layer >= 0      ? &model.layers[static_cast<size_t>(x.layer)]
                                       : nullptr;
      slot.expert = x.expert;
      if (x.entry->component == Component::kHead) {  // an LmHead hands out no weight
        EXPECT_EQ(m.head.rows(), x.rows);
        EXPECT_GT(m.head.bytes(), 0);
        return;
      }
      const Weight& weight = x.entry->weight(slot);
      EXPECT_TRUE(static_cast<bool>(weight)) << x.name;
      EXPECT_EQ(weight.name, x.name);
      EXPECT_EQ(weight.rows, x.rows);
      EXPECT_EQ(weight.cols, x.cols);
    });
    EXPECT_TRUE(m.layers[2].is_mla);
    EXPECT_FALSE(m.layers[0].is_moe);
    EXPECT_EQ(m.layers[1].moe.index, 0);
    EXPECT_EQ(m.layers[5].moe.index, 4);
    EXPECT_EQ(m.layers[4].moe.routed_limit, 0.3);
    EXPECT_EQ(m.layers[3].moe.routed_limit, 0.0);
    EXPECT_EQ(m.layers[3].moe.shared_limit, 0.4);
    EXPECT_EQ(m.layers[5].moe.shared_limit, 0.6);
    ASSERT_TRUE(m.mtp);
    EXPECT_EQ(m.mtp->layer.moe.index, 5);
    EXPECT_EQ(m.mtp->layer.moe.routed_limit, 0.0);  // the lists end before the draft layer
    EXPECT_EQ(m.mtp->layer.moe.shared_limit, 0.0);
    EXPECT_TRUE(m.mtp->layer.is_mla && m.mtp->layer.is_moe);
  }
}

TEST(LoadModel, CodesThatAreNoNumbers) {
  WrittenCheckpoint w(small_config(), Release::kFp4, 1);
  w.at(kLinear).bytes[5000] = '\xff';                         // FP8 NaN
  w.at("model.norm.weight").bytes.replace(4, 2, "\x80\x7f");  // BF16 infinity
  w.at("model.layers.0.attention.A_log").bytes.replace(4, 4, "\x01\x00\xc0\xff", 4);  // F32 NaN
  const auto source = w.open();
  const TensorSet set = bind_tensors(w.parsed(), *source);
  const auto backend = make_reference_backend({});
  backend->prepare(w.parsed().shape);
  try {
    load_model(w.parsed(), set, *backend);
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_HOLDS(text, "3 problems");
    EXPECT_HOLDS(text, kLinear + ": expected numbers, found NaN or infinity among the FP8 codes");
    EXPECT_HOLDS(text, "model.norm.weight");
    EXPECT_HOLDS(text, "A_log");
  }
}

}  // namespace
}  // namespace spk
