// Attention in pieces: a row's bits depend on its position and on the data alone. Passes of one to
// eight rows and one of nine, which takes no pieces, around positions where segments grow, with one
// and with two tiles of heads in a block.
#include "base/error.h"
#include "kernels/args.cuh"
#include "support/verbs.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace spk {
namespace {

using test::Family;
using test::Verbs;

TEST(CudaAttend, SegmentsCoverAllPositionsInOrder) {
  constexpr int64_t kEnd = int64_t{1} << 21;
  static_assert(gpu::segment_of(0) == 0 && gpu::segment_begin(0) == 0);
  int64_t position = 0;
  for (int segment = 0; position < kEnd; ++segment) {
    ASSERT_EQ(gpu::segment_begin(segment), position);
    const int64_t next = gpu::segment_begin(segment + 1), length = next - position;
    ASSERT_GT(length, 0);
    ASSERT_EQ(length % gpu::kAttendStep, 0);
    ASSERT_LE(length, std::max<int64_t>(gpu::kAttendStep, next / 32));
    for (const int64_t p : {position, position + length / 2, next - 1})
      ASSERT_EQ(gpu::segment_of(p), segment) << p;
    position = next;
  }
  EXPECT_EQ(gpu::segment_of(2047) + 1, gpu::segment_of(2048));
  EXPECT_EQ(gpu::segment_of(32768), 288);  // pieces of z at that context: 288 x 64 KB
}

ModelShape shape_of(int64_t heads, int64_t latent = 32, int64_t rope = 16) {
  ModelShape shape = test::small_shape();
  shape.heads = heads;
  shape.latent = latent;
  shape.rope = rope;
  shape.rope_freq.resize(static_cast<size_t>(rope / 2), 0.01);
  return shape;
}

// Rows first .. first + 8 of a cache that goes on behind them, at once and in passes of `counts`.
void expect_same_rows(const ModelShape& shape, int64_t first, const std::vector<int64_t>& counts,
                      int multiprocessors) {
  constexpr int64_t kRows = gpu::kMaxRowsInvariant + 1;
  const int64_t heads = shape.heads;
  Verbs v(shape, Family::kCuda, MoeKernel::kPlain, multiprocessors);
  const auto number = [&](int64_t, int64_t) { return v.normal(); };
  const auto latent = v.rows(first + kRows + 3, shape.latent + shape.rope, number, 4);
  const auto q_latent = v.random(kRows, heads * shape.latent);
  const auto q = v.random(kRows, heads * (shape.nope + shape.rope));
  const auto z = v.random(kRows, heads * shape.latent);
  const auto run = [&](Backend& b, size_t i, int64_t at, int64_t n, const Rows& to) {
    Step step;
    step.kind = n == 1 ? StepKind::kDecode : n < kRows ? StepKind::kVerify : StepKind::kPrefill;
    step.rows = n;
    step.first_position = first + at;
    b.begin(step);
    LayerState state;
    state.latent = latent[i];
    b.latent_attend(q_latent[i].slice_rows(at, n), q[i].slice_rows(at, n), state, to);
    b.end();
  };
  v.each([&](Backend& b, size_t i) { run(b, i, 0, kRows, z[i]); });
  v.expect_close(z, 5e-6, "all rows");
  const auto floats = [](Backend& b, const Rows& r) {
    std::vector<float> x(static_cast<size_t>(r.rows * r.cols));
    b.read(r, x.data());
    return x;
  };
  const auto part = v.random(kRows, heads * shape.latent);
  for (size_t i = 1; i < v.size(); ++i) {  // 0 is the reference
    Backend& b = v.backend(i);
    int64_t at = 0;
    for (const int64_t n : counts) {
      at = at + n <= kRows ? at : 0;
      const Rows to = part[i].slice_rows(0, n);
      run(b, i, at, n, to);
      EXPECT_EQ(floats(b, to), floats(b, z[i].slice_rows(at, n)))
          << n << " rows at " << first + at << ", " << multiprocessors << " multiprocessors";
      at += n;
    }
  }
}

// Cases of a minute of emulation only where there is time.
std::vector<int64_t> all_counts() {
  if (test::emulates_briefly()) return {8, 3, 5, 1};
  return {1, 2, 3, 3, 4, 5, 6, 7, 8};
}

TEST(CudaAttend, PiecesAndTheWholeAreTheSameBits) {
  expect_same_rows(shape_of(3), 28, {1, 1, 1, 1, 1, 4}, 1);  // the second step begins at 32
  expect_same_rows(shape_of(20), 2043, all_counts(), 1);
  expect_same_rows(shape_of(20), 2043, {4, 1, 1, 1}, 1000);
}

TEST(CudaAttend, WhereSegmentsGrowAgain) {
  if (test::emulates_briefly()) {
    expect_same_rows(shape_of(3), 8187, {4, 1, 1}, 1);
  } else {
    expect_same_rows(shape_of(20), 8187, all_counts(), 1);
    expect_same_rows(shape_of(20), 16379, {4, 1, 1, 1}, 1000);
  }
}

TEST(CudaAttend, OtherShapes) {
  expect_same_rows(shape_of(2, 512, 64), 60, {4, 2, 1}, 1);
  expect_same_rows(shape_of(33, 64, 32), 60, {4, 2, 1}, 1);  // a tile of one head, a block of none
  expect_same_rows(shape_of(2, 80, 2), 60, {4, 2, 1}, 1);    // rows are not whole loads
}

}  // namespace
}  // namespace spk
