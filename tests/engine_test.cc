// The engine as its callers see it: limits, stop rules, reuse, drafts that change nothing, memory
// that does not grow.
#include "engine/engine.h"

#include "base/error.h"
#include "support/checkpoint_writer.h"
#include "support/malloc_count.h"

#include <gtest/gtest.h>

#include <cmath>

namespace spk {
namespace {

using test::Release;
using test::WrittenCheckpoint;

struct Opened {
  explicit Opened(EngineOptions options = {}, uint64_t seed = 1, const std::string& patch = "{}")
      : written(test::small_config(patch), Release::kFp4, seed) {
    if (options.backend == "auto") options.backend = "cpu";
    engine = std::make_unique<Engine>(written.open(), written.parsed(), std::nullopt, options);
  }
  WrittenCheckpoint written;
  std::unique_ptr<Engine> engine;
};

EngineOptions with(int64_t context, int draft = 0) {
  EngineOptions o;
  o.context = context;
  o.draft = draft;
  return o;
}

std::vector<int32_t> prompt(int64_t n, uint64_t seed = 1) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i)
    ids.push_back(static_cast<int32_t>(uniform_at(seed, 0, static_cast<uint64_t>(i), 0) * 90));
  return ids;
}

GenerateRequest greedy(std::vector<int32_t> ids, int64_t max_tokens) {
  GenerateRequest r;
  r.prompt = std::move(ids);
  r.sampling.temperature = 0;
  r.max_tokens = max_tokens;
  r.ignore_eos = true;
  return r;
}
const auto kAll = [](const TokenEvent&) { return true; };

// Ctx-1 fits, ctx and more are refused with both numbers, and the next request works.
TEST(Engine, PromptsAtTheEdgeOfTheContext) {
  Opened o(with(64));
  EXPECT_EQ(o.engine->generate(greedy(prompt(63), 0), kAll).tokens.size(), 1u);
  for (int64_t n : {64, 65, 128}) {
    try {
      o.engine->generate(greedy(prompt(n), 1), kAll);
      ADD_FAILURE() << n << " tokens were accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kInput);
      EXPECT_NE(std::string(e.what()).find("63"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find(std::to_string(n)), std::string::npos) << e.what();
    }
  }
  EXPECT_EQ(o.engine->generate(greedy(prompt(20), 5), kAll).tokens.size(), 5u);
  EXPECT_THROW(o.engine->generate(greedy({}, 5), kAll), Error);
  EXPECT_THROW(o.engine->generate(greedy({1, -1}, 5), kAll), Error);
  EXPECT_THROW(o.engine->generate(greedy({1, 1 << 20}, 5), kAll), Error);
}

// Generation across the grid of prefill steps and attention blocks, at every depth the same
// text, up to the last token of the context.
TEST(Engine, TextDoesNotDependOnDraftsUpToTheEndOfTheContext) {
  for (const bool fast : {false, true}) {
    std::vector<int32_t> expected;
    for (int draft : {0, 1, 3, 7, kAutoDepth}) {
      EngineOptions options = with(300, draft);
      if (fast) {
        options.precision = PrecisionMode::kFast;
        options.device.moe = MoeKernel::kPacked;
        options.head = HeadFormat::kFp8;
      }
      Opened o(options, 2);
      const GenerateResult r = o.engine->generate(greedy(prompt(100, 2), 0), kAll);
      EXPECT_EQ(r.tokens.size(), 200u);
      EXPECT_EQ(r.reason, FinishReason::kLength);
      if (expected.empty()) expected = r.tokens;
      EXPECT_EQ(r.tokens, expected) << "draft " << draft << " fast " << fast;
      const Counters& c = o.engine->backend().counters();
      EXPECT_EQ(c.packed_experts > 0, fast);
      EXPECT_EQ(c.heads[static_cast<int>(Format::kFp8Row)] > 0, fast);
    }
  }
}

// A checkpoint without MTP tensors says that drafts are off, and decodes.
TEST(Engine, WithoutAnMtpLayerDraftsAreOff) {
  EXPECT_THROW(Opened(with(64, 3), 3, R"({"num_nextn_predict_layers": 0})"), Error);  // demanded
  Opened o(with(64, kAutoDepth), 3, R"({"num_nextn_predict_layers": 0})");
  const GenerateResult r = o.engine->generate(greedy(prompt(10), 12), kAll);
  EXPECT_EQ(r.tokens.size(), 12u);
  EXPECT_EQ(r.timings.drafts.drafting_cycles, 0u);
}

TEST(Engine, EveryHeadFormatAnswers) {
  Opened stored(with(128), 4);
  const auto expected = stored.engine->generate(greedy(prompt(30, 4), 20), kAll).tokens;
  for (HeadFormat format :
       {HeadFormat::kFp32, HeadFormat::kBf16}) {  // these round nothing of a BF16 head
    EngineOptions options = with(128);
    options.head = format;
    Opened o(options, 4);
    EXPECT_EQ(o.engine->generate(greedy(prompt(30, 4), 20), kAll).tokens, expected);
  }
  for (HeadFormat format : {HeadFormat::kFp8, HeadFormat::kMxfp4}) {
    std::vector<int32_t> text;
    for (int draft : {0, 3}) {  // whatever it rounds, drafts change nothing
      EngineOptions options = with(128, draft);
      options.head = format;
      if (draft) options.draft_head = {5, 9, 1, 0, 77, 33, 20, 21, 22, 23};
      Opened o(options, 4);
      const auto got = o.engine->generate(greedy(prompt(30, 4), 20), kAll).tokens;
      if (text.empty()) text = got;
      EXPECT_EQ(got, text);
    }
  }
}

TEST(Engine, FollowUpReadsOnlyTheNewTokens) {
  Opened o(with(256, 2), 5);
  std::vector<int32_t> ids = prompt(40, 5);
  const GenerateResult first = o.engine->generate(greedy(ids, 30), kAll);
  ids.insert(ids.end(), first.tokens.begin(), first.tokens.end());
  const std::vector<int32_t> more = prompt(15, 6);
  ids.insert(ids.end(), more.begin(), more.end());
  const GenerateResult second = o.engine->generate(greedy(ids, 10), kAll);
  EXPECT_EQ(second.timings.cached_tokens, 69);  // the last token of an answer is never run
  Opened fresh(with(256), 5);
  EXPECT_EQ(second.tokens, fresh.engine->generate(greedy(ids, 10), kAll).tokens);
}

TEST(Engine, CancelStopsBetweenTokensAndBetweenChunks) {
  Opened o(with(256), 6);
  std::atomic<bool> cancel{false};
  GenerateRequest r = greedy(prompt(20), 100);
  r.cancel = &cancel;
  int seen = 0;
  GenerateResult result = o.engine->generate(r, [&](const TokenEvent&) {
    cancel = ++seen == 7;
    return true;
  });
  EXPECT_EQ(result.reason, FinishReason::kCancelled);
  EXPECT_LE(result.tokens.size(), 8u);
  result = o.engine->generate(r, kAll);  // still cancelled: not even the prompt is finished
  EXPECT_EQ(result.reason, FinishReason::kCancelled);
  EXPECT_TRUE(result.tokens.empty());
}

// The flag that ends a step from inside: the session is lost, the next request is as on a new
// engine.
TEST(Engine, AnAbortedStepLeavesNoHalfDoneState) {
  for (const char* backend : {"cpu", "reference"}) {
    EngineOptions options = with(256, 2);
    options.backend = backend;
    Opened o(options, 6), fresh(options, 6);
    const auto expected = fresh.engine->generate(greedy(prompt(20), 12), kAll).tokens;
    std::atomic<bool> abort{true};
    GenerateRequest r = greedy(prompt(20), 12);
    r.abort = &abort;
    GenerateResult result = o.engine->generate(r, kAll);
    EXPECT_EQ(result.reason, FinishReason::kCancelled);
    EXPECT_EQ(result.timings.read_tokens, 0);
    EXPECT_EQ(result.timings.prefill_tok_s(), 0);

    abort = false;
    int seen = 0;
    result = o.engine->generate(r, [&](const TokenEvent&) {
      abort = ++seen == 7;
      return true;
    });
    EXPECT_EQ(result.reason, FinishReason::kCancelled);
    EXPECT_GE(result.tokens.size(), 7u);
    EXPECT_LT(result.tokens.size(), 12u);

    abort = false;
    result = o.engine->generate(r, kAll);
    EXPECT_EQ(result.timings.cached_tokens, 0);
    EXPECT_EQ(result.tokens, expected) << backend;
  }
}

// --memory is a hard limit: refused with the numbers, or the context shrinks and that is said.
TEST(Engine, MemoryLimit) {
  EngineOptions options = with(0);
  options.device.memory = 1 << 20;
  try {
    Opened o(options);
    ADD_FAILURE() << "1 MiB was enough";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kResource);
    EXPECT_NE(std::string(e.what()).find("1048576"), std::string::npos) << e.what();
  }
  options.device.memory = 0;
  options.chunk = 64;
  const MemoryPlan plan = Opened(options).engine->memory();
  options.device.memory = static_cast<uint64_t>(plan.total() - plan.caches / 2);
  Opened o(options);
  EXPECT_LT(o.engine->memory().context, o.written.parsed().context);
  EXPECT_GE(o.engine->memory().context, 64);
  EXPECT_LE(o.engine->backend().counters().allocated_bytes, options.device.memory);
}

// Nothing is allocated per token after warm-up: not by the back end, not by the heap.
TEST(Engine, SteadyStateAllocatesNothing) {
  for (int draft : {0, 3}) {
    Opened o(with(512, draft), 7);
    o.engine->generate(greedy(prompt(60), 40), kAll);  // warm-up
    std::optional<MallocCount> count;
    uint64_t calls = 0;
    int tokens = 0;
    const uint64_t before = o.engine->backend().counters().allocations;
    o.engine->generate(greedy(prompt(60), 200), [&](const TokenEvent&) {
      if (++tokens == 20) count.emplace();
      if (tokens == 200 && malloc_count_works()) calls = count->calls();
      return true;
    });
    EXPECT_EQ(o.engine->backend().counters().allocations, before);
    EXPECT_EQ(calls, 0u) << "draft " << draft;
  }
}

// A prompt's step reads every weight once, however many rows it has, and each step again: of the
// embedding the rows of its tokens, of the experts those that somebody chose (here all of them).
TEST(Engine, AChunkReadsEachWeightOnce) {
  const std::string all_experts = R"({"num_experts_per_tok":8,"topk_group":4})";
  for (const PrecisionMode precision : {PrecisionMode::kExact, PrecisionMode::kFast}) {
    EngineOptions options = with(256);
    options.precision = precision;
    Opened o(options, 9, all_experts);
    uint64_t weights = 0, embedding_row = 0;
    for (const test::WrittenTensor& t : o.written.tensors) {
      if (t.name == "model.word_embeddings.weight")
        embedding_row = t.bytes.size() / static_cast<size_t>(t.shape[0]);
      else if (t.shape.size() == 2 && t.name.find("model.layers.6.") != 0)
        weights += t.bytes.size();  // vectors and taps are not counted, the MTP layer is not asked
    }
    const auto read = [&](int64_t rows, int64_t chunk) {
      const std::vector<int32_t> ids = prompt(rows, 9);
      Engine::LogitsRequest request;
      request.tokens = ids;
      request.chunk = chunk;
      const uint64_t before = o.engine->backend().counters().weight_bytes;
      o.engine->logits(request, [](int64_t, std::span<const float>) {});
      return o.engine->backend().counters().weight_bytes - before -
             static_cast<uint64_t>(rows) * embedding_row;
    };
    for (const int64_t rows : {1, 2, 9, 16, 17, 63, 64, 65, 130, 256})
      EXPECT_EQ(read(rows, 256), weights) << rows << " rows in one step";
    for (const int64_t steps : {2, 4})
      EXPECT_EQ(read(256, 256 / steps), static_cast<uint64_t>(steps) * weights)
          << steps << " steps";
  }
}

// A prompt cut at multiples of 64 has the bits of one that is not: so a server may cut by the
// clock, and a small model, or one without a memory limit, may take longer steps than others.
TEST(Engine, CutsOnTheGridChangeNoBit) {
  for (const PrecisionMode precision : {PrecisionMode::kExact, PrecisionMode::kFast}) {
    EngineOptions options = with(576);
    options.precision = precision;
    Opened o(options, 10);
    const std::vector<int32_t> ids = prompt(576, 10);
    const auto run = [&](int64_t chunk) {
      std::vector<float> all;
      Engine::LogitsRequest request;
      request.tokens = ids;
      request.chunk = chunk;
      o.engine->logits(request, [&](int64_t, std::span<const float> row) {
        all.insert(all.end(), row.begin(), row.end());
      });
      return all;
    };
    const std::vector<float> whole = run(0);
    for (const int64_t chunk : {64, 128, 192, 256, 320})
      EXPECT_TRUE(run(chunk) == whole) << "steps of " << chunk;
  }
}

TEST(Engine, SmallModelsReadPromptsInLongSteps) {
  const auto read = [](const EngineOptions& options) {
    Opened o(options, 9);
    const std::vector<int32_t> ids = prompt(384, 9);
    Engine::LogitsRequest request;
    request.tokens = ids;
    const uint64_t before = o.engine->backend().counters().weight_bytes;
    o.engine->logits(request, [](int64_t, std::span<const float>) {});
    return static_cast<double>(o.engine->backend().counters().weight_bytes - before);
  };
  EngineOptions options = with(384);
  options.chunk = 256;
  const double twice = read(options);
  options.chunk = 0;
  EXPECT_LT(read(options), .7 * twice);
  options.device.memory = uint64_t{1} << 30;  // whoever limits the memory wants little of it
  EXPECT_EQ(read(options), twice);
}

// The chunk length changes nothing beyond rounding, from one token to more than the prompt.
TEST(Engine, LogitsForAnyChunkLength) {
  Opened o(with(256), 8);
  const std::vector<int32_t> ids = prompt(150, 8);
  const auto run = [&](int64_t chunk) {
    std::vector<float> all;
    Engine::LogitsRequest request;
    request.tokens = ids;
    request.chunk = chunk;
    o.engine->logits(request, [&](int64_t, std::span<const float> row) {
      all.insert(all.end(), row.begin(), row.end());
    });
    return all;
  };
  const std::vector<float> whole = run(256);
  for (int64_t chunk : {1, 63, 64, 100}) {
    const std::vector<float> got = run(chunk);
    double difference = 0, size = 0;
    for (size_t i = 0; i < whole.size(); ++i) {
      difference += (got[i] - whole[i]) * (got[i] - whole[i]);
      size += whole[i] * whole[i];
    }
    EXPECT_LT(std::sqrt(difference / size), 1e-4) << "chunk " << chunk;
  }
}

}  // namespace
}  // namespace spk
