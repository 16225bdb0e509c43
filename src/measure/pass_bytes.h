// The bytes that a pass over the model must move, by component, from the tensor table alone.
//
// The same rule as the back ends' counters: every matrix once a pass whatever the number of rows,
// routed experts by how many distinct ones the rows chose, the recurrent state read and written,
// the latents of all positions read. Vectors (norms, biases, convolution taps), below 0.1 %, are
// left out on both sides. A test holds this against what `bench` counts.
#pragma once

#include "backend/lm_head.h"
#include "model/model.h"

#include <array>
#include <cstdint>
#include <string_view>

namespace spk {

enum class Traffic : uint8_t {
  kKda,     // projections of KDA layers
  kMla,     // projections of MLA layers
  kRouted,  // routed experts
  kShared,  // shared expert
  kRouter,
  kDense,  // feed-forward of the dense layers
  kHead,
  kEmbed,    // rows of the embeddings
  kJoin,     // eh_proj of the draft layer
  kState,    // recurrent state and convolution tails, read and written
  kLatents,  // of MLA layers: all positions read, the pass's rows appended
};
inline constexpr int kTraffics = 11;
std::string_view traffic_name(Traffic traffic);

struct PassBytes {
  std::array<double, kTraffics> parts{};
  double& operator[](Traffic t) { return parts[static_cast<size_t>(t)]; }
  double operator[](Traffic t) const { return parts[static_cast<size_t>(t)]; }
  double total() const;
};

// One pass. Distinct experts may be a mean, hence a real number.
struct Pass {
  int64_t rows = 1;
  int64_t position = 0;  // of the first row
  double distinct = 0;   // routed experts of a layer; 0: top_k
};

// Sizes of one model, counted once.
class ByteCount {
 public:
  // `head`: format of the LM head. `draft_rows` 0: drafts use the head itself, else a head of so
  // many rows in MXFP4. `real_bytes`: of a number in latents, and `state_bytes` of one in the
  // recurrent state.
  struct Choices {
    HeadFormat head = HeadFormat::kStored;
    int64_t draft_rows = 0;
    int64_t latent_bytes = 4;
    int64_t state_bytes = 4;
  };
  ByteCount(const ModelConfig& config, const TensorSet& tensors, const Choices& choices);

  // A decode or verify pass of the main layers, the head over all its rows included.
  PassBytes target(const Pass& pass) const;
  // A pass of the draft layer and, after it, of the draft head.
  PassBytes draft(const Pass& pass) const;

  // Distinct experts of a layer in a pass of `rows` rows that read `weight_bytes` of weights.
  double distinct_of(double weight_bytes, double rows) const;

  int64_t expert_bytes() const { return expert_; }  // of one routed expert of a main layer
  int64_t moe_layers() const { return moe_layers_; }
  int64_t top_k() const { return top_k_; }
  bool has_draft_layer() const { return has_draft_layer_; }

 private:
  PassBytes fixed_, draft_fixed_;  // what no property of a pass changes
  int64_t expert_ = 0, draft_expert_ = 0;
  int64_t embed_row_ = 0;
  int64_t moe_layers_ = 0, mla_layers_ = 0;
  int64_t latent_row_ = 0;  // bytes of one position in one MLA layer
  int64_t top_k_ = 0;
  bool has_draft_layer_ = false;
};

// Bytes of a head of `rows` x `cols` made from `stored`.
int64_t head_bytes(const HostTensor& stored, HeadFormat format, int64_t rows);

// Expected distinct experts of `rows` rows that choose `top_k` of `experts`. `overlap`: the share
// of the growth under independent routing that really happens, 1 for random tokens, about 0.6 in
// text.
double distinct_experts(int64_t experts, int64_t top_k, int64_t rows, double overlap);

}  // namespace spk
