// config.json -> ModelConfig: validated, range-checked, unknown values refused by name.
//
// Owns the family's config keys (docs/MODEL.md names the sources), nested text_config of VL
// checkpoints, YaRN, and the layer schedule. Pure functions, thread-safe. Fuzzed: every integer is
// bounded before anything is sized by it.
#pragma once

#include "backend/layout.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spk {

struct RopeScaling {
  double factor = 1.0;  // 1: none
  int64_t original_context = 0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double attention_factor = 0.0;  // 0: 0.1 ln(factor) + 1
};

struct ModelConfig {
  ModelShape shape;
  int64_t layers = 0;        // num_hidden_layers, MTP not counted
  int64_t group = 0;         // layer_group_size; 0 when layer_kinds came as a list
  std::vector<bool> is_mla;  // [layers]
  int64_t dense_layers = 0;  // first_k_dense_replace
  // num_nextn_predict_layers (0 or 1); whether the tensors exist is the checkpoint's word.
  int64_t mtp_layers = 0;
  int64_t context = 0;  // max_position_embeddings
  double rope_theta = 6e6;
  RopeScaling rope_scaling;
  std::vector<double> routed_limits;  // [layers], 0: none
  std::vector<double> shared_limits;  // [layers]
  std::vector<int32_t> eos;           // eos_token_id (one or several)
  int32_t pad = -1;
  bool vision_wrapper = false;  // text part of a VL checkpoint
  bool cut = false;             // keep_layers left layers out: a checkpoint may hold more
  std::string architecture;
  std::vector<std::string> warnings;  // missing clamp lists, YaRN on a native 262144, ...

  bool is_moe(int64_t layer) const { return layer >= dense_layers; }
  int64_t moe_layers() const { return layers - dense_layers; }
};

// Throws Error(kInput) that lists ALL complaints, each with key, expected and found. `file` is for
// messages.
ModelConfig parse_config(std::string_view json, const std::string& file);

// --rope-scaling: "" (the config's), "none", "yarn:FACTOR". Recomputes the shape's frequencies and
// context; adds the warning of a factor on top of a native 262144.
void apply_rope_scaling(ModelConfig& config, std::string_view option);

// YaRN's ramp in frequency indices (lo, hi); 13 and 21 for the family's rope of 64 over 131072.
std::pair<int64_t, int64_t> yarn_range(const ModelConfig& config);

// The first n layers (and the MTP layer) only: for --layers.
void keep_layers(ModelConfig& config, int64_t n);

}  // namespace spk
