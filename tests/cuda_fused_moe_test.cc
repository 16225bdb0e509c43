// Experts of the cuda back end in fewer launches: the choice by counting, the items beside it, the
// weighted sum with the norm behind it. On emulated devices of both orders, or on the GPU.
#include "base/error.h"
#include "kernels/args.cuh"
#include "support/on_device.h"
#include "support/verbs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>

namespace spk {
namespace {

using test::OnDevice;
using test::random_moe;
using test::Verbs;

// ---- the choice ----

struct Router {
  int experts, top_k, groups, keep;
};

// In rounds: the best that is left, ties to the lower index; what is no number, and groups that are
// not kept, are minus infinity.
std::vector<int> chosen(const Router& r, const std::vector<float>& score,
                        const std::vector<float>& bias) {
  constexpr float kOut = -std::numeric_limits<float>::infinity();
  std::vector<float> value;
  for (size_t e = 0; e < score.size(); ++e) {
    const float b = 1.f / (1.f + std::exp(-score[e])) + bias[e];
    value.push_back(std::isnan(b) ? kOut : b);
  }
  const int size = r.experts / r.groups;
  std::vector<float> group;
  group.reserve(static_cast<size_t>(r.groups));
  for (int g = 0; g < r.groups; ++g) {
    std::vector<float> of(value.begin() + g * size, value.begin() + (g + 1) * size);
    std::sort(of.begin(), of.end(), std::greater<>());
    group.push_back(size > 1 ? of[0] + of[1] : of[0]);
  }
  const auto best = [](std::vector<float>& from, std::vector<bool>& open) {
    int at = -1;
    for (size_t i = 0; i < from.size(); ++i)
      if (open[i] && (at < 0 || from[i] > from[static_cast<size_t>(at)])) at = static_cast<int>(i);
    open[static_cast<size_t>(at)] = false;
    return at;
  };
  std::vector<bool> left_out(group.size(), true);
  for (int k = 0; k < r.keep; ++k) best(group, left_out);
  for (size_t e = 0; e < value.size(); ++e)
    if (left_out[e / static_cast<size_t>(size)]) value[e] = kOut;
  std::vector<bool> open(value.size(), true);
  std::vector<int> ids;
  ids.reserve(static_cast<size_t>(r.top_k));
  for (int k = 0; k < r.top_k; ++k) ids.push_back(best(value, open));
  return ids;
}

TEST(CudaRoute, CountingChoosesWhatRoundsChoose) {
  const float nan = std::nanf("");
  const Router routers[] = {{512, 8, 8, 4},  {512, 8, 1, 1},    {8, 2, 4, 2},   {257, 3, 1, 1},
                            {320, 32, 5, 2}, {1024, 32, 64, 3}, {128, 8, 8, 8}, {64, 6, 64, 9}};
  std::mt19937_64 random(7);
  for (const bool backward : {false, true}) {
    OnDevice device(backward);
    for (const Router& r : routers) {
      const int kinds = test::emulates_briefly() ? 6 : 24;
      std::vector<float> scores, bias(static_cast<size_t>(r.experts));
      for (float& b : bias) b = 0.25f * static_cast<float>(random() % 3) - 0.5f;
      for (int row = 0; row < kinds; ++row)
        for (int e = 0; e < r.experts; ++e) {
          const auto n = static_cast<float>(random() % 5);
          // Ties of many, one value, holes, hardly any numbers, and steps that all differ.
          const float kind[] = {n - 2,
                                1,
                                random() % 8 == 0 ? nan : n,
                                random() % 64 == 0 ? n : nan,
                                nan,
                                0.01f * static_cast<float>(e * 37 % r.experts) - 3};
          scores.push_back(kind[row % 6]);
        }
      std::vector<int> ids(static_cast<size_t>(kinds * r.top_k), -1);
      std::vector<float> weights(ids.size());
      gpu::RouteArgs a{};
      a.scores = {device.put(scores), r.experts};
      a.bias = device.put(bias);
      a.ids = {device.put(ids), r.top_k};
      a.weights = {device.put(weights), r.top_k};
      a.n = kinds;
      a.experts = r.experts;
      a.top_k = r.top_k;
      a.groups = r.groups;
      a.keep_groups = r.keep;
      a.scale = 2.5f;
      device.launch("route", "route", {kinds}, gpu::route_threads(r.experts), a);
      const auto got = device.get(a.ids.data, ids.size());
      for (int row = 0; row < kinds; ++row) {
        const auto truth = chosen(
            r, {scores.begin() + row * r.experts, scores.begin() + (row + 1) * r.experts}, bias);
        EXPECT_EQ(std::vector<int>(got.begin() + row * r.top_k, got.begin() + (row + 1) * r.top_k),
                  truth)
            << r.experts << " experts, row " << row;
      }
    }
  }
}

// ---- blocks ----

struct MoeLayer {
  MoeLayer(const ModelShape& shape, MoeKernel kernel, Format shared, int multiprocessors = 1)
      : v(shape, test::Family::kCuda, kernel, multiprocessors),
        moe(random_moe(v, Format::kMxfp4, shared, 4, 5)) {
    h = v.random(kMaxVerify, shape.hidden);
    norm = v.vector(shape.hidden, [&](int64_t, int64_t) { return 1 + 0.1 * v.normal(); });
    const std::vector<int32_t> none(static_cast<size_t>(kMaxVerify * shape.top_k));
    ids = v.ints(none, shape.top_k);
    for (auto* rows : {&o, &y, &mixed}) *rows = v.random(kMaxVerify, shape.hidden);
    x_start = v.random(kMaxVerify, shape.hidden);
    x = v.random(kMaxVerify, shape.hidden);
    weight = v.random(kMaxVerify, shape.top_k);
  }
  Step step(int64_t rows) const {
    Step s;
    s.kind = rows == 1 ? StepKind::kDecode : StepKind::kVerify;
    s.rows = rows;
    return s;
  }
  Layer layer(size_t i) const {
    Layer l;
    l.is_moe = true;
    l.moe = moe[i];
    return l;
  }
  Scratch scratch(size_t i, int64_t rows) const {
    Scratch t;
    t.x = x[i], t.h = h[i], t.o = o[i], t.route_weight = weight[i], t.route_id = ids[i];
    return t.first(rows);
  }
  void start(size_t i) {
    std::vector<double> values(static_cast<size_t>(kMaxVerify * v.shape().hidden));
    v.backend(i).read(x_start[i], values.data());
    v.backend(i).write(values.data(), x[i]);
  }
  std::vector<float> floats(size_t i, const Rows& rows) {
    std::vector<float> values(static_cast<size_t>(rows.rows * rows.cols));
    v.backend(i).read(rows, values.data());
    return values;
  }

  Verbs v;
  std::vector<Moe> moe;
  Verbs::Weights norm;
  std::vector<Rows> h, o, y, x, x_start, weight, mixed;
  std::vector<Ints> ids;
};

struct Found {
  std::vector<int32_t> ids;
  std::vector<float> weight, o, x, y;
  bool operator==(const Found&) const = default;
};

// `front`: behind a norm with addition, which may join.
Found run(MoeLayer& m, size_t i, int64_t rows, bool fused, const Ints& routes_in,
          const Ints& routes_out, bool front = false) {
  Backend& b = m.v.backend(i);
  m.start(i);
  Step step = m.step(rows);
  step.routes_in = routes_in;
  step.routes_out = routes_out;
  b.begin(step);
  const Scratch t = m.scratch(i, rows);
  const Layer l = m.layer(i);
  const Ints ids = routes_out ? routes_out.slice_cols(0, m.v.shape().top_k) : t.route_id;
  if (front) {
    const Rows sum = m.mixed[i].slice_rows(0, rows);
    if (fused) {
      b.add_rms_norm(t.x, sum, m.norm[i], t.h);
    } else {
      b.add(t.x, sum);
      b.rms_norm(t.x, m.norm[i], t.h);
    }
  }
  if (fused) {
    b.fused(Block::kMoe, l, {}, t);
  } else {
    b.route(t.h, l.moe, routes_in ? routes_in.slice_cols(0, m.v.shape().top_k) : Ints{}, ids,
            t.route_weight);
    b.experts(t.h, l.moe, ids, t.route_weight, t.o);
  }
  b.add(t.x, t.o);
  const Rows y = m.y[i].slice_rows(0, rows);
  b.rms_norm(t.x, m.norm[i], y);
  Found found;
  found.ids.resize(static_cast<size_t>(rows * m.v.shape().top_k));
  b.read(ids, found.ids.data());
  found.weight = m.floats(i, t.route_weight);
  found.o = m.floats(i, t.o);
  found.x = m.floats(i, t.x);
  found.y = m.floats(i, y);
  return found;
}

void expect_equal(const Found& a, const Found& b, const std::string& what) {
  EXPECT_EQ(a.ids, b.ids) << what;
  EXPECT_EQ(a.weight, b.weight) << what;
  EXPECT_EQ(a.o, b.o) << what;
  EXPECT_EQ(a.x, b.x) << what;
  EXPECT_EQ(a.y, b.y) << what;
}

// Packed and plain experts, a shared one that joins and one that does not; chosen, forced and kept
// routes. Two launches for the router, two for the experts, one for sum, addition and norm.
TEST(CudaFusedMoe, EqualsTheVerbs) {
  const std::pair<MoeKernel, Format> cases[] = {{MoeKernel::kPacked, Format::kFp8},
                                                {MoeKernel::kPacked, Format::kMxfp4},
                                                {MoeKernel::kPlain, Format::kFp8},
                                                {MoeKernel::kPlain, Format::kBf16}};
  const std::vector<int64_t> row_counts = test::emulates_briefly()
                                              ? std::vector<int64_t>{1, 3}
                                              : std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8};
  for (const auto& [kernel, shared] : cases) {
    MoeLayer m(test::expert_shape(320, 64, 128), kernel, shared);
    const int64_t columns = m.v.shape().top_k + 3;
    std::vector<int32_t> routes;
    for (int64_t i = 0; i < kMaxVerify * columns; ++i)
      routes.push_back(static_cast<int32_t>(i * 5 % m.v.shape().experts));
    const auto in = m.v.ints(routes, columns), out = m.v.ints(routes, columns);
    for (size_t i = 1; i < m.v.size(); ++i)
      for (const int64_t rows : row_counts) {
        const std::string what = cat(rows, " rows, shared ", format_name(shared));
        expect_equal(run(m, i, rows, true, {}, {}), run(m, i, rows, false, {}, {}), what);
        const Ints forced = in[i].slice_rows(0, rows), kept = out[i].slice_rows(0, rows);
        expect_equal(run(m, i, rows, true, forced, {}), run(m, i, rows, false, forced, {}), what);
        expect_equal(run(m, i, rows, true, {}, kept), run(m, i, rows, false, {}, kept), what);
        const Backend& b = m.v.backend(i);
        const Counters before = b.counters();
        run(m, i, rows, true, {}, {});
        const Counters middle = b.counters();
        run(m, i, rows, false, {}, {});
        const Counters after = b.counters();
        EXPECT_EQ(middle.weight_bytes - before.weight_bytes,
                  after.weight_bytes - middle.weight_bytes);
        EXPECT_EQ(middle.packed_experts - before.packed_experts,
                  after.packed_experts - middle.packed_experts);
        EXPECT_EQ(middle.plain_experts - before.plain_experts,
                  after.plain_experts - middle.plain_experts);
        EXPECT_EQ(middle.joins - before.joins, shared == Format::kBf16 ? 9u : 5u);
      }
  }
}

// With the norm in front: one launch where the device takes the blocks of all rows at once, two of
// experts, one for sum, addition and norm. Row after row with the same counters, which each launch
// must leave at zero.
TEST(CudaFusedMoe, TheNormInFrontJoinsWhereAllRowsRunAtOnce) {
  const std::vector<int64_t> row_counts =
      test::emulates_briefly() ? std::vector<int64_t>{1, 4} : std::vector<int64_t>{1, 2, 4, 7, 8};
  const bool on_gpu = std::getenv("SPARKLING_TEST_GPU") != nullptr;  // has as many as it has
  for (const int multiprocessors : {1, 132}) {
    MoeLayer m(test::expert_shape(320, 64, 128), MoeKernel::kPacked, Format::kFp8, multiprocessors);
    const int64_t columns = m.v.shape().top_k + 3;
    std::vector<int32_t> routes;
    for (int64_t i = 0; i < kMaxVerify * columns; ++i)
      routes.push_back(static_cast<int32_t>(i * 5 % m.v.shape().experts));
    const auto in = m.v.ints(routes, columns);
    for (size_t i = 1; i < m.v.size(); ++i) {
      run(m, i, kMaxVerify, true, {}, {});  // work space that grows would make the norm first
      for (const int64_t rows : row_counts) {
        const std::string what = cat(rows, " rows on ", multiprocessors);
        const Counters before = m.v.backend(i).counters();
        const Found joined = run(m, i, rows, true, {}, {}, true);
        EXPECT_EQ(m.v.backend(i).counters().joins - before.joins,
                  rows == 1 || multiprocessors > 1 || on_gpu ? 4u : 6u)
            << what;
        expect_equal(joined, run(m, i, rows, false, {}, {}, true), what);
        const Ints forced = in[i].slice_rows(0, rows);
        expect_equal(run(m, i, rows, true, forced, {}, true),
                     run(m, i, rows, false, forced, {}, true), what);
      }
    }
  }
}

// A sum that is waiting for its norm is made by whatever comes instead, before it.
TEST(CudaFusedMoe, AnythingElseMakesThePendingSumFirst) {
  MoeLayer m(test::expert_shape(320, 64, 96), MoeKernel::kPacked, Format::kFp8);
  const int64_t rows = 2, hidden = m.v.shape().hidden;
  const size_t i = 1;
  Backend& b = m.v.backend(i);
  const Layer l = m.layer(i);
  const Scratch t = m.scratch(i, rows);
  const auto other = m.v.random(rows, hidden);
  const auto few = m.v.ints({1, 2}, 1);
  std::vector<double> doubles(static_cast<size_t>(rows * hidden));
  std::vector<int32_t> ints(2);
  int64_t more = 400;
  using Call = std::function<void()>;
  const std::map<std::string, Call> calls = {
      {"read", [&] { b.read(other[i], doubles.data()); }},
      {"write", [&] { b.write(doubles.data(), other[i]); }},
      {"read ints", [&] { b.read(few[i], ints.data()); }},
      {"write ints", [&] { b.write(ints.data(), few[i]); }},
      {"zero", [&] { b.zero(other[i]); }},
      {"copy", [&] { b.copy(t.h, other[i]); }},
      {"begin", [&] { b.begin(m.step(rows)); }},
      {"wait", [&] { b.wait(); }},
      {"norm of another", [&] { b.rms_norm(t.h, m.norm[i], other[i]); }},
      {"norm of some rows",
       [&] { b.rms_norm(t.x.slice_rows(1, 1), m.norm[i], other[i].slice_rows(0, 1)); }},
      {"norm with addition", [&] { b.add_rms_norm(other[i], t.h, m.norm[i], other[i]); }},
      {"add to another", [&] { b.add(other[i], t.h); }},
      {"another block", [&] { b.route(t.h, l.moe, {}, t.route_id, t.route_weight); }},
      {"work space", [&] {
         // More rows than ever before: what the sum reads is given back.
         const auto large = m.v.random(more += 200, hidden), to = m.v.random(more, 4);
         const auto ids = m.v.ints(std::vector<int32_t>(static_cast<size_t>(more * 4)), 4);
         b.route(large[i], l.moe, {}, ids[i], to[i]);
       }}};
  const Found truth = run(m, i, rows, false, {}, {});
  for (const auto& [name, call] : calls)
    for (const bool added : {false, true}) {
      m.start(i);
      const std::vector<float> x = m.floats(i, t.x);
      b.zero(t.o);
      b.begin(m.step(rows));
      b.fused(Block::kMoe, l, {}, t);
      if (added) b.add(t.x, t.o);
      call();
      EXPECT_EQ(m.floats(i, t.o), truth.o) << name;
      EXPECT_EQ(m.floats(i, t.x), added ? truth.x : x) << name;
    }
}

}  // namespace
}  // namespace spk
