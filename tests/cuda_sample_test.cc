// The device's sampler against the host's (backend/sampler.h), choice by choice: the same random
// numbers, so the same token; its distribution, and the rejection step. On emulated devices in both
// orders of threads, or on the GPU.
#include "backend/cuda/catalog.h"
#include "backend/cuda/device.h"
#include "backend/sampler.h"
#include "base/types.h"
#include "kernels/args.cuh"
#include "support/on_device.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <random>

namespace spk::cuda {
namespace {

constexpr int kVocab = 1500;  // more than the threads of a block, and no multiple of them
constexpr int kThreads = 1024;
using test::OnDevice;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Drawn {
  int token, status;
  std::vector<double> weights;
  double total;
};

struct History {
  std::vector<int32_t> prompt, answer;
};

Drawn draw(OnDevice& d, const std::vector<float>& logits, const SamplerParams& p,
           const History& history, int64_t position) {
  std::vector<int> prompt(logits.size()), answer(logits.size()), ids;
  for (const int32_t id : history.prompt) ++prompt[static_cast<size_t>(id)];
  for (const int32_t id : history.answer) ++answer[static_cast<size_t>(id)];
  std::vector<float> bias;
  for (const auto& [id, value] : p.logit_bias) {
    ids.push_back(id);
    bias.push_back(static_cast<float>(value));
  }
  gpu::SampleArgs a{};
  a.logits = d.put(logits);
  a.prompt_count = d.put(prompt);
  a.answer_count = d.put(answer);
  a.bias_ids = d.put(ids);
  a.bias_values = d.put(bias);
  a.bias_count = static_cast<int>(ids.size());
  a.work = d.put(std::vector<float>(logits.size()));
  a.weights = d.put(std::vector<double>(logits.size(), -1));
  a.total = d.put(std::vector<double>(1));
  int* const out = a.out = d.put(std::vector<int>(2, -7));
  a.position = position;
  a.seed = p.seed;
  a.choice = p.choice;
  a.temperature = p.temperature;
  a.top_k = p.top_k;
  a.top_p = p.top_p;
  a.min_p = p.min_p;
  a.repetition_penalty = p.repetition_penalty;
  a.presence_penalty = p.presence_penalty;
  a.frequency_penalty = p.frequency_penalty;
  a.vocab = static_cast<int>(logits.size());
  d.launch("sample", "sample", {1}, kThreads, a);
  const auto result = d.get(out, 2);
  return {result[0], result[1], d.get(a.weights, logits.size()), d.get(a.total, 1)[0]};
}

std::vector<SamplerParams> all_params() {
  return {SamplerParams{.temperature = 0},
          SamplerParams{.temperature = 1.0},
          SamplerParams{.temperature = 0.6, .top_k = 29, .top_p = 0.95},
          SamplerParams{.temperature = 1.5, .top_k = 1},
          SamplerParams{.temperature = 1.0, .top_k = kVocab},
          SamplerParams{.temperature = 1.0, .top_p = 0.5},
          SamplerParams{.temperature = 1.0, .top_p = 1e-9},
          SamplerParams{.temperature = 1.0, .min_p = 0.1},
          SamplerParams{.temperature = 2.0, .top_k = 200, .top_p = 0.9, .min_p = 0.02},
          SamplerParams{.temperature = 1.0,
                        .repetition_penalty = 1.3,
                        .presence_penalty = 0.5,
                        .frequency_penalty = 0.25,
                        .logit_bias = {{7, 3.0}, {9, -100.0}, {7, 1.0}}}};
}

// Kinds of rows: plain; few distinct values (ties everywhere); many tokens out; one far above.
std::vector<float> row_of_kind(int kind, std::mt19937_64& random, size_t vocab = kVocab) {
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> x(vocab);
  for (float& v : x) {
    v = normal(random);
    if (kind == 1) v = std::round(v / 4) * 4;
    if (kind == 2 && random() % 4 != 0) v = -kInfinity;
  }
  if (kind == 1) x[5] = -0.f, x[6] = 0.f;
  if (kind == 3) x.back() = 60;
  return x;
}

TEST(CudaSample, ChoosesTheHostsTokenAndDistribution) {
  std::mt19937_64 random(3);
  History history;
  for (int i = 0; i < 60; ++i) history.prompt.push_back(static_cast<int32_t>(random() % kVocab));
  for (int i = 0; i < 40; ++i) history.answer.push_back(static_cast<int32_t>(random() % 50));
  Sampler host(kVocab);
  host.reset(history.prompt);
  for (const int32_t id : history.answer) host.accept(id);
  OnDevice forward(false), backward(true);
  for (int kind = 0; kind < 4; ++kind)
    for (SamplerParams p : all_params()) {
      const std::vector<float> logits = row_of_kind(kind, random);
      p.seed = random();
      p.choice = random() % 3;
      const auto position = static_cast<int64_t>(random() % 100000);
      const int32_t expected = host.sample(logits, p, position);
      std::vector<TokenProbability> distribution;
      host.distribution(logits, p, position, distribution);
      const Drawn got = draw(forward, logits, p, history, position);
      const std::string what = "kind " + std::to_string(kind) + " temperature " +
                               std::to_string(p.temperature) + " top_k " + std::to_string(p.top_k) +
                               " top_p " + std::to_string(p.top_p);
      EXPECT_EQ(got.status, gpu::kSampled) << what;
      EXPECT_EQ(got.token, expected) << what;
      size_t next = 0;
      for (int32_t id = 0; id < kVocab; ++id) {
        const double weight = got.weights[static_cast<size_t>(id)];
        if (next < distribution.size() && distribution[next].id == id) {
          // Doubles with a few roundings; survivors far below the best may vanish on both sides.
          EXPECT_NEAR(weight / got.total, distribution[next].probability,
                      1e-12 * distribution[next].probability)
              << what << " id " << id;
          ++next;
        } else {
          ASSERT_EQ(weight, 0) << what << " id " << id;
        }
      }
      EXPECT_EQ(next, distribution.size());
      const Drawn again = draw(backward, logits, p, history, position);
      EXPECT_EQ(again.token, got.token) << what;
      EXPECT_EQ(again.weights, got.weights) << what;
      EXPECT_EQ(again.total, got.total) << what;
    }
}

TEST(CudaSample, NanAndNothingAreReported) {
  OnDevice d(false);
  std::vector<float> x(kVocab, 1.f);
  x[1234] = std::nanf("");
  EXPECT_EQ(draw(d, x, {}, {}, 0).status, gpu::kSawNan);
  EXPECT_EQ(draw(d, std::vector<float>(kVocab, -kInfinity), {}, {}, 0).status, gpu::kNoFinite);
  x[1234] = 2.f;
  EXPECT_EQ(draw(d, x, {.temperature = 0}, {}, 0).token, 1234);
}

// The two launches for requests without penalties (kernels/choose.cuh), over rows of a step.
struct Chosen {
  std::vector<int> tokens, failed;
};

Chosen choose(OnDevice& d, const std::vector<std::vector<float>>& rows, const SamplerParams& p,
              int64_t first_position, int offset) {
  const size_t n = rows.size(), vocab = rows[0].size();
  std::vector<float> logits;
  for (const auto& row : rows) logits.insert(logits.end(), row.begin(), row.end());
  gpu::ChooseArgs a{};
  a.n = static_cast<int>(n);
  a.vocab = static_cast<int>(vocab);
  a.pieces = (a.vocab + gpu::kPiece - 1) / gpu::kPiece;
  a.offset = offset;
  a.logits = {d.put(logits), a.vocab};
  a.rule = d.put(
      std::vector<gpu::SampleRule>{{p.seed, p.choice, p.temperature, p.top_p, p.min_p, p.top_k}});
  // The rows are the last of a step with three more.
  a.step = d.put(std::vector<gpu::StepInfo>{{first_position - 3, a.n + 3, 0, 0}});
  a.best = d.put(std::vector<unsigned>(n * static_cast<size_t>(a.pieces)));
  a.ids = d.put(std::vector<int>(2 * n, -7));
  a.failed = d.put(std::vector<int>(n, -7));
  a.id_stride = 2;
  a.failed_stride = 1;
  const int blocks = (a.pieces + gpu::kPiecesPerBlock - 1) / gpu::kPiecesPerBlock;
  d.launch("choose", "best_of_pieces", {blocks, a.n}, gpu::kThreads, a);
  d.launch("choose", "choose", {a.n}, gpu::kChooseThreads, a);
  Chosen out{{}, d.get(a.failed, n)};
  const std::vector<int> ids = d.get(a.ids, 2 * n);
  for (size_t i = 0; i < n; ++i) out.tokens.push_back(ids[2 * i]);
  return out;
}

// Vocabularies: so few pieces that top-k looks at all, and enough; neither a multiple of a piece.
// Rows with few distinct values tie in thousands at the bar.
TEST(CudaSample, RowsOfAStepChooseTheHostsTokens) {
  std::mt19937_64 random(8);
  std::vector<SamplerParams> params = all_params();
  params.pop_back();  // penalties
  params.push_back({.temperature = 0.7, .top_k = 256, .top_p = 0.9});
  params.push_back({.temperature = 0.7, .top_k = 257, .min_p = 0.01});
  params.push_back({.temperature = 3.0, .top_k = 64, .top_p = 0.3, .min_p = 0.05});
  for (const size_t vocab : {size_t{1500}, size_t{20011}}) {
    Sampler host(static_cast<int64_t>(vocab));
    host.reset({});
    for (size_t k = 0; k < params.size(); ++k) {
      SamplerParams p = params[k];
      if (vocab > 2000 && p.top_p < 1 && (p.top_k <= 0 || p.top_k > 256)) continue;  // hours
      p.seed = random();
      p.choice = random() % 3;
      std::vector<std::vector<float>> rows;
      rows.reserve(4);
      for (int kind = 0; kind < 4; ++kind) rows.push_back(row_of_kind(kind, random, vocab));
      const auto position = static_cast<int64_t>(random() % 100000) + 3;
      OnDevice d(k % 2 != 0);
      const Chosen got = choose(d, rows, p, position, 2);
      for (size_t i = 0; i < rows.size(); ++i) {
        const auto at = position + static_cast<int64_t>(i) + 2;
        EXPECT_EQ(got.tokens[i], host.sample(rows[i], p, at))
            << "vocab " << vocab << " parameters " << k << " kind " << i;
        EXPECT_EQ(got.failed[i], gpu::kSampled);
      }
    }
  }
}

TEST(CudaSample, RowsWithoutAChoiceSaySo) {
  OnDevice d(false);
  std::vector<std::vector<float>> rows(5, std::vector<float>(300, 1.f));
  rows[0][299] = std::nanf("");
  rows[1][7] = -std::nanf("");
  rows[2].assign(300, -kInfinity);
  rows[3][64] = 2.f;
  for (const double temperature : {0.0, 1.0}) {
    const Chosen got = choose(d, rows, {.temperature = temperature, .top_k = 1}, 5, 1);
    EXPECT_EQ(got.failed, (std::vector<int>{gpu::kSawNan, gpu::kSawNan, gpu::kNoFinite, 0, 0}));
    EXPECT_EQ(got.tokens, (std::vector<int>{0, 0, 0, 64, 0}));
  }
}

// model/cycle.cc has the rule: take with min(1, p / q), else draw from max(p - q, 0).
TEST(CudaSample, RejectionFollowsTheRule) {
  std::mt19937_64 random(4);
  int taken = 0, redrawn = 0;
  for (int round = 0; round < 60; ++round) {
    OnDevice d(round % 2 != 0);
    std::vector<double> p(kVocab), q(kVocab);
    const bool same = round % 10 == 9;
    double p_total = 0, q_total = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      if (random() % 3 == 0) p[i] = std::exp(-5.0 * uniform_at(random(), 0, 0, 0));
      if (random() % 3 == 0) q[i] = std::exp(-5.0 * uniform_at(random(), 0, 0, 0));
      if (same) q[i] = p[i];
      p_total += p[i], q_total += q[i];
    }
    int draft = 0;
    do draft = static_cast<int>(random() % kVocab);
    while (q[static_cast<size_t>(draft)] == 0);
    gpu::RejectArgs a{};
    a.p = d.put(p), a.q = d.put(q);
    a.p_total = d.put(std::vector<double>{p_total});
    a.q_total = d.put(std::vector<double>{q_total});
    a.draft = d.put(std::vector<int>{draft});
    a.out = d.put(std::vector<int>(2, -7));
    a.position = round, a.seed = 11, a.choice = 1, a.vocab = kVocab;
    d.launch("sample", "reject", {1}, kThreads, a);
    const auto out = d.get(a.out, 2);
    const auto at = static_cast<uint64_t>(round);
    const auto draw_at = [&](Draw purpose) {
      return uniform_at(11, 1, at, static_cast<uint32_t>(purpose));
    };
    const auto i = static_cast<size_t>(draft);
    if (draw_at(Draw::kAccept) * q[i] / q_total < p[i] / p_total) {
      EXPECT_EQ(out, (std::vector<int>{draft, 1}));
      ++taken;
      continue;
    }
    std::vector<TokenProbability> rest;
    for (size_t k = 0; k < p.size(); ++k)
      if (const double r = p[k] / p_total - q[k] / q_total; r > 0)
        rest.push_back({static_cast<int32_t>(k), r});
    EXPECT_EQ(out[0], draw_from(rest, draw_at(Draw::kResidual)));
    EXPECT_EQ(out[1], 0);
    ++redrawn;
  }
  EXPECT_GT(taken, 10);
  EXPECT_GT(redrawn, 10);
}

}  // namespace
}  // namespace spk::cuda
