// How good drafts are and what they may cost: faults here leave the text right and only the speed
// suffers, so nothing else would show them. Rejected drafts and the text itself: session_test.cc.
#include "engine/session.h"
#include "formats/checkpoint.h"
#include "support/distribution.h"
#include "support/test_model.h"
#include "text/tokenizer.h"
#include "text_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

namespace spk {
namespace {

using test::TestModel;

const auto kGoOn = [] { return true; };

// ling-nano on the cpu back end: what is asked here needs drafts that mean something.
struct Nano {
  explicit Nano(HeadFormat head = HeadFormat::kStored, bool fast = false)
      : source(Checkpoint::open(std::string(SPARKLING_SOURCE_DIR) + "/models/ling-nano")),
        tokenizer(Tokenizer::from_json(read_source_file("models/ling-nano/tokenizer.json"),
                                       "tokenizer.json")) {
    BackendOptions options;
    if (fast) options.precision = PrecisionMode::kFast, options.moe = MoeKernel::kPacked;
    backend = make_cpu_backend(options);
    const ModelConfig config = parse_config(*source->text("config.json"), "config.json");
    backend->prepare(config.shape);
    model = load_model(config, bind_tensors(config, *source), *backend, {head, {}, 1});
    model.plan = backend->plan();
  }
  std::unique_ptr<Session> session(int64_t context) {
    return std::make_unique<Session>(model, *backend, context, 256, true);
  }
  std::vector<int32_t> ids(const std::string& file, size_t count) const {
    std::vector<int32_t> all = tokenizer.encode(read_source_file(file), Special::kPlain);
    EXPECT_GE(all.size(), count) << file;
    all.resize(std::min(all.size(), count));
    return all;
  }

  std::unique_ptr<Checkpoint> source;
  Tokenizer tokenizer;
  std::unique_ptr<Backend> backend;
  Model model;
};

// A greedy text by cycles of a fixed depth, with every draft that was made.
struct Traced {
  std::vector<int32_t> tokens, drafts;
  int64_t cycles = 0;
};
Traced trace(Session& session, const std::vector<int32_t>& prompt, int64_t vocab, int64_t count,
             int depth) {
  Traced t;
  session.inject(
      [](void* context, int64_t, int32_t draft) {
        static_cast<Traced*>(context)->drafts.push_back(draft);
        return draft;
      },
      &t);
  session.sync(prompt, kGoOn);
  const SamplerParams greedy{.temperature = 0};
  Sampler sampler(vocab);
  sampler.reset(prompt);
  t.tokens = {sampler.sample(session.logits(), greedy, static_cast<int64_t>(prompt.size()))};
  sampler.accept(t.tokens[0]);
  while (static_cast<int64_t>(t.tokens.size()) < count) {
    const CycleResult r =
        session.cycle(t.tokens.back(), depth, AcceptRule::kCoupled, sampler, greedy);
    t.tokens.insert(t.tokens.end(), r.tokens.begin(), r.tokens.begin() + r.count);
    ++t.cycles;
  }
  session.inject(nullptr, nullptr);
  return t;
}

// How often a first draft is taken, against what its two distributions allow: the overlap for
// rejection, the chance that two Gumbel races with the same noise have one winner for coupled
// draws. A draft that must equal an independent draw would be taken far less often, at every
// temperature above 0.
TEST(Drafting, IsTakenAsOftenAsTheDistributionsAllow) {
  constexpr int kRunsInFull = 1500;
  const int runs = std::getenv("SPARKLING_SHORT") ? 500 : kRunsInFull;
  TestModel m("cpu", 7, test::Release::kBf16,
              R"({"vocab_size": 16, "num_hidden_layers": 1, "hidden_size": 32,
                  "expert_swiglu_limit_list": [0], "share_expert_swiglu_limit_list": [0]})");
  std::vector<int32_t> text = m.prompt(3, 11);
  const int32_t first = 3;
  text.push_back(first);
  const auto session = m.session(32, 16);
  session->reset();
  const Advance all{text, StepKind::kPrefill, true, {}, {}};
  session->advance(all);
  std::vector<float> draft_logits;
  session->advance_mtp(all, [&](int64_t, const Rows& rows) {
    const auto l = session->draft_logits(rows.slice_rows(rows.rows - 1, 1));
    draft_logits.assign(l.begin(), l.end());
  });
  const auto l = session->logits();
  const std::vector<float> target_logits(l.begin(), l.end());
  text.pop_back();

  for (const double temperature : {0.3, 0.7, 1.0, 1.5}) {
    SamplerParams params{.temperature = temperature, .top_p = 0.95};
    const auto p = test::slow_distribution(target_logits, params);
    const auto q = test::slow_distribution(draft_logits, params);
    double overlap = 0, shared_noise = 0, independent = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      overlap += std::min(p[i], q[i]);
      independent += p[i] * q[i];
      if (p[i] == 0 || q[i] == 0) continue;
      double sum = 0;
      for (size_t j = 0; j < p.size(); ++j) sum += std::max(p[j] / p[i], q[j] / q[i]);
      shared_noise += 1 / sum;
    }
    for (const AcceptRule rule : {AcceptRule::kRejection, AcceptRule::kCoupled}) {
      int taken = 0;
      for (int i = 0; i < runs; ++i) {
        params.seed = static_cast<uint64_t>(i);
        session->reset();
        session->sync(text, kGoOn);
        Sampler sampler(m.vocab());
        sampler.reset(text);
        sampler.accept(first);
        taken += session->cycle(first, 1, rule, sampler, params).count - 1;
      }
      const double expected = rule == AcceptRule::kRejection ? overlap : shared_noise;
      const double sigma = std::sqrt(expected * (1 - expected) / runs);
      EXPECT_NEAR(static_cast<double>(taken) / runs, expected, 4 * sigma)
          << "temperature " << temperature << ", rule " << static_cast<int>(rule);
      // Asked of the number of runs in full: a short form finds less, which is no fault.
      const double sigma_in_full = std::sqrt(expected * (1 - expected) / kRunsInFull);
      if (temperature >= 0.7) {
        EXPECT_GT(expected, independent + 8 * sigma_in_full) << "would not tell the rules apart";
      }
    }
  }
}

// The draft layer's head sees tokens and positions: one constant id, whatever the text, would pass
// every test of the text.
TEST(Drafting, FollowsTheText) {
  Nano nano;
  const int64_t vocab = nano.model.config.shape.vocab;
  const auto session = nano.session(1024);
  const Traced code = trace(*session, nano.ids("tools/oracle.py", 200), vocab, 120, 3);
  EXPECT_GT(std::set(code.drafts.begin(), code.drafts.end()).size(), 20u);
}

// Drafts do not depend on whether the text before them was read at once, in two turns, or written
// token by token: the draft layer's cache covers all of it.
TEST(Drafting, DoesNotDependOnWhereTheTextCameFrom) {
  Nano nano;
  const int64_t vocab = nano.model.config.shape.vocab;
  const bool long_form = std::getenv("SPARKLING_LONG") != nullptr;
  for (const size_t length :
       long_form ? std::vector<size_t>{1000, 4000, 16000, 60000} : std::vector<size_t>{130, 1000}) {
    std::vector<int32_t> prompt = nano.ids("src/model/cycle.cc", std::min<size_t>(length, 1500));
    while (prompt.size() < length)  // of its own making from here on, so that names come back
      prompt.push_back(prompt[prompt.size() - 1000]);
    const auto written = nano.session(static_cast<int64_t>(length) + 256);
    const Traced before = trace(*written, prompt, vocab, 70, 3);
    std::vector<int32_t> text(written->tokens().begin(), written->tokens().end());
    const int32_t last = before.tokens.back();
    const auto drafts_after = [&](Session& session) {
      Traced seen;
      session.inject(
          [](void* context, int64_t, int32_t draft) {
            static_cast<Traced*>(context)->drafts.push_back(draft);
            return draft;
          },
          &seen);
      Sampler sampler(vocab);
      sampler.reset(text);
      sampler.accept(last);
      session.cycle(last, 7, AcceptRule::kCoupled, sampler, {.temperature = 0});
      return seen.drafts;
    };
    const auto expected = drafts_after(*written);
    const auto read = nano.session(static_cast<int64_t>(length) + 256);
    read->sync(text, kGoOn);
    EXPECT_EQ(drafts_after(*read), expected) << length << " tokens, read";
    read->reset();
    read->sync(std::span(text).first(text.size() - 40), kGoOn);
    EXPECT_EQ(read->sync(text, kGoOn).reused, static_cast<int64_t>(text.size()) - 40);
    EXPECT_EQ(drafts_after(*read), expected) << length << " tokens, read in two turns";
  }
}

// One head, two uses: rows of a verify pass and the single row of a draft give the same logits for
// the same hidden vector, bit for bit, 5,000 vectors of real text through an FP8 head,
// some through MXFP4.
TEST(Drafting, TheHeadIsTheSameInBothUses) {
  for (const HeadFormat format : {HeadFormat::kFp8, HeadFormat::kMxfp4}) {
    const int64_t count = std::getenv("SPARKLING_SHORT") || format != HeadFormat::kFp8 ? 500 : 5000;
    Nano nano(format, true);
    const int64_t vocab = nano.model.config.shape.vocab;
    const auto session = nano.session(512);
    std::set<int32_t> winners;
    std::vector<float> target;
    const std::vector<int32_t> text =
        nano.ids("src/text/chat_parser.cc", static_cast<size_t>(std::min<int64_t>(count, 250)));
    int64_t seen = 0;
    for (int64_t round = 0; seen < count; ++round) {
      std::vector<int32_t> ids = text;  // the same words in another order: other vectors
      std::rotate(ids.begin(), ids.begin() + (round * 37) % static_cast<int64_t>(ids.size()),
                  ids.end());
      ids[0] = static_cast<int32_t>(round % vocab);
      session->reset();
      session->advance({ids, StepKind::kPrefill, true, {}, {}});
      int64_t at = 0;
      for (int64_t rows = 1; at < static_cast<int64_t>(ids.size()); rows = rows % kMaxVerify + 1) {
        const int64_t n = std::min(rows, static_cast<int64_t>(ids.size()) - at);
        const auto logits = session->logits_of(session->hidden_rows(at, n));
        target.assign(logits.begin(), logits.end());
        for (int64_t i = 0; i < n; ++i) {
          const auto draft = session->draft_logits(session->hidden_rows(at + i, 1));
          const auto row = std::span(target).subspan(static_cast<size_t>(i * vocab), vocab);
          ASSERT_TRUE(std::equal(draft.begin(), draft.end(), row.begin()))
              << "vector " << seen + at + i << " in a pass of " << n;
          winners.insert(
              static_cast<int32_t>(std::max_element(draft.begin(), draft.end()) - draft.begin()));
        }
        at += n;
      }
      session->carry();
      seen += at;
    }
    EXPECT_GT(winners.size(), 50u);
  }
}

}  // namespace
}  // namespace spk
