// A pass that is watched (trace) and one whose decisions are drawn (simulation).
#include "backend/trace.h"

#include "base/error.h"
#include "engine/speculate.h"
#include "measure/pass_bytes.h"
#include "support/test_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace spk {
namespace {

using test::TestModel;

TEST(DistinctExperts, AreThePublishedOnes) {
  // Of 512, 8 a row, for 2 to 6 rows under independent routing.
  const double expected[] = {15.9, 23.6, 31.3, 38.8, 46.2};
  for (int rows = 2; rows <= 6; ++rows)
    EXPECT_NEAR(distinct_experts(512, 8, rows, 1), expected[rows - 2], 0.05);
  EXPECT_NEAR(distinct_experts(512, 8, 4, 0.6), 21.95, 0.01);
  EXPECT_EQ(distinct_experts(512, 8, 1, 0.6), 8);
}

// ---- simulated decisions ----

TEST(Simulation, ChanceGivesTheWantedLength) {
  for (const int depth : {1, 3, 5, 7}) {
    for (const double length : {1.0, 1.5, 1.9, 2.68, 3.9}) {
      if (length > depth + 1) continue;
      const double p = chance_for(length, depth);
      double sum = 1, reach = 1;
      for (int j = 0; j < depth; ++j) sum += reach *= p;
      EXPECT_NEAR(sum, length, 1e-6);
    }
  }
}

struct Simulated {
  double accept_length = 0;
  std::vector<int> counts;       // tokens of each cycle
  std::vector<double> distinct;  // per drafting cycle
};

Simulated run_simulated(const Simulation& simulation, int depth, int cycles) {
  TestModel m("cpu");
  const auto session = m.session(2048);
  session->simulate(simulation);
  session->sync(m.prompt(9, 3), [] { return true; });
  Sampler sampler(m.vocab());
  sampler.reset(session->tokens());
  SamplerParams params;
  params.temperature = 0;
  int32_t last = sampler.sample(session->logits(), params, 9);
  sampler.accept(last);
  const ByteCount bytes(m.model.config, m.tensors, {});
  DraftCounters counters;
  Simulated out;
  for (int i = 0; i < cycles; ++i) {
    const CycleResult r = session->cycle(last, depth, AcceptRule::kCoupled, sampler, params);
    last = r.tokens[r.count - 1];
    counters.add(r);
    out.counts.push_back(r.count);
    out.distinct.push_back(
        bytes.distinct_of(static_cast<double>(r.verify_weight_bytes), depth + 1));
  }
  out.accept_length = counters.accept_length();
  return out;
}

TEST(Simulation, DraftsAreTakenByTheCoin) {
  // n steps of the golden ratio hit [0, x) n x times to within 3.4, for n up to 2,000; from any
  // start, twice that (two ends), and a mean counts three such intervals.
  const int n = 400;
  EXPECT_NEAR(run_simulated({2.68, 0, 1}, 3, n).accept_length, 2.68, 3 * 6.8 / n);
  EXPECT_NEAR(run_simulated({1.2, 0, 1}, 3, n).accept_length, 1.2, 3 * 6.8 / n);
  EXPECT_DOUBLE_EQ(run_simulated({1.0, 0, 1}, 3, 20).accept_length, 1);
  EXPECT_DOUBLE_EQ(run_simulated({4.0, 0, 1}, 3, 20).accept_length, 4);
  // All lengths occur, and the seed decides which comes when.
  const std::vector<int> five = run_simulated({2.68, 0, 5}, 3, 60).counts;
  for (const int count : {1, 2, 3, 4}) EXPECT_NE(std::count(five.begin(), five.end(), count), 0);
  EXPECT_EQ(five, run_simulated({2.68, 0, 5}, 3, 60).counts);
  EXPECT_NE(five, run_simulated({2.68, 0, 6}, 3, 60).counts);
}

TEST(Simulation, ExpertsAreAsManyAsWanted) {
  const TestModel m;
  const int64_t top_k = m.model.config.shape.top_k, experts = m.model.config.shape.experts;
  for (const int64_t wanted : {top_k, top_k + 1, std::min(4 * top_k, experts)}) {
    for (const double distinct : run_simulated({0, wanted, 1}, 3, 6).distinct)
      EXPECT_NEAR(distinct, static_cast<double>(wanted), 1e-6);
  }
  EXPECT_THROW(run_simulated({0, top_k - 1, 1}, 3, 1), Error);
  EXPECT_THROW(run_simulated({0, experts + 1, 1}, 3, 1), Error);
}

// ---- trace ----

TEST(Trace, CountsWhatTheBackEndCounted) {
  Trace trace;
  TestModel m("cpu");
  const auto traced = make_trace_backend(make_cpu_backend({}), trace);
  traced->prepare(m.model.config.shape);
  Model model = load_model(m.model.config, m.tensors, *traced);
  Session session(model, *traced, 64, 16, true);
  session.sync(m.prompt(9, 3), [] { return true; });
  EXPECT_EQ(trace.sum().calls, 0u) << "off: nothing is recorded";
  trace.on = true;
  const Counters before = traced->counters();
  session.sync(m.prompt(10, 3), [] { return true; });
  const Counters after = traced->counters();
  EXPECT_EQ(trace.sum().bytes,
            after.weight_bytes - before.weight_bytes + after.state_bytes - before.state_bytes);
  for (const char* verb :
       {"kda_mix", "latent_attend", "route", "experts", "matmul attention.o_proj"})
    EXPECT_GT(trace.entries.at(verb).calls, 0u) << verb;
  uint64_t calls = 0;
  for (const TraceEntry& part : trace.parts()) calls += part.calls;
  EXPECT_EQ(calls, trace.sum().calls);
  trace.clear();
  EXPECT_EQ(trace.sum().bytes, 0u);
}

TEST(Trace, ChangesNoResult) {
  Trace trace;
  trace.on = true;
  TestModel m("cpu");
  const auto traced = make_trace_backend(make_cpu_backend({}), trace);
  traced->prepare(m.model.config.shape);
  Model model = load_model(m.model.config, m.tensors, *traced);
  Session with(model, *traced, 64, 16, false);
  const auto without = m.session(64, 16, false);
  const auto prompt = m.prompt(9, 3);
  with.sync(prompt, [] { return true; });
  without->sync(prompt, [] { return true; });
  const auto a = with.logits(), b = without->logits();
  EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end()));
}

}  // namespace
}  // namespace spk
