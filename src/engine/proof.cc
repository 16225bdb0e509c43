#include "engine/proof.h"

#include "base/error.h"
#include "base/types.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <random>
#include <set>

namespace spk {
namespace {

constexpr int64_t kHeadRows = 8;
// Three pairs, so that the draft layer's attention has something to choose from.
constexpr int64_t kPairs = 3;

// Bounds. fp32 sums against double: 1e-6 typically. A format's rounding, as an error of sums
// relative to the root of their products' squares: E4M3 2.6e-2, MXFP4 about 0.12, BF16 2e-3; int8
// activations 1.4 to 2.4e-2 of an expert's whole row. Eight numbers scatter around that, hence
// twice to three times.
constexpr double kExact = 1e-4;
constexpr double kBf16Activations = 1e-2;  // rounding to 8 bits, 1.5e-3 typically
constexpr double kInt8Experts = 5e-2;
constexpr double kDraftLayer = 1e-1;  // with int8 experts: the error of one layer's whole block

double head_bound(Format format, Format stored, bool fast) {
  if (format == stored) return fast ? kBf16Activations : kExact;
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

double root_of_ratio(double squares, double size) {
  return std::sqrt(squares / std::max(size, 1e-60));
}

double relative(const std::vector<double>& truth, const std::vector<double>& found) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    difference += (truth[i] - found[i]) * (truth[i] - found[i]);
    size += truth[i] * truth[i];
  }
  return root_of_ratio(difference, size);
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

// Ids of the head's rows that are compared: kHeadRows of those that it has.
std::vector<int32_t> sampled_ids(std::span<const int32_t> ids, int64_t vocab) {
  const int64_t rows = ids.empty() ? vocab : static_cast<int64_t>(ids.size());
  std::vector<int32_t> out;
  for (int64_t i = 0; i < kHeadRows; ++i) {
    const int64_t at = i * (rows - 1) / (kHeadRows - 1);
    out.push_back(ids.empty() ? static_cast<int32_t>(at) : ids[static_cast<size_t>(at)]);
  }
  return out;
}

struct StoredRows {
  std::vector<int32_t> ids;
  std::vector<float> values;  // [ids, cols]
};

StoredRows stored_rows(const HostTensor& tensor, std::vector<int32_t> ids) {
  StoredRows rows{std::move(ids), {}};
  rows.values.resize(rows.ids.size() * static_cast<size_t>(tensor.cols));
  for (size_t i = 0; i < rows.ids.size(); ++i)
    dequantise_row(tensor, rows.ids[i], rows.values.data() + i * static_cast<size_t>(tensor.cols));
  return rows;
}

}  // namespace

struct ProofTruth::Impl {
  ModelConfig config;
  std::unique_ptr<Backend> backend = make_reference_backend({});
  Model part;
  std::vector<int64_t> moe_layers;  // the first and the last
  int64_t expert = 0;
  Format head_format = Format::kF32;
  StoredRows head, draft_head, embedding;
  std::vector<int32_t> tokens;  // kPairs + 1
  bool drafts = false;
  std::deque<std::vector<std::byte>> copies;

  void keep(HostTensor& tensor, const TensorSource* source) {
    const auto copy = [&](const std::byte*& data, int64_t bytes) {
      if (data == nullptr) return;
      if (source != nullptr) source->recall(data, static_cast<size_t>(bytes));
      copies.emplace_back(data, data + bytes);
      data = copies.back().data();
    };
    copy(tensor.data, code_bytes(tensor.format, tensor.rows, tensor.cols));
    copy(tensor.scales,
         scale_count(tensor.format, tensor.rows, tensor.cols) * scale_bytes(tensor.scale_type));
  }
};

ProofTruth::ProofTruth(const ModelConfig& config, const TensorSet& tensors,
                       std::span<const int32_t> draft_rows, bool drafts)
    : impl_(std::make_unique<Impl>()) {
  Impl& t = *impl_;
  t.config = config;
  t.drafts = drafts && tensors.has_mtp;
  t.backend->prepare(config.shape);
  for (int64_t l = 0; l < config.layers; ++l)
    if (config.is_moe(l)) t.moe_layers.push_back(l);
  if (t.moe_layers.size() > 2) t.moe_layers = {t.moe_layers.front(), t.moe_layers.back()};
  t.expert = config.shape.experts / 2;
  // Of the experts only the one that is asked for.
  const auto wanted = [&](const BoundTensor& tensor) {
    if (tensor.expert >= 0 && tensor.expert != t.expert) return false;
    if (tensor.layer == config.layers) return t.drafts;
    return std::count(t.moe_layers.begin(), t.moe_layers.end(), tensor.layer) > 0 &&
           (tensor.component == Component::kRouted || tensor.component == Component::kShared);
  };
  // The reference reads a tensor where it lies, so it gets copies.
  TensorSet own;
  own.tensors = tensors.tensors;
  own.has_mtp = tensors.has_mtp;
  for (BoundTensor& tensor : own.tensors)
    if (wanted(tensor)) t.keep(tensor.tensor, tensors.source);
  t.part = load_model(config, own, *t.backend, {}, nullptr, wanted);
  const HostTensor& head = tensors.at("lm_head.weight").tensor;
  t.head_format = head.format;
  t.head = stored_rows(head, sampled_ids({}, head.rows));
  t.draft_head = stored_rows(head, sampled_ids(draft_rows, head.rows));
  for (int64_t i = 0; i <= kPairs; ++i)
    t.tokens.push_back(static_cast<int32_t>((97 + 7919 * i) % config.shape.vocab));
  // The embedding as a table of just the rows of the pairs' tokens.
  HostTensor table = tensors.at("model.word_embeddings.weight").tensor;
  t.embedding = stored_rows(table, {t.tokens.begin() + 1, t.tokens.end()});
  table.format = Format::kF32;
  table.rows = kPairs;
  table.data = reinterpret_cast<const std::byte*>(t.embedding.values.data());
  table.scales = nullptr;
  table.scale_type = ScaleType::kNone;
  t.part.embed = t.backend->upload(table);
}
ProofTruth::~ProofTruth() = default;
ProofTruth::ProofTruth(ProofTruth&&) noexcept = default;

class Prover {
 public:
  Prover(const ProofTruth& truth, const ProofSubject& s)
      : t_(*truth.impl_), s_(s), config_(t_.config) {}

  std::vector<Proof> run() {
    const Rows hidden = new_rows(s_.backend, 1, config_.shape.hidden);
    s_.backend.write(proof_hidden(config_.shape.hidden).data(), hidden);
    prove_head("lm-head", s_.model.head, t_.head, s_.session.logits_of(hidden), hidden);
    for (int64_t layer : t_.moe_layers) prove_experts(layer);
    if (t_.drafts && s_.session.can_draft() && s_.session.chunk() > kPairs &&
        s_.session.context() > kPairs)
      prove_drafts();
    s_.session.reset();
    return std::move(proofs_);
  }

 private:
  void add(std::string name, std::string detail, double error, double bound) {
    proofs_.push_back({std::move(name), std::move(detail), error, bound});
  }
  double bound(const Weight& expert, double packed) const {
    return expert.packed ? packed : s_.fast ? kBf16Activations : kExact;
  }

  // Some of the head's own rows against the stored ones. The error is set against the products, as
  // rounding is: of eight sums that happen to cancel it would be many times as much, and one sound
  // head in fifty was refused.
  void prove_head(const char* name, const LmHead& head, const StoredRows& stored,
                  std::span<const float> logits, const Rows& hidden) {
    const std::vector<double> x = read_rows(s_.backend, hidden);
    double difference = 0, products = 0;
    for (size_t i = 0; i < stored.ids.size(); ++i) {
      double sum = 0;
      for (size_t c = 0; c < x.size(); ++c) {
        const double product = x[c] * static_cast<double>(stored.values[i * x.size() + c]);
        sum += product;
        products += product * product;
      }
      const double error = static_cast<double>(logits[static_cast<size_t>(stored.ids[i])]) - sum;
      difference += error * error;
    }
    // The bounds are those of eight sums; the error of fewer (a draft head of very few rows) is
    // spread more widely.
    const std::set<int32_t> distinct(stored.ids.begin(), stored.ids.end());
    const double few =
        std::sqrt(static_cast<double>(kHeadRows) / static_cast<double>(distinct.size()));
    add(name, std::string(format_name(head.format())), root_of_ratio(difference, products),
        few * head_bound(head.format(), t_.head_format, s_.fast));
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
    const auto expected = run_experts(*t_.backend, t_.part.layers[l].moe, x);
    const auto found = run_experts(s_.backend, moe, x);
    const Weight& gate = moe.experts[static_cast<size_t>(t_.expert)].gate;
    add(cat("experts of layer ", layer), s_.backend.expert_kernel(gate), relative(expected, found),
        bound(gate, kInt8Experts));
  }

  // Main layers as they are, every layer with the one expert; then the draft layer on both sides
  // from the same hidden rows, and its head from the same output.
  void prove_drafts() {
    const int64_t columns = (config_.moe_layers() + 1) * config_.shape.top_k;
    const std::vector<int32_t> routes(static_cast<size_t>((kPairs + 1) * columns), id());
    s_.session.reset();
    Advance step{t_.tokens, StepKind::kPrefill, true, {}, {}};
    step.routes_in = new_ids(s_.backend, routes, columns);
    s_.session.advance(step);
    const auto hidden = read_rows(s_.backend, s_.session.hidden_rows(0, kPairs));
    const auto expected = expected_draft_row(hidden, routes, columns);
    s_.session.advance_mtp(step, [&](int64_t, const Rows& rows) {
      const Rows last = rows.slice_rows(kPairs - 1, 1);
      const Weight& gate = s_.model.mtp->layer.moe.experts[static_cast<size_t>(t_.expert)].gate;
      add("draft layer", s_.backend.expert_kernel(gate),
          relative(expected, read_rows(s_.backend, last)), bound(gate, kDraftLayer));
      prove_head("draft head", drafting_head(s_.model), t_.draft_head,
                 s_.session.draft_logits(last), last);
    });
  }

  std::vector<double> expected_draft_row(const std::vector<double>& hidden,
                                         const std::vector<int32_t>& routes, int64_t columns) {
    const ModelShape& s = config_.shape;
    Backend& b = *t_.backend;
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < kPairs; ++i) ids.push_back(static_cast<int32_t>(i));
    const Rows input = new_rows(b, kPairs, s.hidden);
    b.write(hidden.data(), input);
    LayerState state;
    state.latent = new_rows(b, kPairs, s.latent + s.rope);
    const Scratch scratch = make_scratch(s, true, kPairs, 1, b);
    Step step;
    step.kind = StepKind::kPrefill;
    step.rows = kPairs;
    step.tokens = new_ids(b, ids, 1);
    step.routes_in = new_ids(b, routes, columns).slice_rows(0, kPairs);
    step.route_columns = config_.moe_layers() + 1;
    b.begin(step);
    const Rows out = forward_mtp(t_.part, step, input, state, scratch, b);
    auto row = read_rows(b, out.slice_rows(kPairs - 1, 1));
    b.end();
    return row;
  }

  int32_t id() const { return static_cast<int32_t>(t_.expert); }

  const ProofTruth::Impl& t_;
  ProofSubject s_;
  const ModelConfig& config_;
  std::vector<Proof> proofs_;
};

namespace {

std::string line(const Proof& p) {
  char numbers[64];
  std::snprintf(numbers, sizeof numbers, "error %.2g, at most %.2g", p.error, p.bound);
  return cat(p.name, " (", p.detail, "): ", numbers);
}

}  // namespace

std::vector<double> proof_hidden(int64_t n) { return normal_row(n, 1); }

std::vector<Proof> prove(const ProofTruth& truth, const ProofSubject& subject) {
  return Prover(truth, subject).run();
}

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
