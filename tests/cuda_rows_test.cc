// Products of one to eight rows on devices of few and of many multiprocessors, which cut them
// differently: rows to blocks of their own, a small product beside the tiles by blocks of its own,
// by those that have a turn less, or by all. The bits are those of each row alone on any of them.
// On emulated devices of both orders, or on the GPU.
#include "base/error.h"
#include "base/types.h"
#include "support/verbs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace spk {
namespace {

using test::small_shape;
using test::Verbs;
using Bits = std::vector<std::vector<float>>;  // of each row alone, by what is asked for

constexpr int kMultiprocessors[] = {1, 2, 5, 132};

Rows row(const Rows& rows, int64_t r, int64_t n = 1) { return rows.slice_rows(r, n); }

void expect_bits(const std::vector<float>& got, const std::vector<float>& truth,
                 const std::string& what) {
  ASSERT_LE(got.size(), truth.size()) << what;
  EXPECT_EQ(std::memcmp(got.data(), truth.data(), got.size() * sizeof(float)), 0) << what;
}

// Every seed is the same, so every device gets the same numbers.
TEST(CudaRows, RowsOfSmallMatricesDoNotDependOnTheCut) {
  const Format formats[] = {Format::kF32, Format::kBf16, Format::kMxfp4, Format::kInt4};
  Bits first;
  for (const int multiprocessors : kMultiprocessors) {
    Verbs v(small_shape(), test::Family::kCuda, MoeKernel::kPlain, multiprocessors);
    Bits bits;
    for (const Format format : formats) {
      const auto w = v.weight(70, 2592, format);
      const auto x = v.random(kMaxVerify, 2592);
      const auto zero = [](int64_t, int64_t) { return 0; };
      const auto alone = v.rows(kMaxVerify, 70, zero);
      v.begin(StepKind::kDecode, 1, 0);
      for (int64_t r = 0; r < kMaxVerify; ++r)
        v.each([&](Backend& b, size_t i) {
          if (i > 0) b.matmul(row(x[i], r), w[i], row(alone[i], r));
        });
      bits.push_back(v.read(alone, 1));
      for (int64_t n = 1; n <= kMaxVerify; ++n) {
        const auto y = v.rows(n, 70, zero);
        v.begin(StepKind::kVerify, n, 0);
        v.each([&](Backend& b, size_t i) {
          if (i > 0) b.matmul(row(x[i], 0, n), w[i], y[i]);
        });
        for (size_t i = 1; i < v.size(); ++i)
          expect_bits(v.read(y, i), bits.back(),
                      cat(format_name(format), " n=", n, " on ", multiprocessors));
      }
    }
    if (first.empty()) first = bits;
    for (size_t k = 0; k < bits.size(); ++k)
      expect_bits(bits[k], first[k], cat("device of ", multiprocessors));
  }
}

// FP8 of several numbers of tiles, each with a BF16 matrix of the same x; rows that allow loads of
// sixteen bytes and rows that do not.
TEST(CudaRows, SmallProductsBesideTilesHaveTheirOwnBits) {
  for (const int multiprocessors : kMultiprocessors) {
    Verbs v(small_shape(), test::Family::kCuda, MoeKernel::kPlain, multiprocessors);
    for (const int64_t rows : {16, 37, 160})
      for (const int64_t shift : {0, 1}) {
        const int64_t cols = 1408;
        const auto w = v.weight(rows, cols, Format::kFp8);
        const auto side = v.weight(21, cols, Format::kBf16);
        const auto wide = v.rows(kMaxVerify, cols + 4, [&](int64_t r, int64_t c) {
          return v.normal() * std::exp2(static_cast<double>((r + c) % 41 - 20));
        });
        const auto zero = [](int64_t, int64_t) { return 0; };
        const auto y = v.rows(kMaxVerify, rows, zero), z = v.rows(kMaxVerify, 21, zero);
        const auto y1 = v.rows(kMaxVerify, rows, zero), z1 = v.rows(kMaxVerify, 21, zero);
        const auto x = [&](size_t i, int64_t r, int64_t n) {
          return wide[i].slice_cols(shift, cols).slice_rows(r, n);
        };
        v.begin(StepKind::kDecode, 1, 0);
        for (int64_t r = 0; r < kMaxVerify; ++r)
          v.each([&](Backend& b, size_t i) {
            b.matmul(x(i, r, 1), w[i], row(y1[i], r));
            b.matmul(x(i, r, 1), side[i], row(z1[i], r));
          });
        const std::string what = cat(rows, " rows, shift ", shift, ", on ", multiprocessors);
        v.expect_close(y1, 3e-6, what);
        v.expect_close(z1, 3e-6, what);
        for (int64_t n = 1; n <= kMaxVerify; ++n) {
          v.begin(StepKind::kVerify, n, 0);
          v.each([&](Backend& b, size_t i) {
            const Weight* const both[] = {&w[i], &side[i]};
            const Rows to[] = {row(y[i], 0, n), row(z[i], 0, n)};
            const uint64_t before = b.counters().joins;
            b.matmul_many(x(i, 0, n), both, to);
            if (i > 0) {
              EXPECT_EQ(b.counters().joins - before, 1u);
            }
          });
          for (size_t i = 1; i < v.size(); ++i)
            for (const auto& [got, truth] : {std::pair{&y, &y1}, std::pair{&z, &z1}}) {
              auto part = v.read(*got, i);
              part.resize(static_cast<size_t>(n * (*got)[i].cols));
              expect_bits(part, v.read(*truth, i), cat(what, " n=", n));
            }
        }
      }
  }
}

}  // namespace
}  // namespace spk
