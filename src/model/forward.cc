// The model, once: every block of the family as calls of verbs. docs/MODEL.md has the formulas;
// reference.cc says what a verb means. A block that the plan calls fused is handed over whole.
#include "model/model.h"

namespace spk {
namespace {

struct Run {
  const Model& model;
  const Step& step;
  Backend& b;
  const ModelShape& s;

  bool fused(Block block) const {
    return step.kind != StepKind::kPrefill && step.rows <= kMaxVerify &&
           model.plan.fused[static_cast<int>(block)];
  }

  // t.h -> t.o
  void kda(const Kda& w, const LayerState& state, const Scratch& t) const {
    const int64_t n = s.heads * s.head_dim;
    const Rows q = t.q.slice_cols(0, n), k = t.k.slice_cols(0, n), v = t.v.slice_cols(0, n);
    const Rows o = t.mix.slice_cols(0, n);
    const Weight* in[] = {&w.q, &w.k, &w.v, &w.f, &w.g, &w.b};
    const Rows out[] = {q, k, v, t.f, t.g, t.beta};
    b.matmul_many(t.h, in, out);
    b.conv_step(q, k, v, w, state);
    b.kda_gate(t.f, t.beta, w);
    b.kda_mix(q, k, v, t.f, t.beta, state, o);
    b.norm_gate(o, t.g, w.o_norm);
    b.matmul(o, w.o, t.o);
  }

  // t.h -> t.o
  void mla(const Mla& w, const LayerState& state, const Scratch& t) const {
    const Rows q = t.q.slice_cols(0, s.heads * (s.nope + s.rope));
    const Rows o = t.mix.slice_cols(0, s.heads * s.v_dim);
    const Weight* in[] = {&w.kv_a, &w.g, s.q_lora ? &w.q_a : &w.q};
    const Rows out[] = {t.kv, t.beta, s.q_lora ? t.q_a : q};
    b.matmul_many(t.h, in, out);
    if (s.q_lora) {
      b.rms_norm(t.q_a, w.q_a_norm, t.q_a);
      b.matmul(t.q_a, w.q_b, q);
    }
    b.rope(q);
    b.latent_append(t.kv, w.kv_a_norm, state);
    b.latent_absorb(q, w.kv_b, t.q_latent);
    b.latent_attend(t.q_latent, q, state, t.z);
    b.latent_expand(t.z, w.kv_b, o);
    b.head_gate(o, t.beta);
    b.matmul(o, w.dense, t.o);
  }

  // t.h -> t.o
  void moe(const Moe& w, const Scratch& t) const {
    const Ints forced = routes(step.routes_in, w);
    const Ints kept = routes(step.routes_out, w);
    const Ints ids = kept ? kept : t.route_id;
    b.route(t.h, w, forced, ids, t.route_weight);
    b.experts(t.h, w, ids, t.route_weight, t.o);
  }

  // t.h -> t.o
  void ffn(const Ffn& w, const Scratch& t) const {
    const Rows gate = t.gate.slice_cols(0, w.gate.rows), up = t.up.slice_cols(0, w.gate.rows);
    const Weight* in[] = {&w.gate, &w.up};
    const Rows out[] = {gate, up};
    b.matmul_many(t.h, in, out);
    b.swiglu(gate, up, 0);
    b.matmul(gate, w.down, t.o);
  }

  // Tokens and the hidden rows before them -> t.x, the draft layer's input
  void join_pairs(const MtpLayer& mtp, const Rows& hidden, const Scratch& t) const {
    b.embed(model.embed, step.tokens, t.h);
    b.rms_norm(t.h, mtp.enorm, t.o);
    b.rms_norm(hidden, mtp.hnorm, t.h);
    b.join(t.o, t.h, t.joined);  // the embedding half first
    b.matmul(t.joined, mtp.eh_proj, t.x);
  }

  // t.x += mixer(norm(t.x)), t.x += ffn(norm(t.x))
  void layer(const Layer& l, const LayerState& state, const Scratch& t) const {
    step.check_abort();
    b.rms_norm(t.x, l.attn_norm, t.h);
    const Block mixer = l.is_mla ? Block::kMla : Block::kKda;
    if (fused(mixer)) {
      b.fused(mixer, l, state, t);
    } else {
      l.is_mla ? mla(l.mla, state, t) : kda(l.kda, state, t);
    }
    step.check_abort();
    b.add_rms_norm(t.x, t.o, l.ffn_norm, t.h);
    const Block feed = l.is_moe ? Block::kMoe : Block::kFfn;
    if (fused(feed)) {
      b.fused(feed, l, state, t);
    } else {
      l.is_moe ? moe(l.moe, t) : ffn(l.ffn, t);
    }
    b.add(t.x, t.o);
  }

 private:
  // This layer's columns of a route table.
  Ints routes(const Ints& table, const Moe& w) const {
    return table ? table.slice_cols(w.index * s.top_k, s.top_k) : Ints{};
  }
};

}  // namespace

void forward(const Model& model, const Step& step, std::span<const LayerState> states,
             const Scratch& scratch, Backend& backend) {
  const Run run{model, step, backend, model.config.shape};
  const Scratch t = scratch.first(step.rows);
  backend.embed(model.embed, step.tokens, t.x);
  for (size_t i = 0; i < model.layers.size(); ++i) run.layer(model.layers[i], states[i], t);
  const int64_t first = step.hidden_first;
  if (const int64_t n = step.rows - first; n > 0)
    backend.rms_norm(t.x.slice_rows(first, n), model.norm, t.hidden.slice_rows(1 + first, n));
}

Rows forward_mtp(const Model& model, const Step& step, const Rows& hidden, const LayerState& state,
                 const Scratch& scratch, Backend& backend) {
  const MtpLayer& mtp = *model.mtp;
  const Run run{model, step, backend, model.config.shape};
  const Scratch t = scratch.first(step.rows);
  run.join_pairs(mtp, hidden, t);
  run.layer(mtp.layer, state, t);
  backend.rms_norm(t.x, mtp.final_norm, t.h);
  return t.h;
}

void extend_mtp(const Model& model, const Step& step, const Rows& hidden, const LayerState& state,
                const Scratch& scratch, Backend& backend) {
  const Layer& layer = model.mtp->layer;
  const Run run{model, step, backend, model.config.shape};
  const Scratch t = scratch.first(step.rows);
  step.check_abort();
  run.join_pairs(*model.mtp, hidden, t);
  backend.rms_norm(t.x, layer.attn_norm, t.h);
  backend.matmul(t.h, layer.mla.kv_a, t.kv);
  backend.latent_append(t.kv, layer.mla.kv_a_norm, state);
}

}  // namespace spk
