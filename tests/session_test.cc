// One timeline: extending, rebuilding, going back, and cycles that draft. Run on both back ends.
#include "engine/session.h"

#include "base/error.h"
#include "support/distribution.h"
#include "support/test_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace spk {
namespace {

using test::decode;
using test::TestModel;
using test::Text;

const auto kGoOn = [] { return true; };

// "Loose" equality: chunked and stepwise runs differ by rounding only.
void expect_close(std::span<const float> a, std::span<const float> b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  EXPECT_LT(std::sqrt(difference / size), tolerance);
}

class OnBackend : public testing::TestWithParam<const char*> {
 protected:
  // Emulated threads take a thousand times longer than real ones.
  bool emulated() const {
    return std::string(GetParam()) == "cuda" && !std::getenv("SPARKLING_TEST_GPU");
  }
  bool brief() const { return emulated() && test::emulates_briefly(); }
  int64_t length(int64_t tokens) const { return brief() ? 12 : emulated() ? 24 : tokens; }
  template <typename T>
  std::vector<T> cases(std::vector<T> all, std::vector<T> few) const {
    return brief() ? few : all;
  }
  double tolerance() const { return std::string(GetParam()) == "reference" ? 1e-9 : 1e-4; }
  // The reference expands every row of a weight whenever it is used, which in FP8 and MXFP4 is most
  // of its time and no part of what the long tests are about.
  test::Release release() const {
    return std::string(GetParam()) == "reference" ? test::Release::kBf16 : test::Release::kFp4;
  }
};
INSTANTIATE_TEST_SUITE_P(Session, OnBackend, testing::Values("reference", "cpu", "cuda"),
                         [](const auto& i) { return std::string(i.param); });

std::vector<float> fresh_logits(TestModel& m, const std::vector<int32_t>& tokens) {
  const auto session = m.session();
  session->sync(tokens, kGoOn);
  const auto logits = session->logits();
  return {logits.begin(), logits.end()};
}

// Second request = first + answer + new text, then an unrelated one, then the first again.
TEST_P(OnBackend, SyncExtendsOrRebuilds) {
  TestModel m(GetParam());
  const auto session = m.session();
  const std::vector<int32_t> first = m.prompt(20, 1), other = m.prompt(33, 2);
  std::vector<int32_t> longer = first;
  const std::vector<int32_t> more = m.prompt(30, 3);
  longer.insert(longer.end(), more.begin(), more.end());

  EXPECT_EQ(session->sync(first, kGoOn).reused, 0);
  EXPECT_EQ(session->sync(longer, kGoOn).reused, 20);
  expect_close(session->logits(), fresh_logits(m, longer), tolerance());
  EXPECT_EQ(session->sync(other, kGoOn).reused, 0);
  expect_close(session->logits(), fresh_logits(m, other), tolerance());
  EXPECT_EQ(session->sync(first, kGoOn).reused, 0);
  expect_close(session->logits(), fresh_logits(m, first), tolerance());
  EXPECT_EQ(session->sync(first, kGoOn).reused,
            20);  // nothing to run, and the logits are still there
  expect_close(session->logits(), fresh_logits(m, first), tolerance());
}

// Going back ends in a recompute, never in a half-done state.
TEST_P(OnBackend, RewindEqualsAFreshRun) {
  TestModel m(GetParam());
  const auto session = m.session();
  const std::vector<int32_t> tokens = m.prompt(50, 4);
  session->sync(tokens, kGoOn);
  for (int64_t position : {49, 16, 1}) {
    session->rewind(position);
    EXPECT_EQ(static_cast<int64_t>(session->tokens().size()), position);
    expect_close(session->logits(), fresh_logits(m, {tokens.begin(), tokens.begin() + position}),
                 tolerance());
  }
}

// What was marked behind a prompt comes back whole after any number of drafted tokens, and is gone
// with the prompt.
TEST_P(OnBackend, AMarkIsTheStateBehindThePrompt) {
  TestModel m(GetParam(), 7, release());
  const std::vector<int32_t> prompt = m.prompt(21, 8), other = m.prompt(5, 9);
  const auto text = [&](Session& session, uint64_t choice) {
    const SamplerParams params{.temperature = 1.0, .seed = 3, .choice = choice};
    return decode(m, session, prompt, emulated() ? 4 : 24, brief() ? 1 : 3, AcceptRule::kCoupled,
                  params)
        .tokens;
  };
  const auto session = std::make_unique<Session>(m.model, *m.backend, 256, 64, true, true);
  session->sync(prompt, kGoOn);
  session->mark();
  for (uint64_t choice : cases<uint64_t>({0, 1, 2}, {1})) {
    EXPECT_EQ(session->sync(prompt, kGoOn).reused, 21) << choice;
    EXPECT_EQ(text(*session, choice), text(*m.session(), choice)) << choice;
  }
  EXPECT_EQ(session->marked().size(), 21u);
  session->sync(other, kGoOn);
  EXPECT_EQ(session->sync(prompt, kGoOn).reused, 0);
  const auto plain = m.session();  // has no room for marks
  text(*plain, 0);
  plain->sync(prompt, kGoOn);
  plain->mark();
  text(*plain, 0);
  EXPECT_EQ(plain->sync(prompt, kGoOn).reused, 0);
}

TEST_P(OnBackend, AStoppedPrefillKeepsWhatItRead) {
  TestModel m(GetParam());
  const auto session = m.session(256, 16);
  const std::vector<int32_t> tokens = m.prompt(60, 5);
  int steps = 0;
  const Session::Synced stopped = session->sync(tokens, [&] { return steps++ < 2; });
  EXPECT_FALSE(stopped.complete);
  EXPECT_EQ(session->tokens().size(), 32u);
  EXPECT_EQ(session->sync(tokens, kGoOn).reused, 32);
  expect_close(session->logits(), fresh_logits(m, tokens), tolerance());
}

// The promise of coupled acceptance: the text does not depend on the depth, byte for byte.
TEST_P(OnBackend, TheTextIsTheSameAtAnyDepth) {
  TestModel m(GetParam(), 3, release());
  const std::vector<int32_t> prompt = m.prompt(23, 6);
  for (const SamplerParams& params :
       {SamplerParams{.temperature = 0},
        SamplerParams{.temperature = 0.7, .top_k = 29, .top_p = 0.95, .seed = 5},
        SamplerParams{.temperature = 1.0,
        .repetition_penalty = 1.3,
        .presence_penalty = 0.5,
        .frequency_penalty = 0.3,
        .logit_bias = {{7, 3.0}, {9, -100}},
        .seed = 6}}) {
    const auto plain = m.session();
    const Text expected = decode(m, *plain, prompt, length(80), 0, AcceptRule::kCoupled, params);
    for (int depth : cases<int>({1, 2, 4, 7}, {3})) {
      const auto session = m.session();
      const Text got = decode(m, *session, prompt, length(80), depth, AcceptRule::kCoupled, params);
      EXPECT_EQ(got.tokens, expected.tokens) << "depth " << depth;
    }
  }
}

struct Fault {
  double probability;
  int64_t vocab;
};
int32_t wrong_draft(void* context, int64_t position, int32_t draft) {
  const auto* fault = static_cast<const Fault*>(context);
  const double u = uniform_at(99, 0, static_cast<uint64_t>(position), 0);
  if (u >= fault->probability) return draft;
  return static_cast<int32_t>((draft + 1 + static_cast<int64_t>(u * 1e6) % (fault->vocab - 1)) %
                              fault->vocab);
}

std::vector<double> state_of(TestModel& m, Session& session) {
  session.sync(session.tokens().empty()
                   ? std::vector<int32_t>{}
                   : std::vector<int32_t>(session.tokens().begin(), session.tokens().end()),
               kGoOn);  // folds what is pending
  std::vector<double> all;
  for (const LayerState& state : session.layer_states()) {
    if (!state.kda_state.buffer) continue;
    for (const Rows& rows : {state.kda_state, state.conv_tail}) {
      const std::vector<double> v = m.values(rows);
      all.insert(all.end(), v.begin(), v.end());
    }
  }
  return all;
}

void expect_no_trace(TestModel& m, int64_t count, const std::vector<double>& probabilities,
                     const std::vector<int>& depths) {
  const std::vector<int32_t> prompt = m.prompt(19, 7);
  const SamplerParams params{.temperature = 0};
  const int64_t context = count + 120;
  const auto plain = m.session(context);
  const Text expected = decode(m, *plain, prompt, count, 0, AcceptRule::kCoupled, params);
  const std::vector<double> state = state_of(m, *plain);
  for (double probability : probabilities) {
    for (int depth : depths) {
      const auto session = m.session(context);
      Fault fault{probability, m.vocab()};
      session->inject(wrong_draft, &fault);
      const Text got = decode(m, *session, prompt, count, depth, AcceptRule::kCoupled, params);
      EXPECT_EQ(got.tokens, expected.tokens);
      // Nothing is accepted but a wrong draft that the target wanted by chance.
      if (probability == 1.0) {
        EXPECT_GE(got.cycles, count * 19 / 20);
      }
      EXPECT_EQ(std::vector<int32_t>(session->tokens().begin(), session->tokens().end()),
                std::vector<int32_t>(plain->tokens().begin(), plain->tokens().end()));
      EXPECT_TRUE(state_of(m, *session) == state)
          << "probability " << probability << ", depth " << depth;
    }
  }
}

// Whatever is rejected leaves nothing behind; states are compared byte for byte after 1,000
// tokens; 150 on the reference back end and in the short form.
TEST_P(OnBackend, RejectedDraftsLeaveNoTrace) {
  TestModel m(GetParam(), 4, release());
  const bool few = std::string(GetParam()) == "reference" || std::getenv("SPARKLING_SHORT");
  expect_no_trace(m, length(few ? 150 : 1000), cases<double>({0.0, 0.5, 1.0}, {0.5, 1.0}),
                  cases<int>({1, 2, 3, 4}, {3}));
}

// The same of the kernels of precision `fast`, whose states have other types.
TEST(Session, RejectedDraftsLeaveNoTraceInPrecisionFast) {
  BackendOptions options;
  options.precision = PrecisionMode::kFast;
  options.moe = MoeKernel::kPacked;
  TestModel m("cpu", 4, test::Release::kFp4, "{}", options);
  expect_no_trace(m, 300, {0.0, 0.5, 1.0}, {1, 2, 3, 4});
}

// An answer cut by a stop rule inside a cycle, then a next turn: as if the drafts had never been.
TEST_P(OnBackend, KeepTakesBackWhatAStopRuleCut) {
  TestModel m(GetParam(), 5);
  std::vector<int32_t> prompt = m.prompt(12, 8);
  const SamplerParams params{.temperature = 0};
  const auto session = m.session();
  session->sync(prompt, kGoOn);
  Sampler sampler(m.vocab());
  sampler.reset(prompt);
  int32_t last = sampler.sample(session->logits(), params, 12);
  sampler.accept(last);
  for (int i = 0; i < 12; ++i) {
    const CycleResult r = session->cycle(last, 4, AcceptRule::kCoupled, sampler, params);
    last = r.tokens[r.count - 1];
  }
  session->keep(1);
  std::vector<int32_t> kept(session->tokens().begin(), session->tokens().end());
  const std::vector<int32_t> more = m.prompt(9, 9);
  kept.insert(kept.end(), more.begin(), more.end());
  EXPECT_EQ(session->sync(kept, kGoOn).reused, static_cast<int64_t>(kept.size() - more.size()));
  expect_close(session->logits(), fresh_logits(m, kept), tolerance());
}

// The draft layer's cache covers the prompt and every committed position, whatever the depth was in
// between: after plain cycles the next draft is the one that a session which always drafted makes.
TEST_P(OnBackend, TheDraftCacheSurvivesPlainCycles) {
  TestModel m(GetParam(), 6);
  const std::vector<int32_t> prompt = m.prompt(30, 10);
  const SamplerParams params{.temperature = 0};
  const auto run = [&](int depth_until, int64_t tokens) {
    const auto session = m.session();
    session->sync(prompt, kGoOn);
    Sampler sampler(m.vocab());
    sampler.reset(prompt);
    int32_t last = sampler.sample(session->logits(), params, 30);
    sampler.accept(last);
    int64_t count = 1;
    while (count < tokens) {
      const CycleResult r =
          session->cycle(last, static_cast<int>(std::min<int64_t>(depth_until, tokens - count - 1)),
                         AcceptRule::kCoupled, sampler, params);
      last = r.tokens[r.count - 1];
      count += r.count;
    }
    struct Seen {
      std::vector<int32_t> drafts;
    } seen;
    session->inject(
        [](void* context, int64_t, int32_t draft) {
          static_cast<Seen*>(context)->drafts.push_back(draft);
          return draft;
        },
        &seen);
    session->cycle(last, 4, AcceptRule::kCoupled, sampler, params);
    return seen.drafts;
  };
  for (int64_t tokens : cases<int64_t>({5, 64, 66, 90}, {20}))
    EXPECT_EQ(run(0, tokens), run(3, tokens)) << tokens;
}

// A slow machine cuts prompts into short steps; that is no reason to stop drafting.
TEST_P(OnBackend, ShortStepsStillDraft) {
  TestModel m(GetParam(), 1, release());
  const std::vector<int32_t> prompt = m.prompt(12, 4);
  std::vector<int32_t> truth;
  for (const int64_t rows : {64, 8, 1}) {
    const auto session = m.session();
    session->limit_chunk(rows);
    ASSERT_TRUE(session->can_draft());
    const Text text =
        decode(m, *session, prompt, length(30), 3, AcceptRule::kCoupled, {.temperature = 0});
    EXPECT_EQ(static_cast<int64_t>(text.tokens.size()), length(30));
    if (rows == 8) {
      truth = text.tokens;
    } else if (rows == 1) {
      EXPECT_EQ(text.tokens, truth);
    }
  }
}

// Rejection acceptance has the plain distribution: the two tokens after a prompt, drawn with drafts
// over 100,000 seeds, against their exact distribution (the second one's is the sum over all first
// ones).
TEST(Rejection, HasThePlainDistribution) {
  constexpr int kVocab = 16;
  const int runs = std::getenv("SPARKLING_SHORT") ? 5000 : 100000;
  TestModel m("cpu", 7, test::Release::kBf16,
              R"({"vocab_size": 16, "num_hidden_layers": 1, "hidden_size": 32,
                  "expert_swiglu_limit_list": [0], "share_expert_swiglu_limit_list": [0]})");
  const std::vector<int32_t> prompt = m.prompt(3, 11);
  const int32_t first = 3;  // the same for all, so that the next ones have one distribution
  const auto session = m.session(32, 16);
  const auto distribution = [&](std::vector<int32_t> more, const SamplerParams& p) {
    more.insert(more.begin(), prompt.begin(), prompt.end());
    session->reset();
    session->sync(more, kGoOn);
    const auto logits = session->logits();
    return test::slow_distribution({logits.begin(), logits.end()}, p);
  };
  for (const SamplerParams& base :
       {SamplerParams{.temperature = 1.0}, SamplerParams{.temperature = 0.8, .top_p = 0.8},
        SamplerParams{.temperature = 1.5, .top_k = 6},
        SamplerParams{.temperature = 0.7, .min_p = 0.1}}) {
    const std::vector<double> expected = distribution({first}, base);
    std::vector<double> expected_second(kVocab);
    for (int32_t t = 0; t < kVocab; ++t) {
      const std::vector<double> after = distribution({first, t}, base);
      for (int u = 0; u < kVocab; ++u) expected_second[u] += expected[t] * after[u];
    }
    std::vector<int> count(kVocab), count_second(kVocab);
    int64_t accepted = 0, cycles = 0;
    for (int i = 0; i < runs; ++i) {
      SamplerParams p = base;
      p.seed = static_cast<uint64_t>(i);
      session->reset();
      session->sync(prompt, kGoOn);
      Sampler sampler(kVocab);
      sampler.reset(prompt);
      sampler.accept(first);
      std::vector<int32_t> got;
      int32_t last = first;
      while (got.size() < 2) {
        const CycleResult r = session->cycle(last, 2, AcceptRule::kRejection, sampler, p);
        got.insert(got.end(), r.tokens.begin(), r.tokens.begin() + r.count);
        last = got.back();
        accepted += r.count - 1;
        ++cycles;
      }
      ++count[got[0]];
      ++count_second[got[1]];
    }
    // The test would be empty without acceptances, and without rejections.
    EXPECT_GT(accepted, cycles / 10);
    EXPECT_LT(accepted, cycles * 19 / 10);
    test::expect_distribution(count, expected, cat("first, temperature ", base.temperature));
    test::expect_distribution(count_second, expected_second,
                              cat("second, temperature ", base.temperature));
  }
}

}  // namespace
}  // namespace spk
