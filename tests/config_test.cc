// config.json: accepted forms, refusals by name, clamps, rope scaling, schedule.
#include "model/config.h"

#include "base/error.h"
#include "model/synthetic.h"
#include "support/checkpoint_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace spk {
namespace {

using test::small_config;

ModelConfig parse(const std::string& text) { return parse_config(text, "config.json"); }
ModelConfig small(const std::string& patch) { return parse(small_config(patch)); }

std::string refusal(const std::string& text) {
  try {
    parse(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "no error";
}
bool holds(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}
#define EXPECT_HOLDS(text, part) EXPECT_TRUE(holds(text, part)) << (text)

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

TEST(Config, Flash) {
  const ModelConfig c = parse(std::string(known_config("ling-3.0-flash")));
  EXPECT_EQ(c.layers, 42);
  EXPECT_EQ(c.dense_layers, 2);
  EXPECT_EQ(c.moe_layers(), 40);
  EXPECT_EQ(c.mtp_layers, 1);
  EXPECT_EQ(c.context, 262144);
  EXPECT_EQ(c.eos, std::vector<int32_t>{156895});
  EXPECT_EQ(c.pad, 156892);
  EXPECT_EQ(c.shape.shared_dim, 768);
  EXPECT_EQ(c.shape.q_lora, 0);
  EXPECT_TRUE(c.warnings.empty());
  std::vector<int64_t> mla;
  for (int64_t l = 0; l < c.layers; ++l)
    if (c.is_mla[static_cast<size_t>(l)]) mla.push_back(l);
  EXPECT_EQ(mla, (std::vector<int64_t>{5, 11, 17, 23, 29, 35, 41}));
  for (size_t l = 0; l < 42; ++l) {
    EXPECT_EQ(c.routed_limits[l], l >= 35 ? 4.0 : 0.0);
    EXPECT_EQ(c.shared_limits[l], l >= 40 ? 7.0 : l >= 34 ? 5.0 : 0.0);
  }
}

TEST(Config, TinyAndFlash31) {
  const ModelConfig tiny = parse(std::string(known_config("ling-3.0-tiny")));
  EXPECT_EQ(tiny.shape.q_lora, 256);
  EXPECT_EQ(tiny.mtp_layers, 0);
  EXPECT_EQ(tiny.routed_limits, std::vector<double>(24, 0.0));
  EXPECT_TRUE(tiny.warnings.empty());
  const ModelConfig big = parse(std::string(known_config("ling-3.1-flash")));
  EXPECT_EQ(std::count(big.is_mla.begin(), big.is_mla.end(), true), 9);
  EXPECT_EQ(big.shared_limits[64], 10.0);
  EXPECT_EQ(big.routed_limits[64], 0.0);
}

TEST(Config, UnknownNameSuggests) {
  try {
    known_config("ling-3.0-flesh");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_HOLDS(std::string(error.what()), "did you mean ling-3.0-flash?");
  }
}

TEST(Config, UnsupportedValuesAreRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"no_kda_lora", "false"},
      {"use_kda_lora", "true"},
      {"kda_safe_gate", "false"},
      {"use_nGPT", "true"},
      {"use_mla_nope", "true"},
      {"value_norm", "true"},
      {"up_proj_norm", "true"},
      {"scale_router_input", "true"},
      {"gated_attention_proj_granularity_type", "\"element_wise\""},
      {"mtp_use_kda", "true"},
      {"score_function", "\"softmax\""},
      {"scoring_func", "\"softmax\""},
      {"topk_method", "\"greedy\""},
      {"norm_topk_prob", "false"},
      {"rope_interleave", "false"},
      {"hidden_act", "\"gelu\""},
      {"use_bias", "true"},
      {"use_qkv_bias", "true"},
      {"tie_word_embeddings", "true"},
      {"moe_router_enable_expert_bias", "false"},
      {"kda_lower_bound", "5"},
      {"num_nextn_predict_layers", "2"},
      {"rotary_dim", "8"},
      {"qk_head_dim", "32"},
  };
  for (const auto& [key, value] : cases) {
    const std::string text = refusal(small_config("{\"" + key + "\":" + value + "}"));
    EXPECT_HOLDS(text, "config.json: " + key);
    EXPECT_HOLDS(text, "found " + value);
  }
  // Vestiges on which the family's own code does not act.
  EXPECT_NO_THROW(small(R"({"use_qk_norm":true,"partial_rotary_factor":0.5,"max_window_layers":20,
                            "some_new_key":{"a":[1]},"quantization_config":{"quant_method":"fp8"}})"));
}

TEST(Config, NumbersAreBounded) {
  for (const char* key : {"hidden_size", "num_hidden_layers", "num_experts", "vocab_size",
                          "kv_lora_rank", "head_dim", "layer_group_size", "num_attention_heads",
                          "moe_intermediate_size", "max_position_embeddings"}) {
    for (const char* value :
         {"-1", "0", "1.5", "1e3", "18446744073709551615", "9223372036854775807",
          "99999999999999999999", "\"12\"", "[]", "true"}) {
      const std::string text = refusal(small_config(cat("{\"", key, "\":", value, "}")));
      EXPECT_HOLDS(text, key);
    }
    EXPECT_HOLDS(refusal(small_config(cat("{\"", key, "\":null}"))), "found nothing");
  }
  EXPECT_HOLDS(refusal(replaced(small_config(), "1e-06", "1e999")), "not valid JSON");
  EXPECT_HOLDS(refusal(small_config(R"({"rms_norm_eps":"x"})")), "rms_norm_eps");
  // What the chunked form of KDA holds, to the end (KdaVerbs measures it there).
  EXPECT_EQ(small(R"({"kda_lower_bound":-5})").shape.kda_lower_bound, -5);
  for (const char* value : {"-5.001", "-20", "-80", "0", "1"})
    EXPECT_HOLDS(refusal(small_config(cat("{\"kda_lower_bound\":", value, "}"))),
                 "kda_lower_bound: expected a number in [-5, -0.001]");
}

TEST(Config, MathsNeedsHold) {
  EXPECT_HOLDS(refusal(small_config(R"({"qk_rope_head_dim":15})")), "even");
  EXPECT_HOLDS(refusal(small_config(R"({"n_group":3})")), "divisor of num_experts = 8");
  EXPECT_HOLDS(refusal(small_config(R"({"topk_group":5})")), "at most n_group = 4");
  EXPECT_HOLDS(refusal(small_config(R"({"num_experts_per_tok":5})")), "= 4, found 5");
  EXPECT_HOLDS(refusal(small_config(R"({"n_group":8,"topk_group":4})")), "at least 2 experts");
  EXPECT_HOLDS(refusal(small_config(R"({"first_k_dense_replace":7})")), "[0, 6]");
  EXPECT_HOLDS(refusal(small_config(R"({"eos_token_id":96})")), "below vocab_size = 96");
}

TEST(Config, AllComplaintsAtOnce) {
  const std::string text =
      refusal(small_config(R"({"hidden_size":0,"use_nGPT":true,"num_experts":"many"})"));
  EXPECT_HOLDS(text, "hidden_size");
  EXPECT_HOLDS(text, "use_nGPT");
  EXPECT_HOLDS(text, "num_experts");
}

TEST(Config, NotAConfig) {
  EXPECT_HOLDS(refusal(""), "not valid JSON");
  EXPECT_HOLDS(refusal("[]"), "expected a JSON object");
  EXPECT_HOLDS(refusal(std::string("{}\0", 3)), "not valid JSON");
  EXPECT_HOLDS(refusal("{}"), "architectures");
  EXPECT_HOLDS(refusal(R"({"architectures":["LlamaForCausalLM"]})"), "LlamaForCausalLM");
  // Ling-2.6 has the same model_type but is another model.
  EXPECT_HOLDS(
      refusal(R"({"architectures":["BailingMoeV2ForCausalLM"],"model_type":"bailing_hybrid"})"),
      "BailingMoeV2ForCausalLM");
  EXPECT_HOLDS(refusal(std::string(100000, '[')), "deeper than 32");
  EXPECT_HOLDS(refusal(std::string(5 << 20, ' ')), "at most");
}

TEST(Config, ScheduleForms) {
  EXPECT_EQ(small("{}").is_mla, (std::vector<bool>{false, false, true, false, false, true}));
  // A ragged last group is MLA.
  EXPECT_EQ(small(R"({"layer_group_size":4})").is_mla,
            (std::vector<bool>{false, false, false, true, true, true}));
  const ModelConfig list = small(R"({"layer_group_size":[1,0,1,1,0,1]})");
  EXPECT_EQ(list.is_mla, (std::vector<bool>{false, true, false, false, true, false}));
  EXPECT_EQ(list.group, 0);
  EXPECT_HOLDS(refusal(small_config(R"({"layer_group_size":[1,0]})")), "expected 6 entries");
  EXPECT_HOLDS(refusal(small_config(R"({"layer_group_size":[1,0,1,1,0,2]})")), "entry 5");
}

TEST(Config, ClampLists) {
  const ModelConfig c =
      small(R"({"expert_swiglu_limit_list":[null,2],"share_expert_swiglu_limit_list":null})");
  EXPECT_EQ(c.routed_limits, (std::vector<double>{0, 2, 0, 0, 0, 0}));  // shorter: padded with 0
  EXPECT_EQ(c.shared_limits, std::vector<double>(6, 0.0));
  EXPECT_TRUE(c.warnings.empty());
  EXPECT_EQ(small(R"({"expert_swiglu_limit_list":[-1]})").routed_limits[0], 0.0);
  EXPECT_HOLDS(refusal(small_config(R"({"expert_swiglu_limit_list":[1,1,1,1,1,1,1]})")),
               "at most 6");
  EXPECT_HOLDS(refusal(small_config(R"({"expert_swiglu_limit_list":["a"]})")), "entry 0");
  EXPECT_HOLDS(refusal(small_config(R"({"expert_swiglu_limit_list":4})")), "expected a list");
}

TEST(Config, MissingClampListsOfFlashWarnLoudly) {
  const std::string flash(known_config("ling-3.0-flash"));
  for (const char* key : {"\"expert_swiglu_limit_list\"", "\"share_expert_swiglu_limit_list\""}) {
    const ModelConfig c = parse(replaced(flash, key, "\"lost\""));
    ASSERT_EQ(c.warnings.size(), 1u);
    EXPECT_HOLDS(c.warnings[0], "WARNING");
    EXPECT_HOLDS(c.warnings[0], std::string(key).substr(1, std::string(key).size() - 2));
  }
}

// The same of ling-nano; other shapes may do without clamps and are left in peace.
TEST(Config, MissingClampListsOfLingNanoWarnLoudly) {
  std::ifstream file(std::string(SPARKLING_SOURCE_DIR) + "/models/ling-nano/config.json");
  const std::string nano((std::istreambuf_iterator<char>(file)), {});
  EXPECT_TRUE(parse(nano).warnings.empty());
  for (const char* key : {"\"expert_swiglu_limit_list\"", "\"share_expert_swiglu_limit_list\""}) {
    const ModelConfig c = parse(replaced(nano, key, "\"lost\""));
    ASSERT_EQ(c.warnings.size(), 1u);
    EXPECT_HOLDS(c.warnings[0], "WARNING");
    EXPECT_HOLDS(c.warnings[0], "ling-nano");
  }
  EXPECT_TRUE(parse(std::string(known_config("ling-3.0-tiny"))).warnings.empty());
}

// How weights are stored is the tensors' word, but nonsense about it is refused, not passed over.
TEST(Config, QuantizationMeansWhatTheReleasesMean) {
  const auto with = [](const std::string& text) {
    return small_config("{\"quantization_config\":" + text + "}");
  };
  for (const char* good :
       {"null", R"({"quant_method":"fp8","fmt":"e4m3","weight_block_size":[128,128]})",
        R"({"quant_method":"fp8","scale_fmt":"ue8m0","routed_experts_quant_method":"mxfp4",
            "routed_experts_group_size":32,"modules_to_not_convert":["lm_head"]})",
        R"({"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{"g":
            {"weights":{"num_bits":4,"type":"int","symmetric":true,"group_size":32}}}})"})
    EXPECT_TRUE(parse(with(good)).warnings.empty()) << good;
  const std::pair<const char*, const char*> bad[] = {
      {"3", "quantization_config: expected an object or null, found 3"},
      {"{}", "quantization_config.quant_method: unsupported value"},
      {R"({"quant_method":"awq"})", "found \"awq\""},
      {R"({"quant_method":["fp8"]})", "found [\"fp8\"]"},
      {R"({"quant_method":"fp8","weight_block_size":[64,128]})", "weight_block_size: unsupported"},
      {R"({"quant_method":"fp8","weight_block_size":"128"})", "found \"128\""},
      {R"({"quant_method":"fp8","fmt":"e5m2"})", "fmt: unsupported value: expected \"e4m3\""},
      {R"({"quant_method":"fp8","routed_experts_group_size":16})", "routed_experts_group_size"},
      {R"({"quant_method":"compressed-tensors","format":"dense"})", "format: unsupported value"},
      {R"({"quant_method":"compressed-tensors","config_groups":[1]})", "config_groups: expected"},
      {R"({"quant_method":"compressed-tensors","config_groups":{"a":1}})", "a.weights: expected"},
      {R"({"quant_method":"compressed-tensors","config_groups":{"a":{"weights":{"num_bits":8}}}})",
       "config_groups.a.weights.num_bits: unsupported value: expected 4, found 8"},
  };
  for (const auto& [text, expected] : bad) EXPECT_HOLDS(refusal(with(text)), expected);
  const ModelConfig c = parse(with(R"({"quant_method":"fp8","modules_to_not_convert":7})"));
  ASSERT_EQ(c.warnings.size(), 1u);
  EXPECT_HOLDS(c.warnings[0], "expected a list of names, found 7; it is not used");
}

TEST(Config, SharedWidthAndDefaults) {
  EXPECT_EQ(small(R"({"num_shared_experts":2})").shape.shared_dim, 96);
  EXPECT_EQ(small(R"({"moe_shared_expert_intermediate_size":null})").shape.shared_dim, 32);
  EXPECT_EQ(small(R"({"q_lora_rank":24})").shape.q_lora, 24);
  EXPECT_EQ(small(R"({"q_lora_rank":0})").shape.q_lora, 0);
  EXPECT_EQ(small(R"({"eos_token_id":[3,5]})").eos, (std::vector<int32_t>{3, 5}));
  EXPECT_TRUE(small(R"({"eos_token_id":null})").eos.empty());
}

TEST(Config, VisionWrapper) {
  const std::string text =
      "{\"architectures\":[\"BailingMoeV3VLForConditionalGeneration\"],"
      "\"model_type\":\"bailing_moe_v3_vl\",\"vision_config\":{},\"eos_token_id\":7,"
      "\"text_config\":" +
      small_config(R"({"architectures":null,"eos_token_id":null,
                             "rope_scaling":{"type":"mrope","mrope_section":[2,3,3]}})") +
      "}";
  const ModelConfig c = parse(text);
  EXPECT_TRUE(c.vision_wrapper);
  EXPECT_EQ(c.layers, 6);
  EXPECT_EQ(c.eos, std::vector<int32_t>{7});
  EXPECT_HOLDS(refusal(replaced(text, "\"hidden_size\"", "\"hidden\"")), "text_config.hidden_size");
  EXPECT_HOLDS(refusal(R"({"architectures":["BailingMoeV3VLForConditionalGeneration"]})"),
               "text_config: expected an object");
  EXPECT_HOLDS(refusal(small_config(R"({"rope_scaling":{"type":"mrope"}})")), "mrope");
}

TEST(Config, RopePlaces) {
  EXPECT_EQ(
      small(R"({"rope_theta":null,"rope_parameters":{"rope_type":"default","rope_theta":10000}})")
          .rope_theta,
      1e4);
  EXPECT_HOLDS(refusal(small_config(R"({"rope_parameters":{"rope_theta":10000}})")),
               "same value everywhere");
  EXPECT_HOLDS(refusal(small_config(R"({"rope_theta":null})")), "rope_theta");
  EXPECT_HOLDS(refusal(small_config(R"({"rope_scaling":{"type":"linear","factor":2}})")), "linear");
  EXPECT_HOLDS(refusal(small_config(R"({"rope_scaling":{"type":"yarn"}})")), "factor");
  EXPECT_HOLDS(
      refusal(small_config(R"({"rope_scaling":{"type":"yarn","factor":2,"mscale_all_dim":1}})")),
      "mscale_all_dim");
  EXPECT_HOLDS(refusal(small_config(R"({"rope_scaling":"yarn"})")), "rope_scaling");
  const std::string yarn =
      R"({"factor":4,"original_max_position_embeddings":1024,"rope_theta":6000000,)";
  const ModelConfig a = small("{\"rope_scaling\":" + yarn + R"("rope_type":"yarn"}})");
  const ModelConfig b = small("{\"rope_scaling\":" + yarn + R"("type":"yarn"}})");
  const ModelConfig c = small("{\"rope_parameters\":" + yarn + R"("rope_type":"yarn"}})");
  EXPECT_EQ(a.shape.rope_freq, b.shape.rope_freq);
  EXPECT_EQ(a.shape.rope_freq, c.shape.rope_freq);
  EXPECT_EQ(a.rope_scaling.factor, 4.0);
  EXPECT_EQ(a.context, 4096);
}

TEST(Config, YarnSelfCheck) {
  ModelConfig c = parse(std::string(known_config("ling-3.0-tiny")));
  for (size_t i = 0; i < 32; ++i)
    EXPECT_DOUBLE_EQ(c.shape.rope_freq[i], std::pow(6e6, -static_cast<double>(i) / 32));
  const std::vector<double> plain = c.shape.rope_freq;
  apply_rope_scaling(c, "yarn:2");
  EXPECT_EQ(yarn_range(c), (std::pair<int64_t, int64_t>(13, 21)));
  EXPECT_NEAR(c.shape.rope_factor, 1.069315, 5e-7);
  EXPECT_EQ(c.context, 262144);
  EXPECT_TRUE(c.warnings.empty());
  EXPECT_EQ(c.shape.rope_freq[13], plain[13]);
  EXPECT_DOUBLE_EQ(c.shape.rope_freq[17], plain[17] * .75);  // half way: ramp 0.5
  EXPECT_DOUBLE_EQ(c.shape.rope_freq[21], plain[21] / 2);
  EXPECT_DOUBLE_EQ(c.shape.rope_freq[31], plain[31] / 2);
  apply_rope_scaling(c, "");
  EXPECT_EQ(c.context, 262144);
  apply_rope_scaling(c, "yarn:4");  // replaces, does not multiply
  EXPECT_EQ(c.context, 524288);
  apply_rope_scaling(c, "none");
  EXPECT_EQ(c.context, 131072);
  EXPECT_EQ(c.shape.rope_freq, plain);
  EXPECT_EQ(c.shape.rope_factor, 1.0);
}

TEST(Config, YarnOnNative256K) {
  ModelConfig c = parse(std::string(known_config("ling-3.0-flash")));
  apply_rope_scaling(c, "yarn:4");
  EXPECT_EQ(c.context, 1 << 20);
  EXPECT_TRUE(c.warnings.empty());
  apply_rope_scaling(c, "yarn:2");
  ASSERT_EQ(c.warnings.size(), 1u);
  EXPECT_HOLDS(c.warnings[0], "262144");
  const ModelConfig launch = parse(replaced(
      std::string(known_config("ling-3.0-flash")), "\"rope_scaling\": null",
      R"("rope_scaling":{"rope_type":"yarn","factor":2.0,"original_max_position_embeddings":131072})"));
  EXPECT_EQ(launch.context, 262144);
  EXPECT_EQ(launch.warnings.size(), 1u);
}

TEST(Config, RopeScalingOption) {
  ModelConfig c = small("{}");
  for (const char* bad :
       {"yarn", "yarn:", "yarn:x", "yarn:0.5", "yarn:2x", "yarn:nan", "yarn:1e9", "ntk:2", " "}) {
    try {
      apply_rope_scaling(c, bad);
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    }
  }
  apply_rope_scaling(c, "yarn:1.5");
  EXPECT_EQ(c.context, 6144);
}

TEST(Config, KeepLayers) {
  ModelConfig c = parse(std::string(known_config("ling-3.0-flash")));
  keep_layers(c, 100);
  EXPECT_EQ(c.layers, 42);
  keep_layers(c, 1);
  EXPECT_EQ(c.layers, 1);
  EXPECT_EQ(c.dense_layers, 1);
  EXPECT_EQ(c.is_mla.size(), 1u);
  EXPECT_EQ(c.routed_limits.size(), 1u);
  EXPECT_EQ(c.mtp_layers, 1);
  EXPECT_THROW(keep_layers(c, 0), Error);
}

}  // namespace
}  // namespace spk
