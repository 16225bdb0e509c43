// Fused blocks of the cpu back end: the bits of the verbs, in fewer joins of the team.
#include "base/error.h"
#include "support/test_model.h"

#include <gtest/gtest.h>

namespace spk {
namespace {

using test::decode;
using test::Release;
using test::TestModel;
using test::Text;

BackendOptions team(int threads) {
  BackendOptions options;
  options.threads = threads;
  options.moe = MoeKernel::kPacked;
  options.precision = PrecisionMode::kFast;
  return options;
}

struct Outcome {
  std::vector<int32_t> tokens;
  std::vector<float> logits;
  std::vector<double> states;
};

Outcome outcome(TestModel& m, int depth, int64_t prompt, int64_t context) {
  const auto session = m.session(context);
  SamplerParams params;
  params.temperature = 1;
  params.seed = 7;
  Outcome out;
  out.tokens =
      decode(m, *session, m.prompt(prompt, 3), 40, depth, AcceptRule::kCoupled, params).tokens;
  const auto logits = session->cycle_logits(0);
  out.logits.assign(logits.begin(), logits.end());
  for (const LayerState& state : session->layer_states())
    if (state.kda_state.buffer) {
      const auto values = m.values(state.kda_state);
      out.states.insert(out.states.end(), values.begin(), values.end());
    }
  return out;
}

// With and without low-rank queries, plain steps and verify passes, one worker and two; the longer
// context has more cached rows than the block's small tasks are for.
TEST(CpuFused, EqualsVerbsBitForBit) {
  for (const char* patch : {"{}", R"({"q_lora_rank": 48})"})
    for (int threads : {1, 2}) {
      TestModel m("cpu", 5, Release::kFp4, patch, team(threads));
      ASSERT_TRUE(m.model.plan.fused[static_cast<int>(Block::kKda)]);
      ASSERT_TRUE(m.model.plan.fused[static_cast<int>(Block::kMla)]);
      const FusionPlan plan = m.model.plan;
      for (int depth : {0, 1, 3, 7})
        for (int64_t prompt : {21, 700}) {
          m.model.plan = plan;
          const Outcome fused = outcome(m, depth, prompt, prompt + 64);
          m.model.plan = {};
          const Outcome verbs = outcome(m, depth, prompt, prompt + 64);
          EXPECT_EQ(fused.tokens, verbs.tokens) << patch << " depth " << depth;
          EXPECT_EQ(fused.logits, verbs.logits) << patch << " depth " << depth;
          EXPECT_EQ(fused.states, verbs.states) << patch << " depth " << depth;
        }
    }
}

TEST(CpuFused, MoreWorkersThanHeadsTakeTheVerbs) {
  TestModel m("cpu", 5, Release::kFp4, "{}", team(3));
  for (const bool fused : m.model.plan.fused) EXPECT_FALSE(fused);
  EXPECT_EQ(m.model.plan.text, "");
}

// The real per-head shapes, so that every join is worth its while; a layer of the family has three
// joins for the mixer and three for the experts.
TEST(CpuFused, AtMostSixJoinsALayer) {
  for (const char* queries : {"null", "512"}) {
    const std::string patch =
        cat(R"({"hidden_size": 512, "num_attention_heads": 8, "head_dim": 128, "kv_lora_rank": 512,
               "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
               "intermediate_size": 1024, "moe_intermediate_size": 128,
               "moe_shared_expert_intermediate_size": 128, "num_experts": 128,
               "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4, "num_hidden_layers": 3,
               "expert_swiglu_limit_list": [0, 0, 0.3],
               "share_expert_swiglu_limit_list": [0, 0, 0.4], "q_lora_rank": )",
            queries, "}");
    TestModel m("cpu", 1, Release::kFp4, patch, team(2));
    const auto layers = static_cast<uint64_t>(m.model.layers.size());
    const FusionPlan plan = m.model.plan;
    for (const bool fused : {true, false})
      for (int64_t rows : {1, 2, 4, 8}) {
        m.model.plan = fused ? plan : FusionPlan{};
        const auto session = m.session(128, 64, false);
        session->sync(m.prompt(40, 2), [] { return true; });
        const std::vector<int32_t> tokens = m.prompt(rows, 9);
        const uint64_t before = m.backend->counters().joins;
        session->advance({tokens, rows == 1 ? StepKind::kDecode : StepKind::kVerify, true, {}, {}});
        const uint64_t joins = m.backend->counters().joins - before;
        if (fused) {
          EXPECT_LE(joins, 6 * layers) << rows << " rows, low rank " << queries;
          EXPECT_GE(joins, 5 * layers) << "the shapes are too small to show anything";
        } else {
          EXPECT_GT(joins, 6 * layers) << "without fused blocks";
        }
      }
  }
}

}  // namespace
}  // namespace spk
