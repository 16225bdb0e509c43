// What a step did not write it must not read: work buffers and unused rows of the caches are filled
// with NaN before each step, and every hidden row stays the same to the bit.
#include "engine/cache.h"
#include "engine/session.h"
#include "support/test_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace spk {
namespace {

using test::TestModel;

class Poisoned {
 public:
  Poisoned(TestModel& m, bool poison)
      : m_(m),
        poison_(poison),
        cache_(m.model, kContext, false, *m.backend),
        scratch_(make_scratch(m.model.config.shape, true, kRows, kRows, *m.backend)),
        tokens_{m.backend->alloc(kRows * sizeof(int32_t), "tokens"), 0, kRows, 1, 1} {
    cache_.reset();
    if (!poison_) return;
    for (const LayerState& state : cache_.layers()) fill(state.latent);
    fill(cache_.mtp().latent);
  }

  // The hidden rows of one step, the draft layer's behind them.
  std::vector<double> step(const std::vector<int32_t>& tokens, int64_t first, StepKind kind) {
    const auto n = static_cast<int64_t>(tokens.size());
    if (poison_) spoil_work();
    Step step;
    step.kind = kind;
    step.rows = n;
    step.first_position = first;
    step.tokens = tokens_.slice_rows(0, n);
    m_.backend->write(tokens.data(), step.tokens);
    m_.backend->begin(step);
    forward(m_.model, step, cache_.layers(), scratch_, *m_.backend);
    m_.backend->end();
    std::vector<double> all = m_.values(scratch_.hidden.slice_rows(1, n));
    if (kind == StepKind::kVerify) return all;
    m_.backend->begin(step);
    const Rows drafted = forward_mtp(m_.model, step, scratch_.hidden.slice_rows(1, n), cache_.mtp(),
                                     scratch_, *m_.backend);
    m_.backend->end();
    const std::vector<double> more = m_.values(drafted);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  static constexpr int64_t kContext = 256;
  static constexpr int64_t kRows = 96;

 private:
  void fill(const Rows& rows) const {
    if (!rows.buffer) return;
    const std::vector<double> nan(static_cast<size_t>(rows.rows * rows.cols), NAN);
    m_.backend->write(nan.data(), rows);
  }
  void spoil_work() const {
    const Scratch& t = scratch_;
    for (const Rows& rows : {t.x,
                             t.h,
                             t.o,
                             t.q,
                             t.k,
                             t.v,
                             t.f,
                             t.g,
                             t.beta,
                             t.q_a,
                             t.kv,
                             t.q_latent,
                             t.z,
                             t.mix,
                             t.gate,
                             t.up,
                             t.route_weight,
                             t.joined,
                             t.hidden,
                             t.logits})
      fill(rows);
  }

  TestModel& m_;
  bool poison_;
  Cache cache_;
  Scratch scratch_;
  Ints tokens_;
};

TEST(Poison, PromptsOfEveryLengthReadOnlyWhatWasWritten) {
  for (const char* backend : {"reference", "cpu"}) {
    TestModel m(backend, 21);
    const int64_t most = backend[0] == 'c' ? 96 : 20;
    for (int64_t length = 1; length <= most; length += length < 20 ? 1 : 7) {
      Poisoned clean(m, false), spoiled(m, true);
      const std::vector<int32_t> prompt = m.prompt(length, 3);
      const auto expect_same = [&](const std::vector<int32_t>& tokens, int64_t first,
                                   StepKind kind) {
        const auto truth = clean.step(tokens, first, kind);
        const auto got = spoiled.step(tokens, first, kind);
        ASSERT_EQ(got.size(), truth.size());
        for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], truth[i]) << backend << ' ' << i;
      };
      expect_same(prompt, 0, StepKind::kPrefill);
      expect_same({7}, length, StepKind::kDecode);
      expect_same({5, 6, 7}, length + 1, StepKind::kVerify);
    }
  }
}

}  // namespace
}  // namespace spk
