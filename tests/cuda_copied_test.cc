// Packed experts by bulk copies (kernels/copied.cuh) have the bits of those by registers, whose
// definition cuda_packed_test.cc has: one to eight rows, whatever experts they share, on devices of
// any number of blocks, as verbs and as a block with the addition behind it.
#include "base/error.h"
#include "kernels/args.cuh"
#include "support/verbs.h"

#include <gtest/gtest.h>

#include <vector>

namespace spk {
namespace {

using test::random_moe;
using test::Verbs;

// Two of the same: one with copies, one without. The generators begin alike.
struct Pair {
  Pair(const ModelShape& shape, int multiprocessors)
      : copied(shape, test::Family::kCuda, MoeKernel::kPacked, multiprocessors, Resident::kOff),
        plain(shape, test::Family::kCuda, MoeKernel::kPacked, multiprocessors, Resident::kOff,
              false) {}
  Verbs copied, plain;
};

enum class Choice { kApart, kShared, kTwice };

std::vector<int32_t> choose(Verbs& v, Choice choice, int64_t rows) {
  const int64_t top_k = v.shape().top_k, experts = v.shape().experts;
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < rows * top_k; ++i) {
    const auto random = static_cast<int64_t>(v.generator()() % 3);
    const int64_t id = choice == Choice::kApart    ? i % experts
                       : choice == Choice::kShared ? i % top_k + random
                                                   : i / 2 % 2;  // as known-answer tests do
    ids.push_back(static_cast<int32_t>(id % experts));
  }
  return ids;
}

struct Answer {
  std::vector<std::vector<float>> o, x, y;
  uint64_t launches = 0;
};

Answer answer(Verbs& v, Choice choice, int64_t rows, bool fused) {
  const ModelShape& shape = v.shape();
  const auto moe = random_moe(v, Format::kMxfp4, Format::kFp8, 4.0, 5.0);
  const auto norm = v.vector(shape.hidden, [&](int64_t, int64_t) { return 1 + 0.1 * v.normal(); });
  const auto h = v.random(rows, shape.hidden), o = v.random(rows, shape.hidden),
             x = v.random(rows, shape.hidden), y = v.random(rows, shape.hidden),
             weight = v.random(rows, shape.top_k);
  const auto ids = v.ints(choose(v, choice, rows), shape.top_k);
  const auto forced = v.ints(choose(v, choice, rows), shape.top_k);
  Answer a;
  for (size_t i = 1; i < v.size(); ++i) {
    Backend& b = v.backend(i);
    Step step;
    step.kind = rows == 1 ? StepKind::kDecode : StepKind::kVerify;
    step.rows = rows;
    if (fused) step.routes_in = forced[i];
    b.begin(step);
    const uint64_t before = b.counters().joins;
    if (fused) {
      Layer layer;
      layer.is_moe = true;
      layer.moe = moe[i];
      Scratch t;
      t.x = x[i], t.h = h[i], t.o = o[i], t.route_weight = weight[i], t.route_id = ids[i];
      b.fused(Block::kMoe, layer, {}, t);
      b.add(x[i], o[i]);
      b.rms_norm(x[i], norm[i], y[i]);
    } else {
      b.experts(h[i], moe[i], ids[i], weight[i], o[i]);
    }
    a.launches = b.counters().joins - before;
    a.o.push_back(v.read(o, i));
    a.x.push_back(v.read(x, i));
    a.y.push_back(v.read(y, i));
  }
  return a;
}

void expect_equal(const ModelShape& shape, int multiprocessors, Choice choice, int64_t rows,
                  bool fused) {
  Pair p(shape, multiprocessors);
  const Answer copied = answer(p.copied, choice, rows, fused);
  const Answer plain = answer(p.plain, choice, rows, fused);
  const std::string what =
      cat(shape.hidden, "x", shape.expert_dim, ", ", rows, " rows, ", multiprocessors,
          " multiprocessors, choice ", static_cast<int>(choice), fused ? ", fused" : "");
  EXPECT_EQ(copied.o, plain.o) << what;
  EXPECT_EQ(copied.x, plain.x) << what;
  EXPECT_EQ(copied.y, plain.y) << what;
  // Items, up, down with the sum; plain ones have a launch for it. Fused: router, items, up, down
  // with the addition, norm; or its sum, addition and norm in one.
  EXPECT_EQ(copied.launches, fused ? 5u : 3u) << what;
  EXPECT_EQ(plain.launches, fused ? 5u : 4u) << what;
}

TEST(CudaCopied, ExpertsHaveTheBitsOfThoseByRegisters) {
  const std::vector<int64_t> row_counts = test::emulates_briefly()
                                              ? std::vector<int64_t>{1, 2, 3, 8}
                                              : std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8};
  for (const int64_t rows : row_counts)
    for (const Choice choice : {Choice::kApart, Choice::kShared, Choice::kTwice})
      for (const int multiprocessors : {1, 3, 40})
        expect_equal(test::expert_shape(384, 64, 128), multiprocessors, choice, rows,
                     rows % 2 != 0);
}

// More than three groups a lane, groups that are no multiple of the lanes, a rest of rows.
TEST(CudaCopied, OtherWidths) {
  for (const int64_t width : {96, 896})
    for (const int64_t rows : {1, 4})
      expect_equal(test::expert_shape(128, width, 192), 3, Choice::kShared, rows, false);
}

TEST(CudaCopied, FlashsShapes) {
  for (const int64_t rows : {1, 4}) {
    if (rows > 1 && test::emulates_briefly()) continue;
    expect_equal(test::expert_shape(2560, 768, 768), 132, Choice::kShared, rows, false);
  }
}

}  // namespace
}  // namespace spk
