#include "engine/proof.h"

#include "base/error.h"
#include "base/types.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

namespace spk {
namespace {

constexpr int64_t kHeadRows = 8;
// Three pairs, so that the draft layer's attention has something to choose from.
constexpr int64_t kPairs = 3;

// Bounds. fp32 sums against double: 1e-6 typically. A format's rounding, as a relative error of a
// whole row of sums: E4M3 2.6e-2, MXFP4 about 0.12, BF16 2e-3; int8 activations 1.4 to 2.4e-2 for
// experts. Eight numbers scatter around that, hence twice to three times.
constexpr double kExact = 1e-4;
constexpr double kInt8Experts = 5e-2;
constexpr double kDraftLayer = 1e-1;  // with int8 experts: the error of one layer's whole block

double head_bound(Format format, Format stored) {
  if (format == stored) return kExact;
  switch (format) {
    case Format::kF32:
      return kExact;
    case Format::kBf16:
      return 1e-2;
    case Format::kFp8:
    case Format::kFp8Row:
      return 6e-2;
    case Format::kMxfp4:
    case Format::kInt4:
      return 0.3;
  }
  return kExact;
}

double relative(const std::vector<double>& truth, const std::vector<double>& found) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    difference += (truth[i] - found[i]) * (truth[i] - found[i]);
    size += truth[i] * truth[i];
  }
  return std::sqrt(difference / std::max(size, 1e-60));
}

std::vector<double> normal_row(int64_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  std::vector<double> row(static_cast<size_t>(n));
  for (double& x : row) x = normal(generator);
  return row;
}

Rows new_rows(Backend& backend, int64_t rows, int64_t cols) {
  return {backend.alloc(static_cast<size_t>(rows * cols) * backend.real_bytes(), "proof"), 0, rows,
          cols, cols};
}

Ints new_ids(Backend& backend, const std::vector<int32_t>& ids, int64_t cols) {
  const auto rows = static_cast<int64_t>(ids.size()) / cols;
  const Ints to{backend.alloc(ids.size() * sizeof(int32_t), "proof"), 0, rows, cols, cols};
  backend.write(ids.data(), to);
  return to;
}

std::vector<double> read_rows(Backend& backend, const Rows& rows) {
  std::vector<double> out(static_cast<size_t>(rows.rows * rows.cols));
  backend.read(rows, out.data());
  return out;
}

class Prover {
 public:
  explicit Prover(const ProofSubject& s)
      : s_(s), config_(s.model.config), truth_(make_reference_backend({})) {
    truth_->prepare(config_.shape);
    for (int64_t l = 0; l < config_.layers; ++l)
      if (config_.is_moe(l)) moe_layers_.push_back(l);
    if (moe_layers_.size() > 2) moe_layers_ = {moe_layers_.front(), moe_layers_.back()};
    expert_ = config_.shape.experts / 2;
    // Of the experts only the one that is asked for; the embedding rows come one by one.
    part_ = load_model(config_, s.tensors, *truth_, {}, nullptr, [&](const BoundTensor& t) {
      if (t.expert >= 0 && t.expert != expert_) return false;
      if (t.layer == config_.layers) return true;
      return std::count(moe_layers_.begin(), moe_layers_.end(), t.layer) > 0 &&
             (t.component == Component::kRouted || t.component == Component::kShared);
    });
  }

  std::vector<Proof> run() {
    head_tensor_ = &s_.tensors.at("lm_head.weight").tensor;
    const Rows hidden = new_rows(s_.backend, 1, config_.shape.hidden);
    s_.backend.write(normal_row(config_.shape.hidden, 1).data(), hidden);
    prove_head("lm-head", s_.model.head, s_.session.logits_of(hidden), hidden);
    for (int64_t layer : moe_layers_) prove_experts(layer);
    if (s_.model.mtp && s_.session.can_draft() && s_.session.context() > kPairs) prove_drafts();
    s_.session.reset();
    return std::move(proofs_);
  }

 private:
  void add(std::string name, std::string detail, double error, double bound) {
    proofs_.push_back({std::move(name), std::move(detail), error, bound});
  }

  // Eight of the head's own rows against the stored ones.
  void prove_head(const char* name, const LmHead& head, std::span<const float> logits,
                  const Rows& hidden) {
    const std::vector<double> x = read_rows(s_.backend, hidden);
    std::vector<float> row(x.size());
    std::vector<double> expected, found;
    for (int64_t i = 0; i < kHeadRows; ++i) {
      const int64_t at = i * (head.rows() - 1) / (kHeadRows - 1);
      const int64_t id = head.ids().empty() ? at : head.ids()[static_cast<size_t>(at)];
      dequantise_row(*head_tensor_, id, row.data());
      double sum = 0;
      for (size_t c = 0; c < x.size(); ++c) sum += x[c] * static_cast<double>(row[c]);
      expected.push_back(sum);
      found.push_back(static_cast<double>(logits[static_cast<size_t>(id)]));
    }
    add(name, std::string(format_name(head.format())), relative(expected, found),
        head_bound(head.format(), head_tensor_->format));
  }

  std::vector<double> run_experts(Backend& b, const Moe& moe, const std::vector<double>& input) {
    const ModelShape& s = config_.shape;
    const Rows h = new_rows(b, 1, s.hidden), o = new_rows(b, 1, s.hidden),
               weights = new_rows(b, 1, s.top_k);
    const Ints ids = new_ids(b, std::vector<int32_t>(static_cast<size_t>(s.top_k), id()), s.top_k);
    b.write(input.data(), h);
    b.write(std::vector<double>(static_cast<size_t>(s.top_k), 1.0 / static_cast<double>(s.top_k))
                .data(),
            weights);
    Step step;
    step.rows = 1;
    b.begin(step);
    b.experts(h, moe, ids, weights, o);
    b.end();
    return read_rows(b, o);
  }

  void prove_experts(int64_t layer) {
    const auto l = static_cast<size_t>(layer);
    const std::vector<double> x = normal_row(config_.shape.hidden, 2);
    const Moe& moe = s_.model.layers[l].moe;
    const auto expected = run_experts(*truth_, part_.layers[l].moe, x);
    const auto found = run_experts(s_.backend, moe, x);
    const Weight& gate = moe.experts[static_cast<size_t>(expert_)].gate;
    add(cat("experts of layer ", layer), s_.backend.expert_kernel(gate), relative(expected, found),
        gate.packed ? kInt8Experts : kExact);
  }

  // Main layers as they are, every layer with the one expert; then the draft layer on both sides
  // from the same hidden rows, and its head from the same output.
  void prove_drafts() {
    const int64_t columns = (config_.moe_layers() + 1) * config_.shape.top_k;
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i <= kPairs; ++i)
      tokens.push_back(static_cast<int32_t>((97 + 7919 * i) % config_.shape.vocab));
    const std::vector<int32_t> routes(static_cast<size_t>((kPairs + 1) * columns), id());
    s_.session.reset();
    Advance step{tokens, StepKind::kPrefill, true, {}, {}};
    step.routes_in = new_ids(s_.backend, routes, columns);
    s_.session.advance(step);
    const auto hidden = read_rows(s_.backend, s_.session.hidden_rows(0, kPairs));
    const auto expected = expected_draft_row(tokens, hidden, routes, columns);
    s_.session.advance_mtp(step, [&](int64_t, const Rows& rows) {
      const Rows last = rows.slice_rows(kPairs - 1, 1);
      const Weight& gate = s_.model.mtp->layer.moe.experts[static_cast<size_t>(expert_)].gate;
      add("draft layer", s_.backend.expert_kernel(gate),
          relative(expected, read_rows(s_.backend, last)), gate.packed ? kDraftLayer : kExact);
      prove_head("draft head", drafting_head(s_.model), s_.session.draft_logits(last), last);
    });
  }

  std::vector<double> expected_draft_row(const std::vector<int32_t>& tokens,
                                         const std::vector<double>& hidden,
                                         const std::vector<int32_t>& routes, int64_t columns) {
    const ModelShape& s = config_.shape;
    // The embedding as a table of just these rows.
    const HostTensor& table = s_.tensors.at("model.word_embeddings.weight").tensor;
    std::vector<float> embedded(static_cast<size_t>(kPairs * s.hidden));
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < kPairs; ++i) {
      dequantise_row(table, tokens[static_cast<size_t>(i) + 1], embedded.data() + i * s.hidden);
      ids.push_back(static_cast<int32_t>(i));
    }
    HostTensor rows = table;
    rows.format = Format::kF32;
    rows.rows = kPairs;
    rows.data = reinterpret_cast<const std::byte*>(embedded.data());
    rows.scales = nullptr;
    rows.scale_type = ScaleType::kNone;
    part_.embed = truth_->upload(rows);
    const Rows input = new_rows(*truth_, kPairs, s.hidden);
    truth_->write(hidden.data(), input);
    LayerState state;
    state.latent = new_rows(*truth_, kPairs, s.latent + s.rope);
    const Scratch scratch = make_scratch(s, true, kPairs, 1, *truth_);
    Step step;
    step.kind = StepKind::kPrefill;
    step.rows = kPairs;
    step.tokens = new_ids(*truth_, ids, 1);
    step.routes_in = new_ids(*truth_, routes, columns).slice_rows(0, kPairs);
    step.route_columns = config_.moe_layers() + 1;
    truth_->begin(step);
    const Rows out = forward_mtp(part_, step, input, state, scratch, *truth_);
    auto row = read_rows(*truth_, out.slice_rows(kPairs - 1, 1));
    truth_->end();
    return row;
  }

  int32_t id() const { return static_cast<int32_t>(expert_); }

  ProofSubject s_;
  const ModelConfig& config_;
  std::unique_ptr<Backend> truth_;
  Model part_;
  std::vector<int64_t> moe_layers_;  // the first and the last
  int64_t expert_ = 0;
  const HostTensor* head_tensor_ = nullptr;
  std::vector<Proof> proofs_;
};

std::string line(const Proof& p) {
  char numbers[64];
  std::snprintf(numbers, sizeof numbers, "error %.2g, at most %.2g", p.error, p.bound);
  return cat(p.name, " (", p.detail, "): ", numbers);
}

}  // namespace

std::vector<Proof> prove(const ProofSubject& subject) { return Prover(subject).run(); }

std::string proof_text(const std::vector<Proof>& proofs) {
  std::string out;
  for (const Proof& p : proofs)
    out += cat(out.empty() ? "" : "\n", line(p), p.passed() ? "" : "  FAILED");
  return out;
}

void check_proofs(const std::vector<Proof>& proofs) {
  std::string failed;
  for (const Proof& p : proofs)
    if (!p.passed()) failed += cat(failed.empty() ? "" : "; ", line(p));
  if (!failed.empty())
    fail_resource("known-answer test against the reference failed, nothing is generated: ", failed);
}

}  // namespace spk
