#include "measure/pass_bytes.h"

#include "backend/taps.h"

#include <cmath>
#include <numeric>

namespace spk {
namespace {

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// What a tensor is read for; the draft layer's parts have no component of their own.
Traffic traffic_of(const BoundTensor& bound) {
  switch (bound.component) {
    case Component::kKda:
      return Traffic::kKda;
    case Component::kMla:
      return Traffic::kMla;
    case Component::kRouted:
      return Traffic::kRouted;
    case Component::kShared:
      return Traffic::kShared;
    case Component::kRouter:
      return Traffic::kRouter;
    case Component::kDense:
      return Traffic::kDense;
    case Component::kHead:
      return Traffic::kHead;
    case Component::kEmbed:
      return Traffic::kEmbed;
    case Component::kNorm:
    case Component::kMtp:
      break;
  }
  const std::string_view name = bound.name;
  if (ends_with(name, "eh_proj.weight")) return Traffic::kJoin;
  if (name.find("mlp.experts.") != std::string_view::npos) return Traffic::kRouted;
  if (name.find("mlp.shared_experts.") != std::string_view::npos) return Traffic::kShared;
  if (name.find("mlp.gate.") != std::string_view::npos) return Traffic::kRouter;
  return Traffic::kMla;
}

// Norms, biases, decay rates and convolution taps: small, and not counted by the verbs either.
bool is_vector(const BoundTensor& bound) {
  return bound.tensor.rows == 1 || is_conv_taps(bound.name);
}

}  // namespace

std::string_view traffic_name(Traffic traffic) {
  static constexpr std::string_view kNames[kTraffics] = {
      "KDA projections", "MLA projections", "routed experts", "shared expert",
      "router",          "dense FFN",       "LM head",        "embeddings",
      "draft join",      "KDA state",       "MLA latents"};
  return kNames[static_cast<size_t>(traffic)];
}

double PassBytes::total() const { return std::accumulate(parts.begin(), parts.end(), 0.0); }

int64_t head_bytes(const HostTensor& stored, HeadFormat format, int64_t rows) {
  HostTensor made = stored;
  made.rows = rows;
  const auto set = [&](Format f, ScaleType scale) {
    made.format = f;
    made.scale_type = scale;
  };
  switch (format) {
    case HeadFormat::kStored:
      break;
    case HeadFormat::kFp32:
      set(Format::kF32, ScaleType::kNone);
      break;
    case HeadFormat::kBf16:
      set(Format::kBf16, ScaleType::kNone);
      break;
    case HeadFormat::kFp8:
      set(Format::kFp8Row, ScaleType::kF32);
      break;
    case HeadFormat::kMxfp4:
      set(Format::kMxfp4, ScaleType::kE8m0);
      break;
  }
  return made.bytes();
}

double distinct_experts(int64_t experts, int64_t top_k, int64_t rows, double overlap) {
  if (experts == 0) return 0;
  const auto all = static_cast<double>(experts), k = static_cast<double>(top_k);
  const double independent = all * (1 - std::pow(1 - k / all, static_cast<double>(rows)));
  return k + overlap * (independent - k);
}

ByteCount::ByteCount(const ModelConfig& config, const TensorSet& tensors, const Choices& choices) {
  const ModelShape& s = config.shape;
  top_k_ = s.top_k;
  has_draft_layer_ = tensors.has_mtp;
  moe_layers_ = config.moe_layers();
  for (const bool mla : config.is_mla) mla_layers_ += mla ? 1 : 0;
  latent_row_ = (s.latent + s.rope) * choices.latent_bytes;
  const int64_t kda_layers = config.layers - mla_layers_;
  const int64_t matrix = s.heads * s.head_dim * s.head_dim;
  const int64_t tails = 3 * (s.conv_kernel - 1) * s.heads * s.head_dim;
  fixed_[Traffic::kState] =
      static_cast<double>(2 * kda_layers * (matrix * choices.state_bytes + tails * 4));
  for (const BoundTensor& bound : tensors.tensors) {
    if (is_vector(bound)) continue;
    const Traffic traffic = traffic_of(bound);
    const int64_t bytes = bound.tensor.bytes();
    const bool draft = bound.component == Component::kMtp;
    if (traffic == Traffic::kEmbed) {
      embed_row_ = bytes / bound.tensor.rows;
    } else if (traffic == Traffic::kHead) {
      const int64_t head = head_bytes(bound.tensor, choices.head, bound.tensor.rows);
      fixed_[Traffic::kHead] = static_cast<double>(head);
      const HeadFormat small =
          bound.tensor.cols % kGroup == 0 ? HeadFormat::kMxfp4 : HeadFormat::kFp8;
      draft_fixed_[Traffic::kHead] = static_cast<double>(
          choices.draft_rows > 0 ? head_bytes(bound.tensor, small, choices.draft_rows) : head);
    } else if (traffic == Traffic::kRouted) {
      // All experts of a layer have one size; a layer's first stands for them.
      if (bound.expert == 0 && draft) draft_expert_ += bytes;
      if (bound.expert == 0 && bound.layer == config.dense_layers) expert_ += bytes;
    } else {
      (draft ? draft_fixed_ : fixed_)[traffic] += static_cast<double>(bytes);
    }
  }
}

PassBytes ByteCount::target(const Pass& pass) const {
  PassBytes bytes = fixed_;
  const double distinct = pass.distinct > 0 ? pass.distinct : static_cast<double>(top_k_);
  bytes[Traffic::kRouted] = distinct * static_cast<double>(moe_layers_ * expert_);
  bytes[Traffic::kEmbed] = static_cast<double>(pass.rows * embed_row_);
  bytes[Traffic::kLatents] =
      static_cast<double>(mla_layers_ * latent_row_ * (pass.position + 2 * pass.rows));
  return bytes;
}

double ByteCount::distinct_of(double weight_bytes, double rows) const {
  if (moe_layers_ == 0 || expert_ == 0) return 0;
  const double fixed = fixed_.total() - fixed_[Traffic::kState];
  const double experts = weight_bytes - fixed - rows * static_cast<double>(embed_row_);
  return experts / static_cast<double>(moe_layers_ * expert_);
}

PassBytes ByteCount::draft(const Pass& pass) const {
  PassBytes bytes = draft_fixed_;
  const double distinct = pass.distinct > 0 ? pass.distinct : static_cast<double>(top_k_);
  bytes[Traffic::kRouted] = distinct * static_cast<double>(draft_expert_);
  bytes[Traffic::kEmbed] = static_cast<double>(pass.rows * embed_row_);
  bytes[Traffic::kLatents] = static_cast<double>(latent_row_ * (pass.position + 2 * pass.rows));
  return bytes;
}

}  // namespace spk
