// The known-answer tests at start and --require: each fires when its own optimisation is broken,
// and only then.
#include "engine/proof.h"

#include "base/error.h"
#include "base/types.h"
#include "engine/require.h"
#include "engine/speculate.h"
#include "support/test_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>

namespace spk {
namespace {

using test::TestModel;

// A model loaded from tensors that were tampered with, beside the stored ones.
class Tampered {
 public:
  using Change = std::function<void(Tampered&)>;

  explicit Tampered(const Change& change = nullptr, HeadOptions heads = {},
                    const BackendOptions& options = {})
      : stored_("cpu"),
        backend_(make_cpu_backend(options)),
        truth_(stored_.model.config, stored_.tensors, heads.draft_rows, true) {
    const ModelConfig& config = stored_.model.config;
    backend_->prepare(config.shape);
    tensors_ = bind_tensors(config, *stored_.source);
    if (change) change(*this);
    model = load_model(config, tensors_, *backend_, heads);
    if (after_load) after_load();
    session = std::make_unique<Session>(model, *backend_, 64, 64, true);
  }

  // The bytes of a tensor, in memory of our own.
  std::byte* copy(std::string_view name) {
    HostTensor& t = tensor(name);
    const auto bytes = static_cast<size_t>(code_bytes(t.format, t.rows, t.cols));
    copies_.emplace_back(t.data, t.data + bytes);
    t.data = copies_.back().data();
    return copies_.back().data();
  }
  HostTensor& tensor(std::string_view name) {
    return const_cast<BoundTensor&>(tensors_.at(name)).tensor;
  }
  const ModelConfig& config() const { return stored_.model.config; }
  Backend& backend() { return *backend_; }

  std::vector<Proof> proofs() { return prove(truth_, {model, *backend_, *session}); }
  std::vector<std::string> failures() {
    std::vector<std::string> names;
    for (const Proof& p : proofs())
      if (!p.passed()) names.push_back(p.name);
    return names;
  }

  std::function<void()> after_load;

 private:
  TestModel stored_;
  std::unique_ptr<Backend> backend_;
  ProofTruth truth_;
  TensorSet tensors_;
  std::deque<std::vector<std::byte>> copies_;

 public:
  Model model;
  std::unique_ptr<Session> session;
};

using Names = std::vector<std::string>;

BackendOptions packed() {
  BackendOptions options;
  options.moe = MoeKernel::kPacked;
  return options;
}

TEST(Proof, PassesForEveryHeadAndExpertKernel) {
  const std::vector<int32_t> rows = {1, 5, 9, 12, 33, 40, 41, 77, 80};
  for (const BackendOptions& options : {BackendOptions{}, packed()})
    for (HeadFormat format : {HeadFormat::kStored, HeadFormat::kFp32, HeadFormat::kBf16,
                              HeadFormat::kFp8, HeadFormat::kMxfp4})
      for (const bool draft_head : {false, true}) {
        HeadOptions heads{format, {}, 1};
        if (draft_head) heads.draft_rows = rows;
        Tampered t(nullptr, heads, options);
        const auto proofs = t.proofs();
        EXPECT_EQ(proofs.size(), 5u);  // two heads, two layers of experts, the draft layer
        EXPECT_NO_THROW(check_proofs(proofs)) << proof_text(proofs);
      }
}

// Rows that nearly cancel for the row that asks: rounding shows many times as large beside such
// sums.
TEST(Proof, ASoundHeadWhoseSumsCancelPasses) {
  TestModel stored("cpu");
  BoundTensor& head = const_cast<BoundTensor&>(stored.tensors.at("lm_head.weight"));
  ASSERT_EQ(head.tensor.format, Format::kBf16);
  const auto cols = static_cast<size_t>(head.tensor.cols);
  const std::vector<double> x = proof_hidden(head.tensor.cols);
  double length = 0;
  for (double v : x) length += v * v;
  std::vector<uint16_t> rows;
  std::vector<float> row(cols);
  double sums = 0, products = 0;
  for (int64_t r = 0; r < head.tensor.rows; ++r) {
    dequantise_row(head.tensor, r, row.data());
    double along = 0, sum = 0;
    for (size_t c = 0; c < cols; ++c) along += x[c] * row[c];
    for (size_t c = 0; c < cols; ++c) {
      rows.push_back(float_to_bf16(static_cast<float>(row[c] - along / length * x[c])));
      const double product = x[c] * bf16_to_float(rows.back());
      sum += product;
      products += product * product;
    }
    sums += sum * sum;
  }
  ASSERT_LT(std::sqrt(sums / products), 0.01);
  head.tensor.data = reinterpret_cast<const std::byte*>(rows.data());
  for (HeadFormat format : {HeadFormat::kStored, HeadFormat::kFp8, HeadFormat::kMxfp4}) {
    const ProofTruth truth(stored.model.config, stored.tensors, {}, false);
    const Model model =
        load_model(stored.model.config, stored.tensors, *stored.backend, {format, {}, 1});
    Session session(model, *stored.backend, 64, 64, true);
    const auto proofs = prove(truth, {model, *stored.backend, session});
    EXPECT_NO_THROW(check_proofs(proofs)) << proof_text(proofs);
  }
}

TEST(Proof, AWrongScaleOfTheHeadFires) {
  const auto twice = [](Tampered& t) {
    HostTensor& head = t.tensor("lm_head.weight");
    ASSERT_EQ(head.format, Format::kBf16);
    std::byte* bytes = t.copy("lm_head.weight");
    for (int64_t i = 0; i < head.rows * head.cols; ++i) {
      uint16_t bits;
      std::memcpy(&bits, bytes + 2 * i, 2);
      if ((bits & 0x7f80) != 0) bits = static_cast<uint16_t>(bits + 0x80);
      std::memcpy(bytes + 2 * i, &bits, 2);
    }
  };
  for (HeadFormat format : {HeadFormat::kStored, HeadFormat::kFp8, HeadFormat::kMxfp4}) {
    Tampered t(twice, {format, {}, 1});
    EXPECT_EQ(t.failures(), (Names{"lm-head", "draft head"}));
  }
}

TEST(Proof, ShuffledRowsOfTheDraftLayerFire) {
  Tampered t([](Tampered& m) {
    const std::string name = cat("model.layers.", m.config().layers, ".eh_proj.weight");
    const HostTensor& w = m.tensor(name);
    std::byte* bytes = m.copy(name);
    const auto row = code_bytes(w.format, w.rows, w.cols) / w.rows;
    std::rotate(bytes, bytes + row, bytes + w.rows * row);
  });
  EXPECT_EQ(t.failures(), Names{"draft layer"});
}

TEST(Proof, AWrongExpertFires) {
  for (const BackendOptions& options : {BackendOptions{}, packed()}) {
    Tampered t(
        [](Tampered& m) {
          m.after_load = [&m] {
            Moe& moe = m.model.layers.back().moe;
            for (Ffn& expert : moe.experts) std::swap(expert.gate, expert.up);
          };
        },
        {}, options);
    EXPECT_EQ(t.failures(), Names{cat("experts of layer ", t.config().layers - 1)});
  }
}

TEST(Proof, ADraftHeadOfAnotherMatrixFires) {
  Tampered t([](Tampered& m) {
    m.after_load = [&m] {
      const std::vector<int32_t> rows = {1, 5, 9, 12, 33, 40, 41, 77};
      m.model.draft_head.emplace(m.backend(), m.tensor("model.word_embeddings.weight"),
                                 HeadFormat::kMxfp4, rows, 1);
    };
  });
  EXPECT_EQ(t.failures(), Names{"draft head"});
  EXPECT_THROW(check_proofs(t.proofs()), Error);
}

TEST(Require, TheProbeShowsWhatRan) {
  Tampered plain(nullptr, {HeadFormat::kFp8, {}, 1});
  const auto check = [](Tampered& t, int depth, const char* list) {
    check_requirements(parse_requirements(list),
                       probe_step(t.model, t.backend(), *t.session, depth), Format::kBf16);
  };
  EXPECT_NO_THROW(check(plain, 3, "moe=plain,lm-head=fp8,draft=3"));
  EXPECT_NO_THROW(check(plain, 0, "draft=0"));
  for (const char* wrong : {"moe=packed", "lm-head=stored", "lm-head=mxfp4", "draft=2"})
    EXPECT_THROW(check(plain, 3, wrong), Error) << wrong;
  EXPECT_THROW(check(plain, kAutoDepth, "draft=3"), Error);
  Tampered t(nullptr, {}, packed());
  EXPECT_NO_THROW(check(t, 7, "moe=packed,lm-head=stored,draft=7"));
  EXPECT_THROW(check(t, 7, "moe=plain"), Error);
}

TEST(Require, TheListIsReadStrictly) {
  EXPECT_EQ(parse_requirements("").size(), 0u);
  EXPECT_EQ(parse_requirements("moe=packed,draft=7").size(), 2u);
  for (const char* wrong : {"moe", "moe=", "moe=fast", "lm-head=int8", "draft=8", "draft=auto",
                            "draft=-1", "draft=33", "speed=fast", ",", "moe=plain,,draft=1"})
    EXPECT_THROW(parse_requirements(wrong), Error) << wrong;
}

TEST(DepthPolicy, GivesUpOnDraftsThatAreNeverRight) {
  const auto passes = [](DepthPolicy& policy, int64_t n, int count) {
    CycleResult r;
    r.drafted = 3;
    r.count = count;
    for (int64_t i = 0; i < n; ++i) policy.observe(r);
  };
  DepthPolicy useless(3, kMaxDrafts);
  passes(useless, DepthPolicy::kWatched - 1, 1);
  EXPECT_EQ(useless.next(7), 3);
  passes(useless, 1, 1);
  EXPECT_TRUE(useless.gave_up());
  EXPECT_EQ(useless.next(7), 0);
  DepthPolicy rarely(3, kMaxDrafts);  // one in 16 is right: 1.06
  for (int i = 0; i < 64; ++i) {
    passes(rarely, 15, 1);
    passes(rarely, 1, 2);
  }
  EXPECT_FALSE(rarely.gave_up());
  EXPECT_EQ(rarely.next(7), 3);
}

// Tokens per second of 256 tokens with the automatic depth, over plain decoding: a machine on which
// a draft costs `draft_cost` plain steps, a text whose drafts are right with this probability. The
// first `cold` cycles that draft take twice as long.
double gain(DepthPolicy& policy, double right, double draft_cost, uint64_t seed, int cold = 0) {
  constexpr int kTokens = 256;
  policy.begin_answer();
  double seconds = 0;
  int tokens = 0;
  for (uint64_t cycle = 0; tokens < kTokens; ++cycle) {
    CycleResult r;
    r.drafted = policy.next(std::min(kTokens - tokens - 1, kMaxDrafts));
    r.count = 1;
    while (r.count <= r.drafted &&
           uniform_at(seed, 0, cycle, static_cast<uint32_t>(r.count)) < right)
      ++r.count;
    const double noise = 0.9 + 0.2 * uniform_at(seed, 1, cycle, 0);
    r.verify_seconds = (1 + draft_cost * r.drafted) * noise;
    if (r.drafted > 0 && cold-- > 0) r.verify_seconds *= 2;
    policy.observe(r);
    seconds += r.verify_seconds;
    tokens += r.count;
  }
  return kTokens / seconds;
}

TEST(DepthPolicy, NeverMuchSlowerThanPlainAndCloseToTheBestDepth) {
  for (double draft_cost : {0.1, 0.35, 0.7})
    for (double right : {0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0}) {
      DepthPolicy policy(kAutoDepth, kMaxDrafts);
      double best = 1;  // of the fixed depths, by expectation
      for (int depth = 1; depth <= kMaxDrafts; ++depth) {
        double tokens = 1;
        for (int j = 1; j <= depth; ++j) tokens += std::pow(right, j);
        best = std::max(best, tokens / (1 + draft_cost * depth));
      }
      double sum = 0;
      constexpr int kAnswers = 20;
      for (int answer = 0; answer < kAnswers; ++answer)
        sum += gain(policy, right, draft_cost, static_cast<uint64_t>(answer));
      EXPECT_GT(sum / kAnswers, 0.97) << right << " right, a draft costs " << draft_cost;
      EXPECT_GT(sum / kAnswers, 0.85 * best) << right << " right, a draft costs " << draft_cost;
    }
}

// A machine that was busy while a depth was tried must not keep it from that depth for good.
TEST(DepthPolicy, OneInterruptedCycleDoesNotDecide) {
  DepthPolicy policy(kAutoDepth, kMaxDrafts);
  gain(policy, 0.9, 0.3, 1);
  CycleResult slow;
  slow.drafted = 3;
  slow.count = 4;
  slow.verify_seconds = 1000;
  policy.observe(slow);
  EXPECT_GT(gain(policy, 0.9, 0.3, 2), 1.4);
}

// The first cycles that draft meet cold memory. What they cost must not keep a text from the depth
// that suits it: from the second answer on it is found.
TEST(DepthPolicy, ColdFirstCyclesDoNotDecide) {
  for (double draft_cost : {0.35, 0.5}) {
    DepthPolicy policy(kAutoDepth, kMaxDrafts);
    gain(policy, 0.97, draft_cost, 1, 4);
    double tokens = 1, best = 1;
    for (int depth = 1; depth <= kMaxDrafts; ++depth) {
      tokens += std::pow(0.97, depth);
      best = std::max(best, tokens / (1 + draft_cost * depth));
    }
    double sum = 0;
    constexpr int kAnswers = 4;
    for (uint64_t answer = 2; answer < 2 + kAnswers; ++answer)
      sum += gain(policy, 0.97, draft_cost, answer);
    EXPECT_GT(sum / kAnswers, 0.95 * best) << "a draft costs " << draft_cost;
  }
}

}  // namespace
}  // namespace spk
