// The mixers and the experts of the cpu and the cuda back end against the reference: KDA with
// adversarial gates, latent attention over block and segment borders, routing with ties, experts
// with shared reads. Bit-equality as in verbs_test.cc.
#include "base/error.h"
#include "base/types.h"
#include "support/verbs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace spk {
namespace {

using test::random_moe;
using test::small_shape;
using test::Verbs;

SPK_EACH_FAMILY(KdaVerbs);
SPK_EACH_FAMILY(MlaVerbs);
SPK_EACH_FAMILY(MoeVerbs);

// ---- KDA ----

struct KdaInput {
  std::vector<Rows> q, k, v, g, beta, o, state;
};

std::vector<LayerState> states(const KdaInput& in) {
  std::vector<LayerState> made(in.state.size());
  for (size_t i = 0; i < made.size(); ++i) made[i].kda_state = in.state[i];
  return made;
}

KdaInput kda_input(Verbs& v, int64_t rows, const Verbs::Values& g) {
  const int64_t n = v.shape().heads * v.shape().head_dim;
  KdaInput in;
  in.q = v.random(rows, n);
  in.k = v.random(rows, n);
  in.v = v.random(rows, n);
  in.g = v.rows(rows, n, g);
  in.beta = v.rows(rows, v.shape().heads,
                   [&](int64_t, int64_t) { return 1 / (1 + std::exp(-v.normal())); });
  in.o = v.random(rows, n);
  in.state = v.random(n, v.shape().head_dim);  // a live state, not zeros
  return in;
}

void mix(Verbs& v, KdaInput& in, StepKind kind, int64_t first_position) {
  v.begin(kind, in.q[0].rows, first_position);
  const auto state = states(in);
  v.each([&](Backend& b, size_t i) {
    b.kda_mix(in.q[i], in.k[i], in.v[i], in.g[i], in.beta[i], state[i], in.o[i]);
  });
}

// The delta rule contracts (beta <= 1, unit keys, decay <= 1), so rounding does not
// build up over rows: a row's error is that of the terms it sums, D state products and up to 64
// chunk rows with a few roundings each, about 6e-8 * sqrt(D + 64 + ...) < 1e-6 of the values' size.
// Rows whose values nearly cancel are compared with the same absolute error, hence 1e-5: spec's
// bound for float.
TEST_P(KdaVerbs, ChunkedEqualsRecurrenceForAllGatesAndLengths) {
  ModelShape shape = small_shape();
  for (int64_t d : {64, 128}) {
    shape.head_dim = d;
    Verbs v(shape, GetParam());
    const Verbs::Values gates[] = {
        [](int64_t, int64_t) { return -5.0; },
        [](int64_t, int64_t) { return -1e-6; },
        [](int64_t r, int64_t c) { return (r + c) % 2 ? -5.0 : -1e-6; },
        [](int64_t r, int64_t) { return r % 16 == 7 ? -5.0 : -0.01; },
        [&](int64_t, int64_t) { return -5 / (1 + std::exp(-2 * v.normal())); },
    };
    const std::vector<int64_t> lengths =
        brief() ? std::vector<int64_t>{1, 8, 9, 65, 130}
                : std::vector<int64_t>{1, 2, 8, 9, 15, 16, 17, 63, 64, 65, 129, 200};
    int kind = 0;
    for (const Verbs::Values& g : gates) {
      for (const int64_t rows : lengths) {
        KdaInput in = kda_input(v, rows, g);
        mix(v, in, StepKind::kPrefill, rows % 3 ? 0 : 37);
        const std::string what = cat("gates ", kind, " rows ", rows, " D ", d);
        v.expect_close(in.o, 1e-5, what + " o");
        v.expect_close(in.state, 1e-5, what + " state");
      }
      ++kind;
    }
  }
}

TEST_P(KdaVerbs, LongPromptAtTheBound) {
  ModelShape shape = small_shape();
  shape.heads = 1;
  shape.head_dim = 128;
  Verbs v(shape, GetParam());
  for (double g : {-5.0, -2.5, -1e-3}) {
    KdaInput in = kda_input(v, emulated() ? 640 : 4096, [&](int64_t, int64_t) { return g; });
    mix(v, in, StepKind::kPrefill, 0);
    // Among 4096 rows are some with q . k near 0, whose output nearly cancels: errors relative to
    // the usual row.
    v.expect_close_overall(in.o, 1e-5, cat("o, g = ", g));
    v.expect_close(in.state, 1e-5, cat("state, g = ", g));
  }
}

// One prompt in one step or cut at any multiple of 64 gives the same bits; in single rows, nearly
// the same numbers.
TEST_P(KdaVerbs, CutsOnTheGridDoNotMatter) {
  ModelShape shape = small_shape();
  Verbs v(shape, GetParam());
  const auto gate = [&](int64_t, int64_t) { return -3 / (1 + std::exp(-v.normal())); };
  KdaInput in = kda_input(v, 200, gate);
  const auto first_state = v.read(in.state, 1);
  KdaInput cut = in;
  const int64_t n = shape.heads * shape.head_dim;
  cut.state = v.rows(n, shape.head_dim, [&](int64_t r, int64_t c) {
    return first_state[static_cast<size_t>(r * shape.head_dim + c)];
  });
  cut.o = v.random(200, n);
  mix(v, in, StepKind::kPrefill, 0);
  for (auto [from, count] : {std::pair<int64_t, int64_t>{0, 64}, {64, 128}, {192, 8}}) {
    KdaInput part;
    for (size_t i = 0; i < v.size(); ++i) {
      part.q.push_back(cut.q[i].slice_rows(from, count));
      part.k.push_back(cut.k[i].slice_rows(from, count));
      part.v.push_back(cut.v[i].slice_rows(from, count));
      part.g.push_back(cut.g[i].slice_rows(from, count));
      part.beta.push_back(cut.beta[i].slice_rows(from, count));
      part.o.push_back(cut.o[i].slice_rows(from, count));
      part.state.push_back(cut.state[i]);
    }
    mix(v, part, StepKind::kPrefill, from);
  }
  for (size_t i = 1; i < v.size(); ++i) {
    EXPECT_EQ(v.read(in.o, i), v.read(cut.o, i)) << v.backend(i).description();
    EXPECT_EQ(v.read(in.state, i), v.read(cut.state, i)) << v.backend(i).description();
  }
}

// F from -30 to 30, extreme A_log, zero q and k.
TEST_P(KdaVerbs, GatesStayInRangeAndZeroVectorsGiveZeros) {
  ModelShape shape = small_shape();
  Verbs v(shape, GetParam());
  const int64_t n = shape.heads * shape.head_dim;
  std::vector<Kda> kda(v.size());
  const auto a_log = v.vector(shape.heads, [](int64_t, int64_t h) {
    return h == 0 ? -8.0 : h == 1 ? 0.3 : 4.0;
  });
  const auto bias = v.vector(n, [&](int64_t, int64_t) { return v.normal(); });
  for (size_t i = 0; i < v.size(); ++i) {
    kda[i].a_log = a_log[i];
    kda[i].dt_bias = bias[i];
  }
  const auto f = v.rows(61, n, [&](int64_t r, int64_t) { return static_cast<double>(r) - 30; });
  const auto b = v.random(61, shape.heads, 10.0);
  v.each([&](Backend& backend, size_t i) { backend.kda_gate(f[i], b[i], kda[i]); });
  // The argument, up to exp(4) * 31 = 1,700, is rounded to float: 1e-4 absolute there, where the
  // gate is flat; where it is steep, |argument| < 10 and 1e-6. Over a row, relative to its norm:
  // 1e-6.
  v.expect_close(f, 1e-6, "g");
  v.expect_close(b, 3e-7, "beta");
  for (size_t i = 1; i < v.size(); ++i)
    for (float g : v.read(f, i)) {
      ASSERT_GE(g, -5.f);
      ASSERT_LE(g, 0.f);
    }
  for (int64_t rows : {1, 3, 40}) {
    KdaInput in = kda_input(v, rows, [](int64_t, int64_t) { return -1.0; });
    in.q = v.rows(rows, n, [](int64_t, int64_t) { return 0; });
    in.k = in.q;
    mix(v, in, StepKind::kPrefill, 0);
    for (size_t i = 1; i < v.size(); ++i)
      for (float o : v.read(in.o, i)) ASSERT_EQ(o, 0.f);
    v.expect_close(in.state, 1e-6, "state after zero keys");
  }
}

TEST_P(KdaVerbs, ConvolutionMovesItsTail) {
  for (int64_t kernel : {2, 4}) {
    ModelShape shape = small_shape();
    shape.conv_kernel = kernel;
    Verbs v(shape, GetParam());
    const int64_t n = shape.heads * shape.head_dim;
    std::vector<Kda> kda(v.size());
    v.uploading("attention.q_conv1d.weight");
    for (Weight Kda::*taps : {&Kda::conv_q, &Kda::conv_k, &Kda::conv_v}) {
      const auto w = v.weight(n, kernel, Format::kBf16, 0.5);
      for (size_t i = 0; i < v.size(); ++i) kda[i].*taps = w[i];
    }
    const auto tail = v.random(3 * (kernel - 1), n);
    for (int64_t rows : {1, 2, 3, 5, 70}) {
      const auto q = v.random(rows, n), k = v.random(rows, n), x = v.random(rows, n);
      v.begin(StepKind::kPrefill, rows, 0);
      v.each([&](Backend& b, size_t i) {
        LayerState state;
        state.conv_tail = tail[i];
        b.conv_step(q[i], k[i], x[i], kda[i], state);
      });
      for (const auto* y : {&q, &k, &x}) v.expect_close(*y, 4e-7, cat("conv rows ", rows));
      v.expect_close(tail, 0, "tail");
    }
  }
}

TEST_P(KdaVerbs, NormGate) {
  ModelShape shape = small_shape();
  Verbs v(shape, GetParam());
  const int64_t n = shape.heads * shape.head_dim;
  const auto w = v.vector(shape.head_dim, [&](int64_t, int64_t) { return 1 + 0.1 * v.normal(); });
  for (int64_t rows : {1, 5, 100}) {
    const auto o = v.random(rows, n, 0.01), gate = v.random(rows, n, 5.0);
    v.each([&](Backend& b, size_t i) { b.norm_gate(o[i], gate[i], w[i]); });
    v.expect_close(o, 5e-7, "norm_gate");
  }
}

// ---- MLA ----

struct MlaRun {
  std::vector<Rows> latent, q, q_latent, z, o;
};

// The whole path of queries through the latent for rows at positions first .. first + rows - 1,
// over a random cache.
void attend(Verbs& v, int64_t first, int64_t rows, Format format, MlaRun& run) {
  const ModelShape& s = v.shape();
  const auto kv_b = v.weight(s.heads * (s.nope + s.v_dim), s.latent, format, 0.1);
  const auto norm = v.vector(s.latent, [&](int64_t, int64_t) { return 1 + 0.1 * v.normal(); });
  const int64_t context = first + rows + 3;
  const auto filled = [&](int64_t r, int64_t) {
    return r < first ? v.normal() : NAN;  // What was never written must not be read
  };
  run.latent = v.rows(context, s.latent + s.rope, filled, 4);
  const auto kv = v.random(rows, s.latent + s.rope);
  run.q = v.random(rows, s.heads * (s.nope + s.rope));
  run.q_latent = v.random(rows, s.heads * s.latent);
  run.z = v.random(rows, s.heads * s.latent);
  run.o = v.random(rows, s.heads * s.v_dim);
  const auto gate = v.random(rows, s.heads);
  v.begin(rows == 1 ? StepKind::kDecode : StepKind::kPrefill, rows, first);
  v.each([&](Backend& b, size_t i) {
    LayerState state;
    state.latent = run.latent[i];
    b.rope(run.q[i]);
    b.latent_append(kv[i], norm[i], state);
    b.latent_absorb(run.q[i], kv_b[i], run.q_latent[i]);
    b.latent_attend(run.q_latent[i], run.q[i], state, run.z[i]);
    b.latent_expand(run.z[i], kv_b[i], run.o[i]);
    b.head_gate(run.o[i], gate[i]);
  });
}

// Scores reach 10 or so, and their rounding (eps * |score| * a few) is a relative error of the
// weights: 5e-6 at the end of the chain of five verbs.
TEST_P(MlaVerbs, EqualsReferenceAcrossBlocksAndSegments) {
  ModelShape shape = small_shape();
  for (Format format : {Format::kBf16, Format::kFp8}) {
    Verbs v(shape, GetParam());
    for (auto [first, rows] : {std::pair<int64_t, int64_t>{0, 1},
                               {5, 1},
                               {127, 1},
                               {128, 2},
                               {1023, 1},
                               {1024, 1},
                               {2500, 1},
                               {1020, 8},
                               {0, 9},
                               {60, 17},
                               {100, 64},
                               {900, 200},
                               {1010, 20}}) {
      if (brief() && rows > 30) continue;
      MlaRun run;
      attend(v, first, rows, format, run);
      const std::string what = cat(format_name(format), " first ", first, " rows ", rows);
      v.expect_close(run.q, 2e-7, what + " rope");
      v.expect_close(run.q_latent, 1e-6, what + " absorb");
      v.expect_close(run.z, 5e-6, what + " attend");
      v.expect_close(run.o, 5e-6, what + " expand");
    }
  }
}

TEST_P(MlaVerbs, FlashShapeAndYarnFactor) {
  ModelShape shape = small_shape();
  shape.heads = 2;
  shape.latent = 512;
  shape.nope = shape.v_dim = 128;
  shape.rope = 64;
  shape.rope_factor = 1.069315;
  shape.rope_freq.clear();
  for (int i = 0; i < 32; ++i) shape.rope_freq.push_back(std::pow(6e6, -2.0 * i / 64));
  Verbs v(shape, GetParam());
  MlaRun run;
  attend(v, 300, 5, Format::kFp8, run);
  v.expect_close(run.o, 5e-6, "flash");
  const auto far = v.random(2, shape.heads * (shape.nope + shape.rope));
  v.begin(StepKind::kPrefill, 2, 1000000);  // angles of 10^6 radians: in double or not at all
  v.each([&](Backend& b, size_t i) { b.rope(far[i]); });
  v.expect_close(far, 2e-7, "rope far out");
}

// A row's result must not depend on the rows beside it nor on the team: 1 thread, 2, and 7 (which
// share out segments). Precision fast has another loop for prompts.
TEST(CpuMla, RowsAndTeamsDoNotMatter) {
  const ModelShape shape = small_shape();
  const int64_t rows = 50, first = 3000, width = shape.latent + shape.rope;
  Verbs source(shape, 1);
  const auto random_rows = [&](int64_t n, int64_t cols) {
    std::vector<double> x(static_cast<size_t>(n * cols));
    for (double& value : x) value = source.normal();
    return x;
  };
  const auto cache = random_rows(first + rows, width);
  const auto ql = random_rows(rows, shape.heads * shape.latent);
  const auto q = random_rows(rows, shape.heads * (shape.nope + shape.rope));
  for (const PrecisionMode precision : {PrecisionMode::kExact, PrecisionMode::kFast}) {
    std::vector<float> truth;
    for (int threads : {1, 2, 7}) {
      BackendOptions options{threads, 0, "", false};
      options.precision = precision;
      const auto b = make_cpu_backend(options);
      b->prepare(shape);
      const auto put = [&](const std::vector<double>& x, int64_t n) {
        const auto cols = static_cast<int64_t>(x.size()) / n;
        const Rows r{b->alloc(x.size() * sizeof(float), "test"), 0, n, cols, cols};
        b->write(x.data(), r);
        return r;
      };
      LayerState state;
      state.latent = put(cache, first + rows);
      const Rows ql_rows = put(ql, rows), q_rows = put(q, rows), z = put(ql, rows);
      for (int64_t together : {rows, int64_t{1}, int64_t{4}}) {
        for (int64_t at = 0; at < rows; at += together) {
          const int64_t n = std::min(together, rows - at);
          Step step;
          step.kind = StepKind::kPrefill;
          step.rows = n;
          step.first_position = first + at;
          b->begin(step);
          b->latent_attend(ql_rows.slice_rows(at, n), q_rows.slice_rows(at, n), state,
                           z.slice_rows(at, n));
        }
        std::vector<float> got(ql.size());
        b->read(z, got.data());
        if (truth.empty()) truth = got;
        EXPECT_EQ(got, truth) << threads << " threads, " << together << " rows together";
      }
    }
  }
}

// ---- MoE ----

TEST_P(MoeVerbs, ExpertsEqualReferenceAndAreReadOnce) {
  ModelShape shape = small_shape();
  shape.shared_dim = 160;
  for (auto [routed, shared] : {std::pair{Format::kMxfp4, Format::kFp8},
                                {Format::kInt4, Format::kBf16},
                                {Format::kF32, Format::kF32}}) {
    Verbs v(shape, GetParam());
    const auto moe = random_moe(v, routed, shared, 4.0, 5.0);
    for (int64_t rows : {1, 2, 3, 8, 9, 17, 64, 200}) {
      if (brief() && rows > 30) continue;
      const auto h = v.random(rows, shape.hidden), o = v.random(rows, shape.hidden);
      const auto weight = v.random(rows, shape.top_k);
      const auto ids =
          v.ints(std::vector<int32_t>(static_cast<size_t>(rows * shape.top_k)), shape.top_k);
      v.begin(rows == 1 ? StepKind::kDecode : StepKind::kPrefill, rows, 0);
      v.each([&](Backend& b, size_t i) {
        b.route(h[i], moe[i], {}, ids[i], weight[i]);
        // Same routes for all: a flip would only say that two scores were close.
        std::vector<int32_t> chosen(static_cast<size_t>(rows * shape.top_k));
        v.backend(0).read(ids[0], chosen.data());
        b.write(chosen.data(), ids[i]);
        const Counters before = b.counters();
        b.experts(h[i], moe[i], ids[i], weight[i], o[i]);
        std::sort(chosen.begin(), chosen.end());
        const auto distinct = std::unique(chosen.begin(), chosen.end()) - chosen.begin();
        const Ffn &f = moe[i].experts[0], &s = moe[i].shared;
        if (i > 0) {
          EXPECT_EQ(b.counters().weight_bytes - before.weight_bytes,
                    static_cast<uint64_t>(distinct * (f.gate.bytes + f.up.bytes + f.down.bytes) +
                                          s.gate.bytes + s.up.bytes + s.down.bytes));
          EXPECT_LE(b.counters().joins - before.joins, on_cpu() ? 2u : 8u);
        }
      });
      v.expect_close(weight, 1e-6, "router weights");
      // Two products in a row and a sum of five: the activation's slope (below 1.1) hardly enlarges
      // the first error.
      v.expect_close(o, 2e-6, cat(format_name(routed), " rows ", rows));
    }
  }
}

TEST_P(MoeVerbs, RowsDoNotDependOnEachOther) {
  ModelShape shape = small_shape();
  Verbs v(shape, GetParam());
  const auto moe = random_moe(v, Format::kMxfp4, Format::kFp8, 0, 0);
  const int64_t rows = 40, pass = kMaxVerify;
  const auto h = v.random(rows, shape.hidden), weight = v.random(rows, shape.top_k);
  const auto one = v.random(rows, shape.hidden), all = v.random(rows, shape.hidden);
  std::vector<int32_t> chosen;
  for (int64_t i = 0; i < rows * shape.top_k; ++i)
    chosen.push_back(static_cast<int32_t>(v.generator()() % static_cast<uint64_t>(shape.experts)));
  const auto ids = v.ints(chosen, shape.top_k);
  v.begin(StepKind::kPrefill, rows, 0);
  // The device's products of more than eight rows add in another order than those of fewer, which
  // shows in the shared expert: rows of such prompts do not depend on each other among themselves.
  const int64_t piece = on_cpu() ? 1 : 10;
  v.each([&](Backend& b, size_t i) {
    b.experts(h[i], moe[i], ids[i], weight[i], all[i]);
    for (int64_t r = 0; r < rows; r += piece)
      b.experts(h[i].slice_rows(r, piece), moe[i], ids[i].slice_rows(r, piece),
                weight[i].slice_rows(r, piece), one[i].slice_rows(r, piece));
  });
  for (size_t i = 1; i < v.size(); ++i) EXPECT_EQ(v.read(one, i), v.read(all, i));
  const auto each = v.random(pass, shape.hidden), together = v.random(pass, shape.hidden);
  v.begin(StepKind::kVerify, pass, 0);
  v.each([&](Backend& b, size_t i) {
    b.experts(h[i].slice_rows(0, pass), moe[i], ids[i].slice_rows(0, pass),
              weight[i].slice_rows(0, pass), together[i]);
  });
  v.begin(StepKind::kDecode, 1, 0);
  v.each([&](Backend& b, size_t i) {
    for (int64_t r = 0; r < pass; ++r)
      b.experts(h[i].slice_rows(r, 1), moe[i], ids[i].slice_rows(r, 1), weight[i].slice_rows(r, 1),
                each[i].slice_rows(r, 1));
  });
  for (size_t i = 1; i < v.size(); ++i) EXPECT_EQ(v.read(each, i), v.read(together, i));
}

// Exact top-k, ties to the lowest index, groups left out by minus infinity although
// biased scores are negative; forced ids keep the scores' weights.
// Few experts are ranked another way than many: groups and experts of ling-nano, of one group, of
// flash, and as many as the two ways meet at.
void router_breaks_ties(test::Family family, int64_t experts, int64_t groups, int64_t keep,
                        int64_t top_k) {
  ModelShape shape = small_shape();
  shape.experts = experts;
  shape.groups = groups;
  shape.keep_groups = keep;
  shape.top_k = top_k;
  Verbs v(shape, family);
  std::vector<Moe> moe(v.size());
  const int64_t rows = 300;
  // Few different logits (-2 .. 2 in steps of 1/2), exact in float and double: many exact ties.
  const auto router = v.matrix(shape.experts, shape.hidden, [&](int64_t e, int64_t c) {
    return c == 0   ? 0.5 * static_cast<double>(e * 7 % 5 - 2)
           : c == 1 ? 0.5 * static_cast<double>(e % 3)
                    : 0;
  });
  const auto bias = v.vector(shape.experts, [](int64_t, int64_t) { return -2.0; });
  const auto h = v.rows(rows, shape.hidden, [&](int64_t, int64_t c) {
    return c < 2 ? static_cast<double>(v.generator()() % 3) - 1 : 0;
  });
  for (size_t i = 0; i < v.size(); ++i) {
    moe[i].router = router[i];
    moe[i].bias = bias[i];
  }
  const auto ids =
      v.ints(std::vector<int32_t>(static_cast<size_t>(rows * shape.top_k)), shape.top_k);
  const auto weight = v.random(rows, shape.top_k);
  v.begin(StepKind::kPrefill, rows, 0);
  v.each([&](Backend& b, size_t i) { b.route(h[i], moe[i], {}, ids[i], weight[i]); });
  std::vector<int32_t> truth(static_cast<size_t>(rows * shape.top_k)), got(truth);
  v.backend(0).read(ids[0], truth.data());
  for (size_t i = 1; i < v.size(); ++i) {
    v.backend(i).read(ids[i], got.data());
    EXPECT_EQ(got, truth) << v.backend(i).description();
  }
  v.expect_close(weight, 1e-6, "weights");

  std::vector<int32_t> wanted;
  for (int64_t i = 0; i < rows * shape.top_k; ++i)
    wanted.push_back(static_cast<int32_t>((i * 11) % shape.experts));
  const auto forced = v.ints(wanted, shape.top_k);
  v.each([&](Backend& b, size_t i) { b.route(h[i], moe[i], forced[i], ids[i], weight[i]); });
  for (size_t i = 1; i < v.size(); ++i) {
    v.backend(i).read(ids[i], got.data());
    EXPECT_EQ(got, wanted);
  }
  v.expect_close(weight, 1e-6, "forced weights");
}

TEST_P(MoeVerbs, RouterBreaksTiesByIndexAndMasksWithInfinity) {
  router_breaks_ties(GetParam(), 32, 8, 4, 4);
  if (brief()) return;
  router_breaks_ties(GetParam(), 32, 4, 2, 4);
  router_breaks_ties(GetParam(), 64, 1, 1, 6);
  router_breaks_ties(GetParam(), 128, 64, 32, 8);
  router_breaks_ties(GetParam(), 512, 8, 4, 8);
  router_breaks_ties(GetParam(), 160, 8, 3, 6);
}

}  // namespace
}  // namespace spk
