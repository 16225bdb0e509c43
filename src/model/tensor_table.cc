#include "model/tensor_table.h"

#include "base/error.h"

namespace spk {
namespace {

using S = ModelShape;

// Shapes as expressions of the config, by the names of docs/MODEL.md.
int64_t one(const S&) { return 1; }
int64_t hidden(const S& s) { return s.hidden; }
int64_t hidden2(const S& s) { return 2 * s.hidden; }
int64_t vocab(const S& s) { return s.vocab; }
int64_t heads(const S& s) { return s.heads; }
int64_t head_dim(const S& s) { return s.head_dim; }
int64_t kda_width(const S& s) { return s.heads * s.head_dim; }
int64_t taps(const S& s) { return s.conv_kernel; }
int64_t q_lora(const S& s) { return s.q_lora; }
int64_t q_width(const S& s) { return s.heads * (s.nope + s.rope); }
int64_t latent(const S& s) { return s.latent; }
int64_t kv_a_width(const S& s) { return s.latent + s.rope; }
int64_t kv_b_width(const S& s) { return s.heads * (s.nope + s.v_dim); }
int64_t v_width(const S& s) { return s.heads * s.v_dim; }
int64_t dense(const S& s) { return s.dense; }
int64_t experts(const S& s) { return s.experts; }
int64_t expert_dim(const S& s) { return s.expert_dim; }
int64_t shared_dim(const S& s) { return s.shared_dim; }

template <auto Field>
Weight& global(const Slot& s) {
  return s.model->*Field;
}
template <auto Field>
Weight& mtp(const Slot& s) {
  return s.mtp->*Field;
}
template <auto Field>
Weight& layer(const Slot& s) {
  return s.layer->*Field;
}
template <auto Part, auto Field>
Weight& part(const Slot& s) {
  return (s.layer->*Part).*Field;
}
template <auto Field>
Weight& shared(const Slot& s) {
  return s.layer->moe.shared.*Field;
}
template <auto Field>
Weight& expert(const Slot& s) {
  return s.layer->moe.experts[static_cast<size_t>(s.expert)].*Field;
}

constexpr Format kF32 = Format::kF32, kBf16 = Format::kBf16, kFp8 = Format::kFp8,
                 kMxfp4 = Format::kMxfp4;
constexpr Component kEmbed = Component::kEmbed, kHead = Component::kHead, kNorm = Component::kNorm,
                    kKda = Component::kKda, kMla = Component::kMla, kDense = Component::kDense,
                    kRouter = Component::kRouter, kRouted = Component::kRouted,
                    kShared = Component::kShared, kMtp = Component::kMtp;
constexpr Stored kMatrix = Stored::kMatrix, kVector = Stored::kVector, kFlat = Stored::kFlat,
                 kConv = Stored::kConv;

// attention.g_proj is two tensors of one name: the output gate of KDA [H*D, hidden] and the head
// gate of MLA [H, hidden].
// clang-format off
constexpr TensorEntry kTable[] = {
    {"model.word_embeddings.weight", "", Where::kGlobal, kEmbed, kMatrix, kPlain, kBf16, vocab, hidden, global<&Model::embed>},
    {"model.norm.weight", "", Where::kGlobal, kNorm, kVector, kPlain, kBf16, one, hidden, global<&Model::norm>},
    {"lm_head.weight", "", Where::kGlobal, kHead, kMatrix, kPlainFp8, kBf16, vocab, hidden, nullptr},  // load_model makes an LmHead of it

    {"enorm.weight", "", Where::kMtp, kMtp, kVector, kPlain, kBf16, one, hidden, mtp<&MtpLayer::enorm>},
    {"hnorm.weight", "", Where::kMtp, kMtp, kVector, kPlain, kBf16, one, hidden, mtp<&MtpLayer::hnorm>},
    {"eh_proj.weight", "", Where::kMtp, kMtp, kMatrix, kAny, kFp8, hidden, hidden2, mtp<&MtpLayer::eh_proj>},
    {"final_layernorm.weight", "", Where::kMtp, kMtp, kVector, kPlain, kBf16, one, hidden, mtp<&MtpLayer::final_norm>},

    {"input_layernorm.weight", "", Where::kEveryLayer, kNorm, kVector, kPlain, kBf16, one, hidden, layer<&Layer::attn_norm>},
    {"post_attention_layernorm.weight", "", Where::kEveryLayer, kNorm, kVector, kPlain, kBf16, one, hidden, layer<&Layer::ffn_norm>},

    {"attention.q_proj.weight", "", Where::kKda, kKda, kMatrix, kAny, kFp8, kda_width, hidden, part<&Layer::kda, &Kda::q>},
    {"attention.k_proj.weight", "", Where::kKda, kKda, kMatrix, kAny, kFp8, kda_width, hidden, part<&Layer::kda, &Kda::k>},
    {"attention.v_proj.weight", "", Where::kKda, kKda, kMatrix, kAny, kFp8, kda_width, hidden, part<&Layer::kda, &Kda::v>},
    {"attention.f_proj.weight", "", Where::kKda, kKda, kMatrix, kAny, kFp8, kda_width, hidden, part<&Layer::kda, &Kda::f>},
    {"attention.g_proj.weight", "", Where::kKda, kKda, kMatrix, kAny, kFp8, kda_width, hidden, part<&Layer::kda, &Kda::g>},
    {"attention.b_proj.weight", "", Where::kKda, kKda, kMatrix, kAny, kBf16, heads, hidden, part<&Layer::kda, &Kda::b>},
    {"attention.q_conv1d.weight", "", Where::kKda, kKda, kConv, kPlain, kBf16, kda_width, taps, part<&Layer::kda, &Kda::conv_q>},
    {"attention.k_conv1d.weight", "", Where::kKda, kKda, kConv, kPlain, kBf16, kda_width, taps, part<&Layer::kda, &Kda::conv_k>},
    {"attention.v_conv1d.weight", "", Where::kKda, kKda, kConv, kPlain, kBf16, kda_width, taps, part<&Layer::kda, &Kda::conv_v>},
    {"attention.A_log", "", Where::kKda, kKda, kFlat, kPlain, kF32, one, heads, part<&Layer::kda, &Kda::a_log>},
    {"attention.dt_bias", "", Where::kKda, kKda, kFlat, kPlain, kF32, one, kda_width, part<&Layer::kda, &Kda::dt_bias>},
    {"attention.o_norm.weight", "", Where::kKda, kKda, kVector, kPlain, kBf16, one, head_dim, part<&Layer::kda, &Kda::o_norm>},
    {"attention.o_proj.weight", "", Where::kKda, kKda, kMatrix, kAny, kFp8, hidden, kda_width, part<&Layer::kda, &Kda::o>},

    {"attention.q_proj.weight", "", Where::kMlaQ, kMla, kMatrix, kAny, kFp8, q_width, hidden, part<&Layer::mla, &Mla::q>},
    {"attention.q_a_proj.weight", "", Where::kMlaQLora, kMla, kMatrix, kAny, kFp8, q_lora, hidden, part<&Layer::mla, &Mla::q_a>},
    {"attention.q_a_layernorm.weight", "", Where::kMlaQLora, kMla, kVector, kPlain, kBf16, one, q_lora, part<&Layer::mla, &Mla::q_a_norm>},
    {"attention.q_b_proj.weight", "", Where::kMlaQLora, kMla, kMatrix, kAny, kFp8, q_width, q_lora, part<&Layer::mla, &Mla::q_b>},
    {"attention.kv_a_proj_with_mqa.weight", "", Where::kMla, kMla, kMatrix, kAny, kFp8, kv_a_width, hidden, part<&Layer::mla, &Mla::kv_a>},
    {"attention.kv_a_layernorm.weight", "", Where::kMla, kMla, kVector, kPlain, kBf16, one, latent, part<&Layer::mla, &Mla::kv_a_norm>},
    {"attention.kv_b_proj.weight", "", Where::kMla, kMla, kMatrix, kAny, kFp8, kv_b_width, latent, part<&Layer::mla, &Mla::kv_b>},
    {"attention.g_proj.weight", "", Where::kMla, kMla, kMatrix, kAny, kBf16, heads, hidden, part<&Layer::mla, &Mla::g>},
    {"attention.dense.weight", "", Where::kMla, kMla, kMatrix, kAny, kFp8, hidden, v_width, part<&Layer::mla, &Mla::dense>},

    {"mlp.gate_proj.weight", "", Where::kDense, kDense, kMatrix, kAny, kFp8, dense, hidden, part<&Layer::ffn, &Ffn::gate>},
    {"mlp.up_proj.weight", "", Where::kDense, kDense, kMatrix, kAny, kFp8, dense, hidden, part<&Layer::ffn, &Ffn::up>},
    {"mlp.down_proj.weight", "", Where::kDense, kDense, kMatrix, kAny, kFp8, hidden, dense, part<&Layer::ffn, &Ffn::down>},

    {"mlp.gate.weight", "", Where::kMoe, kRouter, kMatrix, kPlain, kBf16, experts, hidden, part<&Layer::moe, &Moe::router>},
    {"mlp.gate.expert_bias", "mlp.gate.e_score_correction_bias", Where::kMoe, kRouter, kVector, kPlain, kF32, one, experts, part<&Layer::moe, &Moe::bias>},
    {"mlp.experts.{e}.gate_proj.weight", "", Where::kExpert, kRouted, kMatrix, kAny, kMxfp4, expert_dim, hidden, expert<&Ffn::gate>},
    {"mlp.experts.{e}.up_proj.weight", "", Where::kExpert, kRouted, kMatrix, kAny, kMxfp4, expert_dim, hidden, expert<&Ffn::up>},
    {"mlp.experts.{e}.down_proj.weight", "", Where::kExpert, kRouted, kMatrix, kAny, kMxfp4, hidden, expert_dim, expert<&Ffn::down>},
    {"mlp.shared_experts.gate_proj.weight", "", Where::kMoe, kShared, kMatrix, kAny, kFp8, shared_dim, hidden, shared<&Ffn::gate>},
    {"mlp.shared_experts.up_proj.weight", "", Where::kMoe, kShared, kMatrix, kAny, kFp8, shared_dim, hidden, shared<&Ffn::up>},
    {"mlp.shared_experts.down_proj.weight", "", Where::kMoe, kShared, kMatrix, kAny, kFp8, hidden, shared_dim, shared<&Ffn::down>},
};
// clang-format on

bool holds(Where where, const ModelConfig& c, bool is_mla, bool is_moe, bool is_mtp) {
  switch (where) {
    case Where::kGlobal:
      return false;
    case Where::kMtp:
      return is_mtp;
    case Where::kEveryLayer:
      return true;
    case Where::kKda:
      return !is_mla;
    case Where::kMla:
      return is_mla;
    case Where::kMlaQ:
      return is_mla && c.shape.q_lora == 0;
    case Where::kMlaQLora:
      return is_mla && c.shape.q_lora != 0;
    case Where::kDense:
      return !is_moe;
    case Where::kMoe:
    case Where::kExpert:
      return is_moe;
  }
  return false;
}

}  // namespace

std::span<const TensorEntry> tensor_table() { return kTable; }

void for_each_expected(const ModelConfig& config, bool with_mtp,
                       const std::function<void(const Expected&)>& visit) {
  const auto emit = [&](const TensorEntry& entry, const std::string& prefix, int64_t layer,
                        int64_t e) {
    const auto spell = [&](std::string_view pattern) {
      std::string name = prefix + std::string(pattern);
      const size_t at = name.find("{e}");
      if (at != std::string::npos) name.replace(at, 3, std::to_string(e));
      return name;
    };
    Expected x;
    x.entry = &entry;
    x.name = spell(entry.pattern);
    if (!entry.alias.empty()) x.alias = spell(entry.alias);
    x.component = layer == config.layers ? Component::kMtp : entry.component;
    x.layer = layer;
    x.expert = e;
    x.rows = entry.rows(config.shape);
    x.cols = entry.cols(config.shape);
    visit(x);
  };
  for (const TensorEntry& entry : kTable)
    if (entry.where == Where::kGlobal) emit(entry, "", -1, -1);
  for (int64_t l = 0; l < config.layers + (with_mtp ? 1 : 0); ++l) {
    const bool is_mtp = l == config.layers;
    const bool is_mla = is_mtp || config.is_mla[static_cast<size_t>(l)];
    const bool is_moe = is_mtp || config.is_moe(l);
    const std::string prefix = cat("model.layers.", l, ".");
    for (const TensorEntry& entry : kTable) {
      if (!holds(entry.where, config, is_mla, is_moe, is_mtp)) continue;
      const int64_t count = entry.where == Where::kExpert ? config.shape.experts : 1;
      for (int64_t e = 0; e < count; ++e)
        emit(entry, prefix, l, entry.where == Where::kExpert ? e : -1);
    }
  }
}

}  // namespace spk
