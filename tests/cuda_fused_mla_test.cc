// Latent attention in fewer launches: queries with the cache, values with their gates. The bits of
// the verbs, on emulated devices of both orders, or on the GPU (emulated_device.h).
#include "base/error.h"
#include "support/verbs.h"

#include <gtest/gtest.h>

namespace spk {
namespace {

using test::Verbs;

struct MlaRun {
  Scratch t;
  LayerState state;
};

struct MlaLayer {
  MlaLayer(const ModelShape& s, Format format) : shape(s), verbs(s, test::Family::kCuda) {
    const auto near_one = [&](int64_t, int64_t) { return 1 + 0.1 * verbs.normal(); };
    const int64_t q_cols = s.heads * (s.nope + s.rope);
    if (s.q_lora != 0) {
      q_a = verbs.weight(s.q_lora, s.hidden, format, 0.3);
      q_a_norm = verbs.vector(s.q_lora, near_one);
      q_b = verbs.weight(q_cols, s.q_lora, format, 0.3);
    } else {
      q = verbs.weight(q_cols, s.hidden, format, 0.3);
    }
    kv_a = verbs.weight(s.latent + s.rope, s.hidden, format, 0.3);
    kv_a_norm = verbs.vector(s.latent, near_one);
    kv_b = verbs.weight(s.heads * (s.nope + s.v_dim), s.latent, format, 0.3);
    g = verbs.weight(s.heads, s.hidden, Format::kBf16, 0.3);
    dense = verbs.weight(s.hidden, s.heads * s.v_dim, format, 0.3);
  }
  Mla of(size_t i) const {
    const auto some = [i](const Verbs::Weights& w) { return w.empty() ? Weight{} : w[i]; };
    Mla w;
    w.q = some(q), w.q_a = some(q_a), w.q_a_norm = some(q_a_norm), w.q_b = some(q_b);
    w.kv_a = some(kv_a), w.kv_a_norm = some(kv_a_norm), w.kv_b = some(kv_b), w.g = some(g);
    w.dense = some(dense);
    return w;
  }
  // The cache of `positions` begins with something everywhere.
  std::vector<MlaRun> run(const std::vector<Rows>& h, int64_t positions) {
    const ModelShape& s = shape;
    std::vector<MlaRun> runs(verbs.size());
    const auto number = [](int64_t r, int64_t c) {
      return static_cast<double>((r * 37 + c * 11) % 23) / 16 - 0.7;
    };
    const auto set = [&](auto member, int64_t rows, int64_t cols, int64_t gap) {
      const std::vector<Rows> made = verbs.rows(rows, cols, number, gap);
      for (size_t i = 0; i < runs.size(); ++i) member(runs[i]) = made[i];
    };
    for (size_t i = 0; i < runs.size(); ++i) runs[i].t.h = h[i];
    const auto scratch = [&](Rows Scratch::*member, int64_t cols) {
      set([=](MlaRun& r) -> Rows& { return r.t.*member; }, kMaxVerify, cols, 5);
    };
    scratch(&Scratch::q, s.heads * (s.nope + s.rope));
    scratch(&Scratch::q_a, std::max<int64_t>(s.q_lora, 1));
    scratch(&Scratch::kv, s.latent + s.rope);
    scratch(&Scratch::q_latent, s.heads * s.latent);
    scratch(&Scratch::z, s.heads * s.latent);
    scratch(&Scratch::mix, s.heads * s.v_dim);
    scratch(&Scratch::beta, s.heads);
    scratch(&Scratch::o, s.hidden);
    set([](MlaRun& r) -> Rows& { return r.state.latent; }, positions, s.latent + s.rope, 4);
    return runs;
  }

  ModelShape shape;
  Verbs verbs;
  Verbs::Weights q, q_a, q_a_norm, q_b, kv_a, kv_a_norm, kv_b, g, dense;
};

void by_verbs(Backend& b, const Mla& w, const MlaRun& r, bool lora) {
  const Scratch& t = r.t;
  const Weight* in[] = {&w.kv_a, &w.g, lora ? &w.q_a : &w.q};
  const Rows out[] = {t.kv, t.beta, lora ? t.q_a : t.q};
  b.matmul_many(t.h, in, out);
  if (lora) {
    b.rms_norm(t.q_a, w.q_a_norm, t.q_a);
    b.matmul(t.q_a, w.q_b, t.q);
  }
  b.rope(t.q);
  b.latent_append(t.kv, w.kv_a_norm, r.state);
  b.latent_absorb(t.q, w.kv_b, t.q_latent);
  b.latent_attend(t.q_latent, t.q, r.state, t.z);
  b.latent_expand(t.z, w.kv_b, t.mix);
  b.head_gate(t.mix, t.beta);
  b.matmul(t.mix, w.dense, t.o);
}

struct Pass {
  int64_t rows, position;
};

void expect_same(const ModelShape& shape, Format format, const std::vector<Pass>& passes) {
  MlaLayer layer(shape, format);
  const std::vector<Rows> h = layer.verbs.random(kMaxVerify, shape.hidden);
  std::vector<MlaRun> verbs = layer.run(h, 300), fused = layer.run(h, 300);
  for (size_t i = 1; i < layer.verbs.size(); ++i) {  // 0 is the reference
    Backend& b = layer.verbs.backend(i);
    ASSERT_TRUE(b.plan().fused[static_cast<int>(Block::kMla)]);
    Layer whole;
    whole.is_mla = true;
    whole.mla = layer.of(i);
    for (const Pass& pass : passes) {
      Step step;
      step.kind = pass.rows == 1 ? StepKind::kDecode : StepKind::kVerify;
      step.rows = pass.rows;
      step.first_position = pass.position;
      MlaRun one = verbs[i], other = fused[i];
      one.t = one.t.first(pass.rows);
      other.t = other.t.first(pass.rows);
      b.begin(step);
      const uint64_t start = b.counters().joins;
      by_verbs(b, whole.mla, one, shape.q_lora != 0);
      const uint64_t middle = b.counters().joins;
      b.fused(Block::kMla, whole, other.state, other.t);
      // The first of a step makes the table of angles too.
      EXPECT_EQ(middle - start - 1, b.counters().joins - middle + 3) << "launches";
      b.end();
      const auto same = [&](const Rows& x, const Rows& y, const char* what) {
        const auto count = static_cast<size_t>(x.rows * x.cols);
        std::vector<float> a(count), c(count);
        b.read(x, a.data());
        b.read(y, c.data());
        EXPECT_EQ(a, c) << what << ", " << pass.rows << " rows at " << pass.position;
      };
      same(one.t.q, other.t.q, "queries");
      same(one.t.q_latent, other.t.q_latent, "absorbed queries");
      same(one.state.latent, other.state.latent, "cache");
      same(one.t.mix, other.t.mix, "gated values");
      same(one.t.o, other.t.o, "output");
    }
  }
}

TEST(CudaFusedMla, EveryRowCountEqualsTheVerbs) {
  std::vector<Pass> passes;
  for (int64_t n = 1; n <= kMaxVerify; ++n) passes.push_back({n, 16 * n});
  passes.push_back({1, 126});
  passes.push_back({4, 126});  // across the first segment's end
  passes.push_back({3, 260});
  expect_same(test::small_shape(), Format::kFp8, passes);
}

TEST(CudaFusedMla, OtherFormatsAndShapes) {
  const std::vector<Pass> passes = {{1, 0}, {4, 3}};
  ModelShape shape = test::small_shape();
  expect_same(shape, Format::kBf16, passes);
  shape.q_lora = 64;
  expect_same(shape, Format::kFp8, passes);
  ModelShape wide = shape;  // rows are shared out over four blocks
  wide.latent = 512;
  wide.rope = 64;
  wide.rope_freq.resize(32, 0.01);
  wide.nope = 128;
  expect_same(wide, Format::kFp8, {{1, 0}, {6, 3}});
  shape.latent = 32;  // FP8 without whole steps of the matrix unit
  shape.rope = 16;
  shape.rope_freq.resize(8);
  shape.nope = 20;  // the last warps have nothing to absorb
  expect_same(shape, Format::kFp8, passes);
}

}  // namespace
}  // namespace spk
