// What exists (Model), and what happens (forward, forward_mtp): the family's definition, once for
// all back ends.
//
// Start here, then read forward.cc; the verbs' meaning is in backend/reference.cc.
#pragma once

#include "backend/backend.h"
#include "backend/layout.h"
#include "backend/lm_head.h"
#include "formats/checkpoint.h"
#include "model/config.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace spk {

struct Model {
  ModelConfig config;
  Weight embed;               // [vocab, hidden]
  std::vector<Layer> layers;  // [config.layers]
  Weight norm;                // [1, hidden]
  LmHead head;
  std::optional<LmHead>
      draft_head;  // the most frequent tokens only, when asked for; choices stay the head's
  std::optional<MtpLayer> mtp;
  FusionPlan plan;  // asked of the back end once, at load
  std::vector<std::string>
      notes;  // "pictures are not supported", "drafts off: checkpoint has no MTP layer", ...
};

// What drafts are sampled from: the draft head, or the target's own.
inline const LmHead& drafting_head(const Model& model) {
  return model.draft_head ? *model.draft_head : model.head;
}

// ---- tensor table (tensors.cc): what a checkpoint must hold ----

enum class Component : uint8_t {
  kEmbed,
  kHead,
  kNorm,
  kKda,
  kMla,
  kDense,
  kRouter,
  kRouted,
  kShared,
  kMtp
};
inline constexpr int kComponents = 10;
std::string_view component_name(Component component);

// One tensor that the config asks for, found in the source and checked.
struct BoundTensor {
  std::string name;  // logical name: without .weight_packed, a wrapper's prefix and the like
  Component component;
  int64_t layer = -1;   // -1: global; config.layers: MTP
  int64_t expert = -1;  // -1: not a routed expert's
  HostTensor tensor;    // its name is the stored one, which lives as long as the source
};

// What bind_tensors found. The source must outlive it. Move-only: the index refers to its own
// names.
struct TensorSet {
  std::vector<BoundTensor> tensors;
  bool has_mtp = false;
  std::vector<std::string> notes;
  const TensorSource* source = nullptr;
  std::unordered_map<std::string_view, size_t> index;  // name -> tensors[i]

  TensorSet() = default;
  TensorSet(TensorSet&&) = default;
  TensorSet& operator=(TensorSet&&) = default;
  const BoundTensor& at(std::string_view name) const;  // SPK_CHECK when absent
  const BoundTensor* find(std::string_view name) const;
};

// Resolves and checks EVERY tensor of the model: name, dtype, shape, scale companions, E8M0 code
// 255, non-finite scales. Throws one Error(kInput) with all mismatches (file, tensor, expected,
// found). Unknown tensors in the source are listed as a note unless the family is known to carry
// them (vision tower, model.mtp*); an unknown companion of a bound tensor (a bias, a zero point) is
// an error, because leaving it out would change the model.
//
// Scales are a twentieth of all bytes: for a back end that uploads late they are left to
// load_model, which reads every byte anyway, lest the files be read twice.
enum class CheckScales : uint8_t { kNow, kLater };
TensorSet bind_tensors(const ModelConfig& config, const TensorSource& source,
                       CheckScales when = CheckScales::kNow);

// Uploads all bound tensors and checks the codes on the way (FP8 NaN codes, BF16 and F32 that are
// not finite), since that reads every byte; the source's pages are dropped behind each tensor. The
// source must outlive the back end.
struct HeadOptions {
  HeadFormat format = HeadFormat::kStored;
  std::span<const int32_t> draft_rows =
      {};           // ids of the draft head's rows; empty: drafts use the head itself
  int threads = 1;  // for quantising
};
// How far loading has come, for other threads to look at.
struct LoadProgress {
  std::atomic<int64_t> done{0}, total{0};  // bytes of weights; total 0: not known yet
};
// `wanted`: only the tensors for which it is true; null: all.
Model load_model(const ModelConfig& config, const TensorSet& tensors, Backend& backend,
                 const HeadOptions& heads = {}, LoadProgress* progress = nullptr,
                 const std::function<bool(const BoundTensor&)>& wanted = nullptr);

// ---- sizes, for inspect, the memory plan and bench ----
struct ModelSizes {
  int64_t total_parameters = 0;
  int64_t active_parameters = 0;              // all non-expert weights + the chosen experts
  int64_t main_parameters = 0;                // without the MTP layer
  int64_t weight_bytes = 0;                   // as stored
  int64_t component_bytes[kComponents] = {};  // as stored
  // Read per decoded token: routed experts by top_k / experts, one row of the embeddings; kMtp's
  // per draft step.
  int64_t component_token_bytes[kComponents] = {};
  int64_t latent_bytes_per_token_exact = 0;  // float latents, MTP layer included when present
  int64_t latent_bytes_per_token_fast = 0;   // BF16 latents
  int64_t recurrent_bytes = 0;               // float recurrent state
  int64_t conv_bytes = 0;                    // float conv tails
  int64_t state_bytes = 0;                   // both

  // Weights that a decoded token without drafts reads.
  int64_t pass_weight_bytes() const;
};
ModelSizes model_sizes(const ModelConfig& config, const TensorSet& tensors);

// ---- the model ----

// All of them run between backend.begin(step) and backend.end().

// Runs the main layers over the step's rows and leaves t.hidden[1 + i] = model.norm of row i, i >=
// hidden_first.
void forward(const Model& model, const Step& step, std::span<const LayerState> states,
             const Scratch& scratch, Backend& backend);

// Runs the MTP layer over pairs (step.tokens[i], hidden[i]) at positions first_position + i;
// `hidden` [rows, hidden] are final-normed rows. The token is the one AFTER the hidden's position.
// Returns the layer's own final-normed rows, a view into scratch that lives until the next block.
Rows forward_mtp(const Model& model, const Step& step, const Rows& hidden, const LayerState& state,
                 const Scratch& scratch, Backend& backend);

// Leaves in the MTP layer's cache what forward_mtp would, without computing the rows themselves:
// latents of a single layer depend on its inputs alone.
void extend_mtp(const Model& model, const Step& step, const Rows& hidden, const LayerState& state,
                const Scratch& scratch, Backend& backend);

}  // namespace spk
