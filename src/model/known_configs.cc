// The family's released shapes as config.json texts: what --synthetic runs and what the self-checks
// count. Values: docs/MODEL.md. 3.1-flash's q_lora_rank is not published; null is assumed, as
// in 3.0-flash.
#include "base/error.h"
#include "formats/untrusted.h"
#include "model/synthetic.h"

#include <algorithm>
#include <vector>

namespace spk {
namespace {

constexpr std::string_view kFlash = R"({
"architectures": ["BailingMoeV3ForCausalLM"], "model_type": "bailing_hybrid",
"hidden_size": 2560, "num_hidden_layers": 42, "num_attention_heads": 32,
"num_key_value_heads": 32, "intermediate_size": 6144, "first_k_dense_replace": 2,
"layer_group_size": 6, "num_experts": 512, "moe_intermediate_size": 768,
"moe_shared_expert_intermediate_size": 768, "q_lora_rank": null, "num_nextn_predict_layers": 1,
"max_position_embeddings": 262144,
"expert_swiglu_limit_list": [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4],
"share_expert_swiglu_limit_list": [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 5, 5, 5, 5, 5, 7, 7], "head_dim": 128,
"vocab_size": 157184, "n_group": 8, "topk_group": 4, "num_experts_per_tok": 8,
"num_shared_experts": 1, "routed_scaling_factor": 2.5, "norm_topk_prob": true,
"score_function": "sigmoid", "topk_method": "noaux_tc", "router_dtype": "fp32",
"moe_router_enable_expert_bias": true, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
"qk_rope_head_dim": 64, "qk_head_dim": 192, "v_head_dim": 128, "rope_theta": 6000000,
"rope_interleave": true, "partial_rotary_factor": 0.5, "rotary_dim": 64, "rope_scaling": null,
"rms_norm_eps": 1e-06, "short_conv_kernel_size": 4, "no_kda_lora": true, "use_kda_lora": false,
"kda_safe_gate": true, "kda_lower_bound": -5,
"gated_attention_proj_granularity_type": "head_wise", "eos_token_id": 156895,
"pad_token_id": 156892, "tie_word_embeddings": false, "hidden_act": "silu", "use_bias": false,
"use_qkv_bias": false, "use_qk_norm": true, "dtype": "bfloat16"
})";

constexpr std::string_view kTiny = R"({
"architectures": ["BailingMoeV3ForCausalLM"], "model_type": "bailing_hybrid",
"hidden_size": 1536, "num_hidden_layers": 24, "num_attention_heads": 16,
"num_key_value_heads": 16, "intermediate_size": 4608, "first_k_dense_replace": 1,
"layer_group_size": 4, "num_experts": 128, "moe_intermediate_size": 512,
"moe_shared_expert_intermediate_size": 512, "q_lora_rank": 256, "num_nextn_predict_layers": 0,
"max_position_embeddings": 131072, "expert_swiglu_limit_list": null,
"share_expert_swiglu_limit_list": null, "head_dim": 128, "vocab_size": 157184, "n_group": 8,
"topk_group": 4, "num_experts_per_tok": 8, "num_shared_experts": 1,
"routed_scaling_factor": 2.5, "norm_topk_prob": true, "score_function": "sigmoid",
"topk_method": "noaux_tc", "router_dtype": "fp32", "moe_router_enable_expert_bias": true,
"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "qk_head_dim": 192,
"v_head_dim": 128, "rope_theta": 6000000, "rope_interleave": true, "partial_rotary_factor": 0.5,
"rotary_dim": 64, "rope_scaling": null, "rms_norm_eps": 1e-06, "short_conv_kernel_size": 4,
"no_kda_lora": true, "use_kda_lora": false, "kda_safe_gate": true, "kda_lower_bound": -5,
"gated_attention_proj_granularity_type": "head_wise", "eos_token_id": 156895,
"pad_token_id": 156892, "tie_word_embeddings": false, "hidden_act": "silu", "use_bias": false,
"use_qkv_bias": false, "use_qk_norm": true, "dtype": "bfloat16"
})";

constexpr std::string_view kFlash31 = R"({
"architectures": ["BailingMoeV3ForCausalLM"], "model_type": "bailing_hybrid",
"hidden_size": 4096, "num_hidden_layers": 72, "num_attention_heads": 64,
"num_key_value_heads": 64, "intermediate_size": 10240, "first_k_dense_replace": 4,
"layer_group_size": 8, "num_experts": 512, "moe_intermediate_size": 1280,
"moe_shared_expert_intermediate_size": 1280, "q_lora_rank": null, "num_nextn_predict_layers": 1,
"max_position_embeddings": 262144,
"expert_swiglu_limit_list": [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 10, 10, 10, 10, 10, 10],
"share_expert_swiglu_limit_list": [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 10, 10, 10, 10, 10, 10, 10], "head_dim": 128,
"vocab_size": 157184, "n_group": 8, "topk_group": 4, "num_experts_per_tok": 8,
"num_shared_experts": 1, "routed_scaling_factor": 2.5, "norm_topk_prob": true,
"score_function": "sigmoid", "topk_method": "noaux_tc", "router_dtype": "fp32",
"moe_router_enable_expert_bias": true, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
"qk_rope_head_dim": 64, "qk_head_dim": 192, "v_head_dim": 128, "rope_theta": 6000000,
"rope_interleave": true, "partial_rotary_factor": 0.5, "rotary_dim": 64, "rope_scaling": null,
"rms_norm_eps": 1e-06, "short_conv_kernel_size": 4, "no_kda_lora": true, "use_kda_lora": false,
"kda_safe_gate": true, "kda_lower_bound": -5,
"gated_attention_proj_granularity_type": "head_wise", "eos_token_id": 156895,
"pad_token_id": 156892, "tie_word_embeddings": false, "hidden_act": "silu", "use_bias": false,
"use_qkv_bias": false, "use_qk_norm": true, "dtype": "bfloat16"
})";

struct Known {
  std::string_view name;
  std::string_view text;
};
constexpr Known kKnown[] = {
    {"ling-3.0-flash", kFlash}, {"ling-3.0-tiny", kTiny}, {"ling-3.1-flash", kFlash31}};

// Levenshtein distance, for the did-you-mean.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::string_view known_config(std::string_view name) {
  const Known* best = kKnown;
  for (const Known& known : kKnown) {
    if (known.name == name) return known.text;
    const std::string_view start = name.substr(0, 64);
    if (distance(start, known.name) < distance(start, best->name)) best = &known;
  }
  fail_usage("expected ling-3.0-flash, ling-3.0-tiny, ling-3.1-flash or a config.json, found '",
             printable(name), "'; did you mean ", best->name, "?");
}

}  // namespace spk
