// What the cuda back end takes from its device: nothing after the first steps of each kind, never
// more than the limit, and what it could not get leaves it as it was.
#include "backend/cuda/cuda.h"
#include "base/error.h"
#include "engine/engine.h"
#include "kernels/args.cuh"
#include "support/test_model.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace spk {
namespace {

using test::TestModel;

const auto kGoOn = [] { return true; };
constexpr int64_t kSegments = 4 * gpu::kAttendStep;  // positions of some segments of attention

// Prompts of the largest chunk, plain steps, verify passes with 1 to 7 drafts: within the first
// segment of attention and beyond it.
TEST(CudaMemory, NothingIsTakenAfterTheFirstStepsOfEachKind) {
  TestModel m("cuda");
  constexpr int64_t kContext = 8 * kSegments, kChunk = 64;
  const auto session = m.session(kContext, kChunk);
  SamplerParams params;
  params.temperature = 0;
  Sampler sampler(m.vocab());
  int32_t last = 0;
  const auto read = [&](int64_t length, uint64_t seed) {
    const std::vector<int32_t> prompt = m.prompt(length, seed);
    session->sync(prompt, kGoOn);
    sampler.reset(prompt);
    last = sampler.sample(session->logits(), params, length);
    sampler.accept(last);
  };
  // Under a sanitizer the emulated steps take minutes: the least and the largest depth then.
  const bool is_short = std::getenv("SPARKLING_SHORT") != nullptr;
  const int between = is_short ? kMaxDrafts : 1;
  const auto decode = [&](int rounds) {
    for (int i = 0; i < rounds; ++i)
      for (int depth = 0; depth <= kMaxDrafts; depth += between) {
        const CycleResult r = session->cycle(last, depth, AcceptRule::kCoupled, sampler, params);
        last = r.tokens[static_cast<size_t>(r.count) - 1];
      }
  };
  const int first = is_short ? 1 : 3;
  for (int i = 0; i < first; ++i) {
    read(kChunk, static_cast<uint64_t>(i) + 1);
    decode(1);
  }
  // A minute of emulation: what a longer context takes is asked for by the first step already.
  if (!test::emulates_briefly()) read(kSegments + kChunk, 4);
  decode(first);
  const Counters warm = m.backend->counters();
  const int rounds = is_short ? 1 : test::emulates_briefly() ? 2 : 3;
  decode(rounds);
  for (int i = 0; i < rounds; ++i) {
    read(kChunk, static_cast<uint64_t>(i) + 5);
    decode(1);
  }
  EXPECT_EQ(m.backend->counters().allocations, warm.allocations);
  EXPECT_EQ(m.backend->counters().allocated_bytes, warm.allocated_bytes);
  EXPECT_GT(warm.allocations, 0u);
}

struct Emulated {
  // `device_bytes` 0: as much as is asked for.
  explicit Emulated(EngineOptions options, size_t device_bytes = 0)
      : written(test::small_config("{}"), test::Release::kFp4, 1) {
    options.backend = "cpu";  // which gives way to the emulated one
    options.decorate = [&](std::unique_ptr<Backend>) -> std::unique_ptr<Backend> {
      BackendOptions device = options.device;
      device.precision = options.precision;
      if (device_bytes == 0) return test::make_emulated_backend(false, device);
      return std::make_unique<cuda::CudaBackend>(test::make_emulated_device(false, device_bytes),
                                                 device);
    };
    engine = std::make_unique<Engine>(written.open(), written.parsed(), std::nullopt, options);
  }
  std::vector<int32_t> answer(int64_t prompt, int64_t tokens) {
    GenerateRequest request;
    for (int64_t i = 0; i < prompt; ++i)
      request.prompt.push_back(static_cast<int32_t>(i * 7 % written.parsed().shape.vocab));
    request.sampling.temperature = 0;
    request.max_tokens = tokens;
    request.ignore_eos = true;
    return engine->generate(request, [](const TokenEvent&) { return true; }).tokens;
  }
  uint64_t taken() { return engine->backend().counters().allocated_bytes; }

  test::WrittenCheckpoint written;
  std::unique_ptr<Engine> engine;
};

EngineOptions options_of(uint64_t memory) {
  EngineOptions options;
  options.context = kSegments + 100;
  options.chunk = 64;
  options.draft = 3;
  options.prove = false;
  options.device.threads = 1;
  options.device.memory = memory;
  return options;
}

// The plan's own total is enough for a whole answer, and a device of that size never sees more
// asked of it; one byte less is refused with the plan, before anything is taken.
TEST(CudaMemory, TheLimitHoldsToTheByte) {
  const auto total = static_cast<uint64_t>(Emulated(options_of(0)).engine->memory().total());
  Emulated exact(options_of(total));
  EXPECT_EQ(exact.answer(kSegments + 20, 12).size(), 12u);
  EXPECT_LE(exact.taken(), total);
  try {
    Emulated less(options_of(total - 1));
    ADD_FAILURE() << "a limit below the need was taken";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kResource);
    for (const std::string& part :
         {std::to_string(total), std::to_string(total - 1), std::string("weights "),
          std::string("caches "), std::string("activations "), std::string("working memory ")})
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << part << ": " << e.what();
  }
}

// A prompt for which the device has no memory fails; shorter ones have the same answer as before.
TEST(CudaMemory, WhatDoesNotFitFailsAloneAndChangesNothing) {
  EngineOptions options = options_of(0);
  options.draft = 0;
  Emulated whole(options);
  const std::vector<int32_t> expected = whole.answer(4, 3);
  const uint64_t small = whole.taken();
  whole.answer(60, 1);
  const uint64_t large = whole.taken();
  ASSERT_GT(large, small);
  Emulated tight(options, large - 1);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(tight.answer(4, 3), expected);
    try {
      tight.answer(60, 1);
      ADD_FAILURE() << "expected no memory";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("out of device memory: work space needs "),
                std::string::npos)
          << e.what();
    }
  }
  EXPECT_EQ(tight.answer(4, 3), expected);
}

}  // namespace
}  // namespace spk
