// Tokens chosen on the device: a session's text is the one that the host's sampler writes, with and
// without drafts, and what is asked for afterwards is still there.
#include "base/error.h"
#include "support/test_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace spk {
namespace {

BackendOptions options_with(bool device_sampler) {
  BackendOptions options;
  options.device_sampler = device_sampler;
  return options;
}

test::TestModel model_with(bool device_sampler) {
  return test::TestModel("cuda", 1, test::Release::kFp4, "{}", options_with(device_sampler));
}

TEST(CudaSampling, ATextIsTheHostSamplers) {
  test::TestModel there = model_with(true), here = model_with(false);
  const auto prompt = there.prompt(7, 5);
  for (const SamplerParams& params :
       {SamplerParams{.temperature = 0}, SamplerParams{.temperature = 0.8, .top_k = 3, .seed = 4},
        SamplerParams{.temperature = 1.5, .seed = 9},
        SamplerParams{.temperature = 1.0, .top_k = 8, .top_p = 0.9, .min_p = 0.02, .seed = 5}}) {
    EXPECT_TRUE(there.backend->samples(params));
    EXPECT_FALSE(here.backend->samples(params));
    for (const int depth : {0, 3}) {
      const auto a = there.session(), b = here.session();
      const test::Text got = decode(there, *a, prompt, 10, depth, AcceptRule::kCoupled, params);
      const test::Text truth = decode(here, *b, prompt, 10, depth, AcceptRule::kCoupled, params);
      EXPECT_EQ(got.tokens, truth.tokens) << params.temperature << " depth " << depth;
      EXPECT_EQ(got.cycles, truth.cycles);
      const auto row = a->cycle_logits(0), expected = b->cycle_logits(0);
      EXPECT_TRUE(std::equal(row.begin(), row.end(), expected.begin(), expected.end()));
    }
  }
}

TEST(CudaSampling, TheRestIsTheHosts) {
  test::TestModel m = model_with(true);
  for (const SamplerParams& params :
       {SamplerParams{.top_p = 0.9}, SamplerParams{.repetition_penalty = 1.1},
        SamplerParams{.temperature = 0, .presence_penalty = 0.1},
        SamplerParams{.temperature = 0, .frequency_penalty = 0.1},
        SamplerParams{.temperature = 0, .logit_bias = {{1, 2.0}}}})
    EXPECT_FALSE(m.backend->samples(params));
  const auto session = m.session();
  const auto prompt = m.prompt(7, 5);
  const SamplerParams penalties{.temperature = 0, .repetition_penalty = 1.5};
  EXPECT_EQ(decode(m, *session, prompt, 8, 2, AcceptRule::kCoupled, penalties).tokens.size(), 8u);
}

// What goes wrong in the logits is said as the host's sampler says it.
TEST(CudaSampling, NanIsAnErrorThatNamesThePosition) {
  test::TestModel m = model_with(true);
  const auto session = m.session();
  session->sync(m.prompt(4, 5), [] { return true; });
  const std::vector<double> nan(static_cast<size_t>(m.model.config.shape.hidden), std::nan(""));
  Rows norm{m.model.norm.data, 0, 1, m.model.norm.cols, m.model.norm.cols};
  m.backend->write(nan.data(), norm);
  Sampler sampler(m.vocab());
  try {
    session->cycle(1, 0, AcceptRule::kCoupled, sampler, {.temperature = 0});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("NaN as the logit of token 0 at position 5"),
              std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace spk
