// Every verb of the cpu and the cuda back end against the reference (tolerances below), and bit for
// bit among instruction sets, row counts and team sizes.
//
// Tolerance of a sum of n products in float: each of the n / 16 steps of a lane and the 4 of the
// final reduction rounds by at most eps / 2 = 6e-8 of the running sum; as random walks, relative to
// the norm of a whole row of results, that is about 6e-8 * sqrt(n / 16 + 4). kStep leaves a factor
// of four for shapes where the results cancel.
#include "support/verbs.h"

#include "base/error.h"
#include "base/types.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace spk {
namespace {

using test::small_shape;
using test::Verbs;

SPK_EACH_FAMILY(Matmul);
SPK_EACH_FAMILY(Formats);
SPK_EACH_FAMILY(Norm);
SPK_EACH_FAMILY(Activations);
SPK_EACH_FAMILY(Embed);

constexpr Format kAllFormats[] = {Format::kF32,   Format::kBf16, Format::kFp8,
                                  Format::kMxfp4, Format::kInt4, Format::kFp8Row};
constexpr double kStep = 2.5e-7;

double sum_tolerance(int64_t n) { return kStep * std::sqrt(static_cast<double>(n) / 16 + 4); }

bool four_bit(Format f) { return f == Format::kMxfp4 || f == Format::kInt4; }

TEST_P(Matmul, EqualsReferenceInEveryFormatAndShape) {
  Verbs v(small_shape(), GetParam());
  struct Shape {
    int64_t rows, cols;
  };
  for (Format format : kAllFormats) {
    for (Shape shape : {Shape{7, 32}, {32, 64}, {130, 160}, {5, 250}, {257, 320}, {64, 2560}}) {
      if (four_bit(format) && shape.cols % 32 != 0) continue;
      const auto w = v.weight(shape.rows, shape.cols, format);
      for (int64_t n : {1, 2, 3, 4, 8, 9, 17, 64}) {
        const auto x = v.random(n, shape.cols);
        const auto y = v.rows(n, shape.rows, [](int64_t, int64_t) { return NAN; });
        v.begin(n == 1 ? StepKind::kDecode : StepKind::kPrefill, n, 0);
        v.each([&](Backend& b, size_t i) { b.matmul(x[i], w[i], y[i]); });
        v.expect_close(y, sum_tolerance(shape.cols),
                       cat(format_name(format), " ", shape.rows, "x", shape.cols, " n=", n));
      }
    }
  }
}

// The promise that drafts and prefill rest on: a row among others has the bits of the row alone,
// among those of a prompt however it is cut, and among those of a verify pass and the one of a
// plain step. On the device prompts of up to eight rows take the same way as drafts and more rows
// go through tiles, whose sums run in another order: there the rows of prompts above eight are
// compared.
// Whole steps of 64 columns of FP8, which a GPU takes through its matrix unit: with
// tiles that are not full, warps without a step and more steps than fit. Numbers of one row differ
// by 2^20 and more, so that their two halves have something to lose.
TEST_P(Matmul, WholeStepsOfColumnsInFp8) {
  Verbs v(small_shape(), GetParam());
  for (Format format : {Format::kFp8, Format::kFp8Row})
    for (int64_t cols : {64, 320, 4160}) {
      const auto w = v.weight(37, cols, format);
      const auto x = v.rows(kMaxVerify, cols, [&](int64_t r, int64_t c) {
        return v.normal() * std::exp2(static_cast<double>((r + c) % 41 - 20));
      });
      const auto alone = v.rows(kMaxVerify, 37, [](int64_t, int64_t) { return 0; });
      v.begin(StepKind::kDecode, 1, 0);
      for (int64_t r = 0; r < kMaxVerify; ++r)
        v.each([&](Backend& b, size_t i) {
          b.matmul(x[i].slice_rows(r, 1), w[i], alone[i].slice_rows(r, 1));
        });
      const std::string what = cat(format_name(format), ", ", cols, " columns");
      v.expect_close(alone, sum_tolerance(cols) + 0x1p-22,
                     what);  // 22 bits of each number are kept
      for (int64_t n = 1; n <= kMaxVerify; ++n) {
        const auto y = v.rows(n, 37, [](int64_t, int64_t) { return 0; });
        v.begin(StepKind::kVerify, n, 0);
        v.each([&](Backend& b, size_t i) { b.matmul(x[i].slice_rows(0, n), w[i], y[i]); });
        for (size_t i = 1; i < v.size(); ++i) {
          const auto many = v.read(y, i), one = v.read(alone, i);
          EXPECT_EQ(std::memcmp(many.data(), one.data(), many.size() * sizeof(float)), 0)
              << what << " n=" << n;
        }
      }
    }
}

TEST_P(Matmul, RowsDoNotDependOnEachOther) {
  Verbs v(small_shape(), GetParam());
  for (Format format : kAllFormats) {
    const auto w = v.weight(67, 288, format);
    const auto x = v.random(200, 288);
    for (StepKind kind : {StepKind::kPrefill, StepKind::kVerify}) {
      const auto alone = v.rows(200, 67, [](int64_t, int64_t) { return 0; });
      v.begin(kind == StepKind::kPrefill ? kind : StepKind::kDecode, 1, 0);
      for (int64_t r = 0; r < 200; ++r)
        v.each([&](Backend& b, size_t i) {
          if (i > 0) b.matmul(x[i].slice_rows(r, 1), w[i], alone[i].slice_rows(r, 1));
        });
      std::vector<std::vector<float>> tiles(v.size());  // of the device, nine rows
      for (int64_t n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 17, 64, 200}) {
        if (kind == StepKind::kVerify && n > kMaxVerify) break;
        const auto y = v.rows(n, 67, [](int64_t, int64_t) { return 0; });
        v.begin(kind, n, 0);
        v.each([&](Backend& b, size_t i) {
          if (i > 0) b.matmul(x[i].slice_rows(0, n), w[i], y[i]);
        });
        for (size_t i = 1; i < v.size(); ++i) {
          const auto many = v.read(y, i);
          if (!on_cpu() && n == kMaxVerify + 1) tiles[i] = many;
          const auto one = on_cpu() || n <= kMaxVerify ? v.read(alone, i) : tiles[i];
          const size_t same = std::min(many.size(), one.size()) * sizeof(float);
          EXPECT_EQ(std::memcmp(many.data(), one.data(), same), 0)
              << format_name(format) << " " << v.backend(i).description() << " n=" << n;
        }
      }
    }
  }
}

TEST_P(Matmul, ManyWeightsAreOneJoinAndEachIsReadOnce) {
  ModelShape shape = small_shape();
  Verbs v(shape, GetParam());
  const auto a = v.weight(512, 256, Format::kFp8), c = v.weight(300, 256, Format::kBf16),
             d = v.weight(3, 256, Format::kFp8);
  for (int64_t n : {1, 8, 64}) {
    const auto x = v.random(n, 256);
    const auto ya = v.random(n, 512), yc = v.random(n, 300), yd = v.random(n, 3);
    v.begin(StepKind::kPrefill, n, 0);
    v.each([&](Backend& b, size_t i) {
      const Counters before = b.counters();
      const Weight* const w[] = {&a[i], &c[i], &d[i]};
      const Rows y[] = {ya[i], yc[i], yd[i]};
      b.matmul_many(x[i], w, y);
      EXPECT_EQ(b.counters().weight_bytes - before.weight_bytes,
                static_cast<uint64_t>(a[i].bytes + c[i].bytes + d[i].bytes));
      if (i > 0) {  // a fork-join, or a launch per format, or in tiles per weight
        const uint64_t launches = n <= kMaxVerify ? 2u : 3u;
        EXPECT_EQ(b.counters().joins - before.joins, on_cpu() ? 1u : launches);
      }
    });
    for (const auto* y : {&ya, &yc, &yd}) v.expect_close(*y, sum_tolerance(256), "many");
  }
}

// Every code of FP8 and every E8M0 scale whose products are floats, as numbers: one column at a
// time through a unit vector, so that nothing but the decoding is seen. NaN codes (0x7f, 0xff) are
// refused by the loader.
TEST_P(Formats, EveryCodeIsExact) {
  Verbs v(small_shape(), GetParam());
  std::vector<uint8_t> twice(512);  // two rows: a single row is kept as floats
  for (size_t i = 0; i < twice.size(); ++i)
    twice[i] = static_cast<uint8_t>((i & 0x7f) == 0x7f ? 0 : i & 0xff);
  const float scales8[2] = {0.37f, 1.9e-4f};
  std::vector<uint8_t> raw8(8);
  std::memcpy(raw8.data(), scales8, 8);
  const auto w8 = v.upload(Format::kFp8, ScaleType::kF32, 2, 256, twice, raw8);

  std::vector<uint8_t> fp4,
      e8m0;  // 2 rows of 8064 columns: scale codes 0..251 (6 * 2^124 is still a float)
  for (int row = 0; row < 2; ++row)
    for (int s = 0; s < 252; ++s) {
      for (int i = 0; i < 16; ++i) fp4.push_back(static_cast<uint8_t>(i | (15 - i) << 4));
      e8m0.push_back(static_cast<uint8_t>(s));
    }
  const auto w4 = v.upload(Format::kMxfp4, ScaleType::kE8m0, 2, 252 * 32, fp4, e8m0);
  for (const auto* w : {&w8, &w4}) {
    const auto token = v.ints({0, 1}, 1);
    const auto y = v.random(2, (*w)[0].cols);
    v.begin(StepKind::kPrefill, 2, 0);
    v.each([&](Backend& b, size_t i) { b.embed((*w)[i], token[i], y[i]); });
    const auto truth = v.read(y, 0);
    for (size_t i = 1; i < v.size(); ++i) {
      const auto got = v.read(y, i);
      for (size_t k = 0; k < got.size(); ++k) ASSERT_EQ(got[k], truth[k]) << "column " << k;
    }
  }
}

TEST_P(Norm, NormsAndSums) {
  ModelShape shape = small_shape();
  Verbs v(shape, GetParam());
  for (int64_t cols : {64, 250, 2560}) {
    const auto w = v.vector(cols, [&](int64_t, int64_t) { return 1 + 0.1 * v.normal(); });
    for (int64_t n : {1, 3, 17, 200}) {
      const auto x = v.random(n, cols, 3.0), o = v.random(n, cols), y = v.random(n, cols);
      v.begin(StepKind::kPrefill, n, 0);
      v.each([&](Backend& b, size_t i) { b.rms_norm(x[i], w[i], y[i]); });
      v.expect_close(y, 4e-7, "rms_norm");
      v.each([&](Backend& b, size_t i) { b.add_rms_norm(x[i], o[i], w[i], y[i]); });
      v.expect_close(x, 1e-7, "sum");
      v.expect_close(y, 4e-7, "add_rms_norm");
    }
  }
  // A row of zeros has norm 1 / sqrt(eps): still zeros.
  const auto w = v.vector(64, [](int64_t, int64_t) { return 1; });
  const auto x = v.rows(1, 64, [](int64_t, int64_t) { return 0; }), y = v.random(1, 64);
  v.each([&](Backend& b, size_t i) { b.rms_norm(x[i], w[i], y[i]); });
  v.expect_close(y, 0, "zeros");
}

// exp, sigmoid and SiLU over their whole range, through the verbs that use them.
TEST_P(Activations, WholeRange) {
  Verbs v(small_shape(), GetParam());
  const int64_t n = 4001;
  for (double limit : {0.0, 4.0}) {
    const auto gate = v.rows(2, n, [&](int64_t r, int64_t c) {
      return (r ? 0.01 : 0.05) * (static_cast<double>(c) - 2000);
    });
    const auto up = v.random(2, n, 4.0);
    v.each([&](Backend& b, size_t i) { b.swiglu(gate[i], up[i], limit); });
    v.expect_close(gate, 2e-7, "swiglu");
    std::vector<double> truth(2 * n), got(2 * n);
    v.backend(0).read(gate[0], truth.data());
    v.backend(1).read(gate[1], got.data());
    for (size_t k = 0; k < truth.size(); ++k)  // 4 roundings, each of 6e-8 or 1.2e-7
      ASSERT_NEAR(got[k], truth[k], 5e-7 * std::fabs(truth[k]) + 1e-33) << k;
  }
  // The clamp caps the activated gate from above and up on both sides.
  const auto gate = v.rows(1, 3, [](int64_t, int64_t c) { return c < 2 ? 10 : -10; });
  const auto up = v.rows(1, 3, [](int64_t, int64_t c) { return c == 1 ? -10 : 10; });
  v.each([&](Backend& b, size_t i) { b.swiglu(gate[i], up[i], 4.0); });
  const auto got = v.read(gate, 1);
  EXPECT_EQ(got[0], 16.f);
  EXPECT_EQ(got[1], -16.f);
  EXPECT_NEAR(got[2], -10 / (1 + std::exp(10.0)) * 4, 1e-8);
}

TEST_P(Embed, RowsOfTheTableAndJoin) {
  Verbs v(small_shape(), GetParam());
  for (Format format : kAllFormats) {
    const auto table = v.weight(512, 256, format);
    const auto tokens = v.ints({0, 511, 7, 7, 300}, 1);
    const auto y = v.random(5, 256), both = v.random(5, 512);
    v.begin(StepKind::kPrefill, 5, 0);
    v.each([&](Backend& b, size_t i) {
      b.embed(table[i], tokens[i], y[i]);
      b.join(y[i], y[i], both[i]);
    });
    v.expect_close(y, 6e-8, "embed");  // FP8: the product of code and scale is rounded once
    v.expect_close(both, 6e-8, "join");
  }
}

}  // namespace
}  // namespace spk
