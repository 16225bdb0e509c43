#include "backend/sampler.h"

#include "base/error.h"
#include "support/distribution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace spk {
namespace {

std::vector<float> some_logits(int64_t n, uint64_t seed) {
  std::vector<float> x(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    x[i] = static_cast<float>(6 * uniform_at(seed, 0, 0, static_cast<uint32_t>(i)) - 3);
  return x;
}

// Over fixed seeds: deterministic, so it cannot flicker.
TEST(Sampler, DrawsFollowTheDistribution) {
  const std::vector<float> logits = some_logits(24, 5);
  for (const SamplerParams& base : {SamplerParams{.temperature = 1.0},
                                    SamplerParams{.temperature = 0.6, .top_k = 9, .top_p = 0.9},
                                    SamplerParams{.temperature = 1.7, .top_p = 0.7},
                                    SamplerParams{.temperature = 1.2, .min_p = 0.2},
                                    SamplerParams{.temperature = 0.8, .top_k = 5}}) {
    const std::vector<double> expected = test::slow_distribution(logits, base);
    std::vector<int> count(logits.size());
    Sampler sampler(static_cast<int64_t>(logits.size()));
    sampler.reset({});
    constexpr int kDraws = 100000;
    for (int i = 0; i < kDraws; ++i) {
      SamplerParams p = base;
      p.seed = static_cast<uint64_t>(i / 100);
      ++count[sampler.sample(logits, p, i % 100)];
    }
    test::expect_distribution(count, expected, cat("temperature ", base.temperature));
  }
}

// The best of a large vocabulary with many equal logits, which the lower id wins.
TEST(Sampler, TopKOfManyIsThatOfAFullSort) {
  for (const int64_t vocab : {500, 4096, 5003}) {
    std::vector<float> logits = some_logits(vocab, 9);
    for (float& x : logits) x = std::round(x * 50) / 50;  // 300 values
    Sampler sampler(vocab);
    sampler.reset({});
    for (const int64_t k : {int64_t{1}, int64_t{2}, int64_t{29}, int64_t{300}, vocab - 1})
      for (const double top_p : {1.0, 0.9}) {
        const SamplerParams p{.temperature = 0.7, .top_k = k, .top_p = top_p};
        const std::vector<double> expected = test::slow_distribution(logits, p);
        std::vector<TokenProbability> found;
        sampler.distribution(logits, p, 0, found);
        std::vector<double> dense(logits.size());
        for (const TokenProbability& t : found) dense[t.id] = t.probability;
        for (size_t i = 0; i < dense.size(); ++i)
          ASSERT_NEAR(dense[i], expected[i], 1e-12) << "id " << i << ", top_k " << k;
      }
  }
}

// One token ahead of all others by ever more, until it stands alone; the second best beside it or
// far away, as good as many others or not.
TEST(Sampler, APeakIsCutLikeAnyOtherRow) {
  int alone = 0, together = 0;
  for (const int64_t vocab : {70, 4096, 5003})
    for (const int64_t best : {int64_t{3}, vocab / 2, vocab - 1})
      for (const int64_t second : {(best + 1) % vocab, (best + vocab / 3) % vocab, int64_t{-1}})
        for (double ahead = 0; ahead < 9; ahead += 0.37) {
          std::vector<float> logits = some_logits(vocab, 21);
          for (float& x : logits) x = std::min(x, 2.9f);  // many are second
          logits[static_cast<size_t>(best)] = static_cast<float>(3 + ahead);
          if (second >= 0) logits[static_cast<size_t>(second)] = 3.f;
          Sampler sampler(vocab);
          sampler.reset({});
          for (const int64_t k : {int64_t{0}, int64_t{1}, int64_t{29}})
            for (const double top_p : {0.95, 0.5}) {
              const SamplerParams p{.temperature = 0.6, .top_k = k, .top_p = top_p};
              const std::vector<double> expected = test::slow_distribution(logits, p);
              std::vector<TokenProbability> found;
              sampler.distribution(logits, p, 0, found);
              std::vector<double> dense(logits.size());
              for (const TokenProbability& t : found) dense[t.id] = t.probability;
              for (size_t i = 0; i < dense.size(); ++i)
                ASSERT_NEAR(dense[i], expected[i], 1e-12)
                    << "id " << i << " of " << vocab << ", top_k " << k << ", ahead " << ahead;
              ++(found.size() == 1 ? alone : together);
            }
        }
  EXPECT_GT(alone, 1000);
  EXPECT_GT(together, 500);
}

TEST(Sampler, UniformIsAPureFunctionWithEvenBins) {
  EXPECT_EQ(uniform_at(1, 2, 3, 4), uniform_at(1, 2, 3, 4));
  for (const auto& other : {uniform_at(2, 2, 3, 4), uniform_at(1, 3, 3, 4), uniform_at(1, 2, 4, 4),
                            uniform_at(1, 2, 3, 5)})
    EXPECT_NE(uniform_at(1, 2, 3, 4), other);
  int bins[16] = {};
  for (uint32_t i = 0; i < 160000; ++i)
    ++bins[static_cast<int>(uniform_at(7, 0, i / 100, i % 100) * 16)];
  for (int b : bins) EXPECT_NEAR(b, 10000, 400);  // 4 sigma of a binomial is 387
}

// Every way of saying "greedy" gives the same token whatever the seed.
TEST(Sampler, TemperatureZeroIsGreedy) {
  std::vector<float> logits = some_logits(1000, 9);
  logits[17] = logits[400] = 50;  // a tie: the lower id
  Sampler sampler(1000);
  sampler.reset({});
  for (double t : {0.0, -0.0, 1e-8})
    for (uint64_t seed = 0; seed < 5; ++seed)
      EXPECT_EQ(sampler.sample(logits, {.temperature = t, .seed = seed}, 3), 17);
  EXPECT_EQ(sampler.sample(logits, {.temperature = 1, .top_k = 1}, 3), 17);
}

TEST(Sampler, PenaltiesAndBias) {
  std::vector<float> logits(8, 0.f);
  logits[1] = 1.0f, logits[2] = 0.9f, logits[3] = -0.5f;
  Sampler sampler(8);
  const std::vector<int32_t> prompt = {1};
  sampler.reset(prompt);
  const auto pick = [&](const SamplerParams& p) { return sampler.sample(logits, p, 0); };
  EXPECT_EQ(pick({.temperature = 0}), 1);
  EXPECT_EQ(pick({.temperature = 0, .repetition_penalty = 1.5}), 2);  // the prompt counts here
  EXPECT_EQ(pick({.temperature = 0, .presence_penalty = 2}), 1);      // and not here
  sampler.accept(1);
  EXPECT_EQ(pick({.temperature = 0, .presence_penalty = 2}), 2);
  EXPECT_EQ(pick({.temperature = 0, .frequency_penalty = 0.05}), 1);
  sampler.accept(1);
  sampler.accept(1);
  EXPECT_EQ(pick({.temperature = 0, .frequency_penalty = 0.05}), 2);  // three times 0.05
  EXPECT_EQ(pick({.temperature = 0, .logit_bias = {{1, -100}, {2, -100}}}), 0);
  EXPECT_EQ(pick({.temperature = 0, .logit_bias = {{3, 100}}}), 3);
  sampler.reset({});
  EXPECT_EQ(pick({.temperature = 0, .presence_penalty = 2}), 1);
}

// A draft is accepted and retracted again, possibly many times; the penalty of a token must not
// depend on that.
TEST(Sampler, RetractedDraftsLeaveNoPenalty) {
  std::vector<float> logits(8, 0.f);
  logits[1] = 1.0f, logits[2] = 0.5f;
  Sampler sampler(8);
  sampler.reset({});
  for (int i = 0; i < 3; ++i) {
    sampler.accept(1);
    sampler.retract(1);
  }
  EXPECT_EQ(sampler.sample(logits, {.temperature = 0, .repetition_penalty = 50}, 0), 1);
  sampler.accept(1);
  EXPECT_EQ(sampler.sample(logits, {.temperature = 0, .presence_penalty = 0.3}, 0),
            1);  // once, not four times
}

TEST(Sampler, LogprobsAreThoseOfThePlainSoftmax) {
  const std::vector<float> logits = some_logits(50, 2);
  double sum = 0;
  for (float x : logits) sum += std::exp(static_cast<double>(x));
  Sampler sampler(50);
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;
  sampler.logprobs(logits, 5, 33, chosen, top);
  EXPECT_NEAR(chosen.logprob, logits[33] - std::log(sum), 1e-12);
  ASSERT_EQ(top.size(), 5u);
  for (size_t i = 1; i < top.size(); ++i) EXPECT_GE(top[i - 1].logprob, top[i].logprob);
}

// Each field, both ends of its range, by name.
TEST(Sampler, RangesAreChecked) {
  const auto refused = [](const SamplerParams& p, const char* name) {
    try {
      check_params(p, 100);
      ADD_FAILURE() << name << " was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kUsage);
      EXPECT_NE(std::string(e.what()).find(name), std::string::npos) << e.what();
    }
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (double x : {-1.0, 1e38, nan}) refused({.temperature = x}, "temperature");
  for (double x : {0.0, 1.5, -0.1, nan}) refused({.top_p = x}, "top_p");
  for (double x : {-1.0, 2.0, nan}) refused({.min_p = x}, "min_p");
  refused({.top_k = -2}, "top_k");
  refused({.repetition_penalty = 0}, "repetition_penalty");
  refused({.presence_penalty = 1e9}, "presence_penalty");
  refused({.frequency_penalty = nan}, "frequency_penalty");
  refused({.logit_bias = {{100, 1.0}}}, "logit_bias");
  refused({.logit_bias = {{-1, 1.0}}}, "logit_bias");
  for (int64_t k : {int64_t{-1}, int64_t{0}, int64_t{1000000000}}) check_params({.top_k = k}, 100);
}

TEST(Sampler, NanIsAnErrorNotAToken) {
  std::vector<float> logits(10, 0.f);
  logits[4] = std::numeric_limits<float>::quiet_NaN();
  Sampler sampler(10);
  sampler.reset({});
  EXPECT_THROW(sampler.sample(logits, {}, 0), Error);
  std::fill(logits.begin(), logits.end(), -std::numeric_limits<float>::infinity());
  EXPECT_THROW(sampler.sample(logits, {}, 0), Error);
}

TEST(Sampler, NanIsSeenAtEveryPlace) {
  std::vector<float> logits = some_logits(150, 4);  // two whole pieces and 22
  Sampler sampler(150);
  sampler.reset({});
  for (size_t at = 0; at < logits.size(); ++at) {
    const float x = std::exchange(logits[at], std::numeric_limits<float>::quiet_NaN());
    for (const double temperature : {0.0, 1.0})
      EXPECT_THROW(sampler.sample(logits, {.temperature = temperature}, 0), Error) << at;
    logits[at] = 4;
    EXPECT_EQ(sampler.sample(logits, {.temperature = 0}, 0), static_cast<int32_t>(at));
    logits[at] = x;
  }
}

}  // namespace
}  // namespace spk
