// Launches of the cuda back end that do several verbs' work: the bits of the verbs. On emulated
// devices of both orders, or on the GPU (emulated_device.h).
#include "backend/cuda/catalog.h"
#include "base/error.h"
#include "support/test_model.h"
#include "support/verbs.h"

#include <gtest/gtest.h>

#include <cmath>

namespace spk {
namespace {

using test::TestModel;
using test::Verbs;

// ---- KDA ----

// One layer's buffers: those of the verbs and those of the fused block start alike.
struct KdaRun {
  Scratch t;
  LayerState state;
  std::vector<Rows> all() const {
    return {t.o,
            state.kda_state,
            state.conv_tail,
            state.record_in,
            state.record_k,
            state.record_u,
            state.record_g};
  }
};

struct KdaLayer {
  explicit KdaLayer(const ModelShape& s) : shape(s), verbs(s, test::Family::kCuda) {
    const int64_t n = s.heads * s.head_dim;
    const auto product = [&](int64_t rows, int64_t cols) {
      return verbs.weight(rows, cols, Format::kBf16, 0.3);
    };
    const auto normal = [&](int64_t, int64_t) { return verbs.normal(); };
    for (auto* w : {&q, &k, &v, &f, &g}) *w = product(n, s.hidden);
    b = product(s.heads, s.hidden);
    o = product(s.hidden, n);
    verbs.uploading("q_conv1d.weight");
    for (auto* w : {&conv_q, &conv_k, &conv_v}) *w = verbs.matrix(n, s.conv_kernel, normal);
    verbs.uploading("test");
    a_log = verbs.vector(s.heads, normal);
    dt_bias = verbs.vector(n, normal);
    o_norm = verbs.vector(s.head_dim, normal);
  }
  Kda of(size_t i) const {
    return {q[i],      k[i],      v[i],     f[i],       g[i],      b[i], conv_q[i],
            conv_k[i], conv_v[i], a_log[i], dt_bias[i], o_norm[i], o[i]};
  }
  std::vector<KdaRun> run(const std::vector<Rows>& h) {
    const int64_t n = shape.heads * shape.head_dim;
    const auto rows = [&](int64_t count, int64_t cols, double scale) {
      return verbs.rows(count, cols, [=](int64_t r, int64_t c) {
        return scale * std::sin(static_cast<double>(r * 37 + c * 11 + count));
      });
    };
    std::vector<KdaRun> runs(verbs.size());
    const auto set = [&](auto member, const std::vector<Rows>& made) {
      for (size_t i = 0; i < runs.size(); ++i) member(runs[i]) = made[i];
    };
    set([](KdaRun& r) -> Rows& { return r.t.h; }, h);
    for (const auto member :
         {&Scratch::q, &Scratch::k, &Scratch::v, &Scratch::f, &Scratch::g, &Scratch::mix})
      set([=](KdaRun& r) -> Rows& { return r.t.*member; }, rows(kMaxVerify, n, 0));
    set([](KdaRun& r) -> Rows& { return r.t.beta; }, rows(kMaxVerify, shape.heads, 0));
    set([](KdaRun& r) -> Rows& { return r.t.o; }, rows(kMaxVerify, shape.hidden, 0));
    set([](KdaRun& r) -> Rows& { return r.state.kda_state; }, rows(1, n * shape.head_dim, 1));
    for (KdaRun& r : runs) {  // states have no gaps
      Rows& flat = r.state.kda_state;
      flat = {flat.buffer, flat.offset, n, shape.head_dim, shape.head_dim};
    }
    set([](KdaRun& r) -> Rows& { return r.state.conv_tail; },
        rows(3 * (shape.conv_kernel - 1), n, 1));
    set([](KdaRun& r) -> Rows& { return r.state.record_in; }, rows(3 * kMaxVerify, n, 1));
    for (const auto member : {&LayerState::record_k, &LayerState::record_u, &LayerState::record_g})
      set([=](KdaRun& r) -> Rows& { return r.state.*member; }, rows(kMaxVerify, n, -0.3));
    return runs;
  }

  ModelShape shape;
  Verbs verbs;
  Verbs::Weights q, k, v, f, g, b, conv_q, conv_k, conv_v, a_log, dt_bias, o_norm, o;
};

void by_verbs(Backend& b, const Kda& w, const KdaRun& r) {
  const Scratch& t = r.t;
  const Weight* in[] = {&w.q, &w.k, &w.v, &w.f, &w.g, &w.b};
  const Rows out[] = {t.q, t.k, t.v, t.f, t.g, t.beta};
  b.matmul_many(t.h, in, out);
  b.conv_step(t.q, t.k, t.v, w, r.state);
  b.kda_gate(t.f, t.beta, w);
  b.kda_mix(t.q, t.k, t.v, t.f, t.beta, r.state, t.mix);
  b.norm_gate(t.mix, t.g, w.o_norm);
  b.matmul(t.mix, w.o, t.o);
}

struct Pass {
  StepKind kind;
  int64_t rows, fold;
};

void expect_same(const ModelShape& shape, const std::vector<Pass>& passes, int64_t commit) {
  KdaLayer layer(shape);
  const std::vector<Rows> h = layer.verbs.random(kMaxVerify, shape.hidden);
  std::vector<KdaRun> verbs = layer.run(h), fused = layer.run(h);
  for (size_t i = 1; i < layer.verbs.size(); ++i) {  // 0 is the reference
    Backend& b = layer.verbs.backend(i);
    ASSERT_TRUE(b.plan().fused[static_cast<int>(Block::kKda)]);
    Layer whole;
    whole.kda = layer.of(i);
    const auto compare = [&](const std::string& what) {
      const auto one = verbs[i].all(), other = fused[i].all();
      for (size_t r = 0; r < one.size(); ++r) {
        const auto count = static_cast<size_t>(one[r].rows * one[r].cols);
        std::vector<float> x(count), y(count);
        b.read(one[r], x.data());
        b.read(other[r], y.data());
        EXPECT_EQ(x, y) << what << ", rows " << r << " of all(), head_dim " << shape.head_dim;
      }
    };
    int64_t position = 5;
    for (const Pass& pass : passes) {
      Step step;
      step.kind = pass.kind;
      step.rows = pass.rows;
      step.fold = pass.fold;
      step.first_position = position;
      position += pass.rows;
      KdaRun one = verbs[i], other = fused[i];
      one.t = one.t.first(pass.rows);
      other.t = other.t.first(pass.rows);
      b.begin(step);
      by_verbs(b, whole.kda, one);
      b.fused(Block::kKda, whole, other.state, other.t);
      b.end();
      compare(cat("pass of ", pass.rows, " rows behind a fold of ", pass.fold));
    }
    if (commit > 0) {
      b.commit(verbs[i].state, commit);
      b.commit(fused[i].state, commit);
      compare("committed");
    }
  }
}

ModelShape kda_shape(int64_t head_dim, int64_t kernel = 4) {
  ModelShape shape = test::small_shape();
  shape.hidden = 64;
  shape.heads = 2;
  shape.head_dim = head_dim;
  shape.conv_kernel = kernel;
  return shape;
}

TEST(CudaFused, KdaOfEveryRowCountAndFoldEqualsTheVerbs) {
  const std::vector<int64_t> dims =
      test::emulates_briefly() ? std::vector<int64_t>{32} : std::vector<int64_t>{32, 64, 128};
  for (const int64_t d : dims) {
    for (int64_t n = 1; n <= kMaxVerify; ++n) {
      expect_same(kda_shape(d), {{StepKind::kVerify, n, 0}, {StepKind::kVerify, 9 - n, n}}, 9 - n);
      expect_same(kda_shape(d), {{StepKind::kVerify, 8, 0}, {StepKind::kDecode, n, 9 - n}}, 0);
    }
  }
}

TEST(CudaFused, KdaOfEveryWidthEqualsTheVerbs) {
  for (const int64_t d : {64, 128})
    expect_same(kda_shape(d),
                {{StepKind::kDecode, 1, 0},
                 {StepKind::kVerify, 4, 0},
                 {StepKind::kVerify, 1, 3},
                 {StepKind::kDecode, 1, 1},
                 {StepKind::kVerify, 8, 0}},
                5);
  expect_same(kda_shape(32, 2), {{StepKind::kVerify, 3, 0}, {StepKind::kDecode, 1, 2}}, 0);
}

TEST(CudaFused, OtherWidthsAndTheSwitchTakeTheVerbs) {
  ModelShape shape = kda_shape(96);
  Verbs wide(shape, test::Family::kCuda);
  EXPECT_FALSE(wide.backend(1).plan().fused[static_cast<int>(Block::kKda)]);
  BackendOptions options;
  options.fuse = false;
  TestModel m("cuda", 1, test::Release::kFp4, "{}", options);
  for (const bool fused : m.model.plan.fused) EXPECT_FALSE(fused);
  EXPECT_EQ(m.model.plan.text, "");
}

// ---- sessions ----

struct Outcome {
  std::vector<int32_t> tokens;
  std::vector<float> logits;
};

Outcome outcome(bool fuse, int depth, MoeKernel moe) {
  BackendOptions options;
  options.fuse = fuse;
  options.moe = moe;
  TestModel m("cuda", 5, test::Release::kFp4, "{}", options);
  const auto session = m.session(64, 16);
  SamplerParams params;
  params.temperature = 1;
  params.seed = 7;
  Outcome out;
  out.tokens = test::decode(m, *session, m.prompt(11, 3), test::emulates_briefly() ? 8 : 24, depth,
                            AcceptRule::kCoupled, params)
                   .tokens;
  const auto logits = session->cycle_logits(0);
  out.logits.assign(logits.begin(), logits.end());
  return out;
}

TEST(CudaFused, SessionsHaveTheBitsOfTheVerbs) {
  for (const MoeKernel moe : {MoeKernel::kPlain, MoeKernel::kPacked})
    for (const int depth : {0, 3}) {
      const Outcome fused = outcome(true, depth, moe), verbs = outcome(false, depth, moe);
      EXPECT_EQ(fused.tokens, verbs.tokens) << "depth " << depth;
      EXPECT_EQ(fused.logits, verbs.logits) << "depth " << depth;
    }
}

}  // namespace
}  // namespace spk
