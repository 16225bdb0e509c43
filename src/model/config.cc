#include "model/config.h"

#include "base/error.h"
#include "base/json_whole.h"
#include "formats/untrusted.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numbers>
#include <system_error>

namespace spk {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxConfig = 4u << 20;
constexpr std::string_view kTextClass = "BailingMoeV3ForCausalLM";
constexpr std::string_view kVisionClass = "BailingMoeV3VLForConditionalGeneration";

// Upper bounds of single dimensions. Products of them stay below 2^62, so sizes computed from a
// config that passed cannot overflow: layers 2^9 * experts 2^12 * 3 matrices * 2^17 * 2^17 * 4
// bytes < 2^61.
constexpr int64_t kMaxLayers = 512;
constexpr int64_t kMaxExperts = 4096;
constexpr int64_t kMaxWidth = 131072;
constexpr int64_t kMaxHeads = 1024;
constexpr int64_t kMaxHeadDim = 1024;
constexpr int64_t kMaxVocab = 1 << 22;
constexpr int64_t kMaxContext = int64_t{1} << 26;
// The chunked form of KDA holds factors of half a sub-block's 16 rows in both directions and sums
// of a whole one (docs/MODEL.md): at -5 a row those are exp(80), and float ends at exp(88). Below
// it prompts would be wrong without a sign of it.
constexpr double kLowestLogDecay = -5;

std::string shown(const Json& value) {
  return printable(value.dump(-1, ' ', true, Json::error_handler_t::replace));
}

// Looks keys up and collects complaints; after a complaint it returns something harmless.
class Fields {
 public:
  Fields(const Json& object, std::string file, std::string prefix, Complaints& complaints)
      : object_(object),
        file_(std::move(file)),
        prefix_(std::move(prefix)),
        complaints_(complaints) {}

  // Absent and null are the same: both mean "not set" in the family's configs.
  const Json* get(const char* key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }

  template <typename... Args>
  void complain(const char* key, Args&&... args) {
    complaints_.add(file_, ": ", prefix_, key, ": ", args...);
  }

  int64_t integer(const char* key, int64_t low, int64_t high) {
    if (!get(key)) {
      complain(key, "expected an integer, found nothing");
      return low;
    }
    return integer(key, low, high, low);
  }
  int64_t integer(const char* key, int64_t low, int64_t high, int64_t fallback) {
    const Json* v = get(key);
    if (!v) return fallback;
    const bool fits = v->is_number_integer() &&
                      !(v->is_number_unsigned() && v->get<uint64_t>() > INT64_MAX) &&
                      v->get<int64_t>() >= low && v->get<int64_t>() <= high;
    if (fits) return v->get<int64_t>();
    complain(key, "expected an integer in [", low, ", ", high, "], found ", shown(*v));
    return fallback;
  }

  double number(const char* key, double low, double high, double fallback) {
    const Json* v = get(key);
    if (!v) return fallback;
    if (v->is_number() && v->get<double>() >= low && v->get<double>() <= high)
      return v->get<double>();
    complain(key, "expected a number in [", low, ", ", high, "], found ", shown(*v));
    return fallback;
  }
  double needed_number(const char* key, double low, double high) {
    if (!get(key)) complain(key, "expected a number, found nothing");
    return number(key, low, high, low);
  }

  // The family acts on one value only; another one is a model that this program would compute
  // wrongly.
  void only(const char* key, const Json& supported) {
    const Json* v = get(key);
    if (v && *v != supported)
      complain(key, "unsupported value: expected ", shown(supported), ", found ", shown(*v));
  }

 private:
  const Json& object_;
  std::string file_;
  std::string prefix_;
  Complaints& complaints_;
};

// Names as in the checkpoints; every one of these changes the arithmetic.
void refuse_unsupported(Fields& f) {
  for (const char* key : {"no_kda_lora", "kda_safe_gate", "norm_topk_prob", "rope_interleave",
                          "moe_router_enable_expert_bias"})
    f.only(key, true);
  for (const char* key :
       {"use_kda_lora", "use_nGPT", "use_mla_nope", "value_norm", "up_proj_norm",
        "scale_router_input", "mtp_use_kda", "use_bias", "use_qkv_bias", "tie_word_embeddings"})
    f.only(key, false);
  f.only("gated_attention_proj_granularity_type", "head_wise");
  f.only("score_function", "sigmoid");
  f.only("scoring_func", "sigmoid");
  f.only("topk_method", "noaux_tc");
  f.only("hidden_act", "silu");
}

void read_shape(Fields& f, ModelShape& s) {
  s.hidden = f.integer("hidden_size", 1, kMaxWidth);
  s.vocab = f.integer("vocab_size", 1, kMaxVocab);
  s.heads = f.integer("num_attention_heads", 1, kMaxHeads);
  s.head_dim = f.integer("head_dim", 1, kMaxHeadDim);
  s.conv_kernel = f.integer("short_conv_kernel_size", 2, 16);
  s.kda_lower_bound = f.number("kda_lower_bound", kLowestLogDecay, -1e-3, kLowestLogDecay);
  s.q_lora = f.integer("q_lora_rank", 0, kMaxWidth, 0);
  s.latent = f.integer("kv_lora_rank", 1, kMaxWidth);
  s.nope = f.integer("qk_nope_head_dim", 1, kMaxHeadDim);
  s.rope = f.integer("qk_rope_head_dim", 2, kMaxHeadDim);
  s.v_dim = f.integer("v_head_dim", 1, kMaxHeadDim);
  s.dense = f.integer("intermediate_size", 1, kMaxWidth);
  s.experts = f.integer("num_experts", 1, kMaxExperts);
  s.top_k = f.integer("num_experts_per_tok", 1, 64);
  s.groups = f.integer("n_group", 1, kMaxExperts);
  s.keep_groups = f.integer("topk_group", 1, kMaxExperts);
  s.expert_dim = f.integer("moe_intermediate_size", 1, kMaxWidth);
  s.shared_dim = f.integer("moe_shared_expert_intermediate_size", 1, kMaxWidth, s.expert_dim) *
                 f.integer("num_shared_experts", 1, 16, 1);
  s.routed_scale = f.number("routed_scaling_factor", 1e-6, 1e6, 1.0);
  s.eps = f.needed_number("rms_norm_eps", 1e-20, 1e-1);

  if (s.rope % 2 != 0) f.complain("qk_rope_head_dim", "expected an even number, found ", s.rope);
  if (s.experts % s.groups != 0) {
    f.complain("n_group", "expected a divisor of num_experts = ", s.experts, ", found ", s.groups);
  } else if (s.keep_groups > s.groups) {
    f.complain("topk_group", "expected at most n_group = ", s.groups, ", found ", s.keep_groups);
  } else if (s.top_k > s.keep_groups * (s.experts / s.groups)) {
    f.complain("num_experts_per_tok", "expected at most topk_group * num_experts / n_group = ",
               s.keep_groups * (s.experts / s.groups), ", found ", s.top_k);
  }
  // A group's score is the sum of its two best experts.
  if (s.experts / s.groups < 2)
    f.complain("n_group", "expected groups of at least 2 experts, found ", s.groups, " groups of ",
               s.experts, " experts");
  f.integer("qk_head_dim", s.nope + s.rope, s.nope + s.rope, 0);
  f.integer("rotary_dim", s.rope, s.rope, 0);
}

// Layer l is MLA when (l + 1) mod G == 0 or l lies in the ragged last group. As a list: 1 means
// KDA.
void read_schedule(Fields& f, ModelConfig& c) {
  c.layers = f.integer("num_hidden_layers", 1, kMaxLayers);
  c.dense_layers = f.integer("first_k_dense_replace", 0, c.layers, 0);
  c.is_mla.assign(static_cast<size_t>(c.layers), false);
  const Json* group = f.get("layer_group_size");
  if (group && group->is_array()) {
    if (static_cast<int64_t>(group->size()) != c.layers) {
      f.complain("layer_group_size", "expected ", c.layers, " entries, found ", group->size());
      return;
    }
    for (size_t l = 0; l < group->size(); ++l) {
      const Json& kind = (*group)[l];
      if (kind != 0 && kind != 1)
        f.complain("layer_group_size", "entry ", l, ": expected 0 (MLA) or 1 (KDA), found ",
                   shown(kind));
      c.is_mla[l] = kind != 1;
    }
    return;
  }
  c.group = f.integer("layer_group_size", 1, kMaxLayers);
  for (int64_t l = 0; l < c.layers; ++l)
    c.is_mla[static_cast<size_t>(l)] = (l + 1) % c.group == 0 || l >= c.layers / c.group * c.group;
}

std::vector<double> read_limits(Fields& f, const char* key, int64_t layers) {
  std::vector<double> limits(static_cast<size_t>(layers), 0.0);
  const Json* list = f.get(key);
  if (!list) return limits;
  if (!list->is_array() || list->size() > limits.size()) {
    f.complain(key, "expected a list of at most ", layers, " numbers, found ",
               list->is_array() ? cat(list->size(), " entries") : shown(*list));
    return limits;
  }
  for (size_t l = 0; l < list->size(); ++l) {
    const Json& v = (*list)[l];
    if (v.is_null()) continue;
    if (!v.is_number() || !(std::fabs(v.get<double>()) <= 1e6)) {
      f.complain(key, "entry ", l, ": expected a number or null, found ", shown(v));
    } else {
      limits[l] = std::max(0.0, v.get<double>());  // 0 and below mean: no clamp
    }
  }
  return limits;
}

void read_clamps(Fields& f, ModelConfig& c) {
  c.routed_limits = read_limits(f, "expert_swiglu_limit_list", c.layers);
  c.shared_limits = read_limits(f, "share_expert_swiglu_limit_list", c.layers);
  // Members that were trained with clamps in their late layers. Without them Ling-3.0-flash drops
  // foreign words into its text, and a class of derived checkpoints has lost the lists. Other
  // shapes may do without (Ling-3.0-tiny has null in both places), so that they are left in peace.
  struct Trained {
    const char* name;
    int64_t layers, experts;
  };
  constexpr std::array<Trained, 2> kTrained = {
      {{"Ling-3.0-flash", 42, 512}, {"ling-nano", 12, 32}}};
  const auto member = std::find_if(kTrained.begin(), kTrained.end(), [&](const Trained& t) {
    return t.layers == c.layers && t.experts == c.shape.experts;
  });
  if (member == kTrained.end()) return;
  const auto none = [](const std::vector<double>& list) {
    return std::all_of(list.begin(), list.end(), [](double v) { return v == 0; });
  };
  for (const auto& [key, missing] :
       {std::pair("expert_swiglu_limit_list", none(c.routed_limits)),
        std::pair("share_expert_swiglu_limit_list", none(c.shared_limits))}) {
    if (missing)
      c.warnings.push_back(
          cat("WARNING: ", key, " is missing or empty, but this is ", member->name, "'s shape (",
              c.layers, " layers, ", c.shape.experts,
              " experts), which was trained with SwiGLU clamps: expect rare wrong words. Take the "
              "list from the original config.json"));
  }
}

// How a weight is stored is its tensor's word. What the config says of it must still be what the
// family's releases mean by it: another method, block or group is a file that only looks alike.
void read_quantization(Fields& outer, const std::string& file, Complaints& complaints,
                       ModelConfig& c) {
  const Json* object = outer.get("quantization_config");
  if (!object) return;
  if (!object->is_object()) {
    outer.complain("quantization_config", "expected an object or null, found ", shown(*object));
    return;
  }
  Fields f(*object, file, "quantization_config.", complaints);
  const Json* method = f.get("quant_method");
  if (method && *method == "fp8") {
    f.only("fmt", "e4m3");
    f.only("weight_block_size", Json::array({128, 128}));
    f.only("scale_fmt", "ue8m0");
    f.only("routed_experts_quant_method", "mxfp4");
    f.only("routed_experts_group_size", 32);
  } else if (method && *method == "compressed-tensors") {
    f.only("format", "pack-quantized");
    const Json none = Json::object();
    const Json* groups = f.get("config_groups");
    if (groups && !groups->is_object())
      f.complain("config_groups", "expected an object, found ", shown(*groups));
    for (const auto& [name, group] : (groups && groups->is_object() ? *groups : none).items()) {
      const std::string prefix = cat("quantization_config.config_groups.", printable(name), ".");
      const Json* weights =
          group.is_object() && group.contains("weights") ? &group["weights"] : nullptr;
      if (!weights || !weights->is_object()) {
        complaints.add(file, ": ", prefix, "weights: expected an object, found ",
                       weights ? shown(*weights) : "nothing");
        continue;
      }
      Fields w(*weights, file, prefix + "weights.", complaints);
      w.only("num_bits", 4);
      w.only("type", "int");
      w.only("symmetric", true);
      w.only("group_size", 32);
      w.only("strategy", "group");
    }
  } else {
    f.complain("quant_method",
               "unsupported value: expected \"fp8\" or \"compressed-tensors\", found ",
               method ? shown(*method) : "nothing");
  }
  // These decide nothing here, so that nonsense in them is only said.
  for (const char* key : {"modules_to_not_convert", "ignore"}) {
    const Json* list = f.get(key);
    const bool names =
        !list || (list->is_array() && std::all_of(list->begin(), list->end(), [](const Json& name) {
                    return name.is_string();
                  }));
    if (!names)
      c.warnings.push_back(cat(file, ": quantization_config.", key,
                               ": expected a list of names, found ", shown(*list),
                               "; it is not used"));
  }
}

void read_tokens(Fields& f, ModelConfig& c) {
  const Json* eos = f.get("eos_token_id");
  if (eos) {
    const Json list = eos->is_array() ? *eos : Json::array({*eos});
    for (const Json& id : list) {
      const bool fits = id.is_number_integer() && id >= 0 && id < c.shape.vocab;
      if (fits) {
        c.eos.push_back(id.get<int32_t>());
      } else {
        f.complain("eos_token_id", "expected ids below vocab_size = ", c.shape.vocab, ", found ",
                   shown(id));
      }
    }
  }
  c.pad = static_cast<int32_t>(f.integer("pad_token_id", -1, c.shape.vocab - 1, -1));
}

// theta^(-2i/R), and YaRN's blend of it with the stretched frequencies (docs/MODEL.md, 4.4).
void set_frequencies(ModelConfig& c) {
  const RopeScaling& y = c.rope_scaling;
  const auto dim = static_cast<double>(c.shape.rope);
  c.shape.rope_freq.resize(static_cast<size_t>(c.shape.rope / 2));
  c.shape.rope_factor = 1.0;
  for (size_t i = 0; i < c.shape.rope_freq.size(); ++i)
    c.shape.rope_freq[i] = std::pow(c.rope_theta, -2.0 * static_cast<double>(i) / dim);
  if (y.factor <= 1.0) return;
  const auto range = yarn_range(c);
  const auto lo = static_cast<double>(range.first);
  const auto hi = static_cast<double>(range.second);
  for (size_t i = 0; i < c.shape.rope_freq.size(); ++i) {
    double& freq = c.shape.rope_freq[i];
    const double ramp =
        std::clamp((static_cast<double>(i) - lo) / std::max(hi - lo, 1e-3), 0.0, 1.0);
    freq = freq / y.factor * ramp + freq * (1.0 - ramp);
  }
  c.shape.rope_factor =
      y.attention_factor > 0 ? y.attention_factor : 0.1 * std::log(y.factor) + 1.0;
}

void warn_native(ModelConfig& c) {
  if (c.context >= 262144 && c.rope_scaling.factor == 2.0)
    c.warnings.push_back(
        "YaRN factor 2 together with max_position_embeddings 262144: that override belongs to the "
        "launch revision of Ling-3.0-flash (131072); the current one has 262144 natively and gets "
        "worse with it");
}

// Where a scaling may hide: rope_scaling {rope_type | type} or rope_parameters {rope_type}.
void read_scaling(Fields& outer, const char* key, const std::string& file, Complaints& complaints,
                  ModelConfig& c, bool& set) {
  const Json* object = outer.get(key);
  if (!object) return;
  if (!object->is_object()) {
    outer.complain(key, "expected an object or null, found ", shown(*object));
    return;
  }
  Fields f(*object, file, cat(key, "."), complaints);
  const double theta = f.number("rope_theta", 1.0, 1e15, 0.0);
  if (theta > 0) {
    if (set && theta != c.rope_theta)
      f.complain("rope_theta", "expected the same value everywhere, found ", theta, " and ",
                 c.rope_theta);
    c.rope_theta = theta;
    set = true;
  }
  const char* type_key = f.get("rope_type") ? "rope_type" : "type";
  const Json* type = f.get(type_key);
  // mrope: for pure text all three positions are equal, which is plain RoPE.
  if (!type || *type == "default" || (*type == "mrope" && c.vision_wrapper)) return;
  if (*type != "yarn") {
    f.complain(type_key, "unsupported value: expected \"default\" or \"yarn\", found ",
               shown(*type));
    return;
  }
  f.only("truncate", true);
  const double all_dim = f.number("mscale_all_dim", -1e6, 1e6, 0.0);
  if (all_dim != 0) f.complain("mscale_all_dim", "unsupported value: expected 0, found ", all_dim);
  RopeScaling y;
  y.factor = f.needed_number("factor", 1.0, 1024.0);
  y.original_context = f.integer("original_max_position_embeddings", 1, kMaxContext, c.context);
  y.beta_fast = f.number("beta_fast", 1e-3, 1e6, y.beta_fast);
  y.beta_slow = f.number("beta_slow", 1e-3, 1e6, y.beta_slow);
  y.attention_factor = f.number("attention_factor", 1e-3, 1e3, 0.0);
  c.rope_scaling = y;
}

void read_rope(Fields& f, const std::string& file, Complaints& complaints, ModelConfig& c) {
  c.context = f.integer("max_position_embeddings", 1, kMaxContext);
  bool set = f.get("rope_theta") != nullptr;
  c.rope_theta = f.number("rope_theta", 1.0, 1e15, c.rope_theta);
  read_scaling(f, "rope_parameters", file, complaints, c, set);
  read_scaling(f, "rope_scaling", file, complaints, c, set);
  if (!set) f.complain("rope_theta", "expected a number, found nothing");
  warn_native(c);
  // The config's context may or may not count the stretch already; the larger one is what the
  // frequencies are made for.
  const double stretched =
      c.rope_scaling.factor * static_cast<double>(c.rope_scaling.original_context);
  c.context = std::max(c.context, static_cast<int64_t>(std::min(stretched, 1e9)));
  set_frequencies(c);
}

// The object with the text model's keys: the whole file, or text_config of a VL checkpoint.
const Json* find_text(const Json& root, const std::string& file, Complaints& complaints,
                      ModelConfig& c) {
  if (!root.is_object()) {
    complaints.add(file, ": expected a JSON object, found ", root.type_name());
    return nullptr;
  }
  const auto architectures = root.find("architectures");
  if (architectures != root.end() && architectures->is_array() && !architectures->empty() &&
      (*architectures)[0].is_string())
    c.architecture = (*architectures)[0].get<std::string>();
  c.vision_wrapper = c.architecture == kVisionClass;
  if (!c.vision_wrapper && c.architecture != kTextClass) {
    complaints.add(file, ": architectures: expected [\"", kTextClass, "\"] or [\"", kVisionClass,
                   "\"], found ", architectures == root.end() ? "nothing" : shown(*architectures));
    return nullptr;
  }
  if (!c.vision_wrapper) return &root;
  const auto text = root.find("text_config");
  if (text != root.end() && text->is_object()) return &*text;
  complaints.add(file, ": text_config: expected an object, found ",
                 text == root.end() ? "nothing" : shown(*text));
  return nullptr;
}

}  // namespace

std::pair<int64_t, int64_t> yarn_range(const ModelConfig& c) {
  const RopeScaling& y = c.rope_scaling;
  const auto dim = static_cast<double>(c.shape.rope);
  const auto corr = [&](double beta) {
    return dim *
           std::log(static_cast<double>(y.original_context) / (2.0 * std::numbers::pi * beta)) /
           (2.0 * std::log(c.rope_theta));
  };
  const double lo = std::clamp(std::floor(corr(y.beta_fast)), 0.0, dim - 1.0);
  const double hi = std::clamp(std::ceil(corr(y.beta_slow)), 0.0, dim - 1.0);
  return {static_cast<int64_t>(lo), static_cast<int64_t>(hi)};
}

ModelConfig parse_config(std::string_view json, const std::string& file) {
  if (json.size() > kMaxConfig)
    fail_input(file, ": expected at most ", kMaxConfig, " bytes, found ", json.size());
  if (json_depth(json) > 32) fail_input(file, ": nested deeper than 32 levels");
  Json root;
  try {
    root = Json::parse(json_whole(json));
  } catch (const Json::parse_error& error) {
    const size_t nul = json.find('\0');
    fail_input(file,
               ": not valid JSON: expected a value, a name or an end, found something else at ",
               "byte ", nul == std::string_view::npos ? error.byte : nul + 1);
  } catch (const Json::exception&) {
    fail_input(file, ": not valid JSON: expected numbers within a double, found a larger one");
  }

  ModelConfig c;
  Complaints complaints;
  const Json* text = find_text(root, file, complaints, c);
  if (text) {
    const std::string prefix = c.vision_wrapper ? "text_config." : "";
    Fields f(*text, file, prefix, complaints);
    refuse_unsupported(f);
    read_shape(f, c.shape);
    read_schedule(f, c);
    read_clamps(f, c);
    c.mtp_layers = f.integer("num_nextn_predict_layers", 0, 1, 0);
    read_rope(f, file, complaints, c);
    read_quantization(f, file, complaints, c);
    read_tokens(f, c);
    if (c.vision_wrapper) {
      Fields outer(root, file, "", complaints);
      outer.only("tie_word_embeddings", false);
      read_quantization(outer, file, complaints, c);
      if (c.eos.empty() && !f.get("eos_token_id")) read_tokens(outer, c);
    }
  }
  complaints.throw_if_any("unsupported or broken config");
  return c;
}

void apply_rope_scaling(ModelConfig& config, std::string_view option) {
  if (option.empty()) return;
  const bool scaled = config.rope_scaling.factor > 1.0;
  const int64_t native = scaled ? config.rope_scaling.original_context : config.context;
  RopeScaling y;
  if (option != "none") {
    constexpr std::string_view kYarn = "yarn:";
    const char* end = option.data() + option.size();
    const bool named = option.substr(0, kYarn.size()) == kYarn;
    const auto [stop, error] =
        std::from_chars(named ? option.data() + kYarn.size() : end, end, y.factor);
    if (error != std::errc() || stop != end || !(y.factor >= 1.0 && y.factor <= 1024.0)) {
      fail_usage("--rope-scaling: expected none or yarn:FACTOR with FACTOR in [1, 1024], found '",
                 printable(option), "'");
    }
    y.original_context = native;
  }
  config.rope_scaling = y;
  config.context = native;
  warn_native(config);
  config.context = static_cast<int64_t>(static_cast<double>(native) * y.factor);
  set_frequencies(config);
}

void keep_layers(ModelConfig& config, int64_t n) {
  if (n < 1) fail_usage("--layers: expected at least 1, found ", n);
  if (n >= config.layers) return;
  const auto count = static_cast<size_t>(n);
  config.cut = true;
  config.layers = n;
  config.dense_layers = std::min(config.dense_layers, n);
  config.is_mla.resize(count);
  config.routed_limits.resize(count);
  config.shared_limits.resize(count);
}

}  // namespace spk
