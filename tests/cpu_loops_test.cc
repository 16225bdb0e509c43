// The inner loops that make prompts quick, against their definitions bit for bit, on every
// instruction set that this processor has: tiles of products of floats for any number of rows, sums
// of weighted rows, the largest of a row, the decays of a sub-block.
#include "backend/cpu/kernels.h"
#include "support/verbs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace spk::cpu {
namespace {

class CpuLoops : public testing::TestWithParam<std::string> {
 protected:
  const Kernels& kernels_ = select_kernels(GetParam());
  std::mt19937_64 random_{11};
  std::normal_distribution<float> normal_;

  std::vector<float> floats(int64_t n) {
    std::vector<float> made(static_cast<size_t>(n));
    for (float& x : made) x = normal_(random_);
    return made;
  }
};

INSTANTIATE_TEST_SUITE_P(Each, CpuLoops, testing::ValuesIn(test::available_isas()),
                         [](const auto& isa) { return isa.param; });

// One chain of multiply-adds per number, from what is there, whatever tile it falls into; A as it
// lies and transposed; nothing beside C is written.
TEST_P(CpuLoops, GemmIsItsDefinitionForAnyNumberOfRows) {
  const int64_t ldb = 200, ldc = 210, most = 20;
  for (const int64_t n : {16, 48, 64, 128, 192})
    for (const int64_t k : {1, 7, 64})
      for (int64_t m = 1; m <= most; ++m)
        for (const bool across : {false, true})
          for (const Accumulate mode :
               {Accumulate::kSet, Accumulate::kAdd, Accumulate::kSubtract}) {
            const auto a = floats(most * 64), b = floats(k * ldb), before = floats(most * ldc);
            const int64_t row = across ? 1 : 64, step = across ? most : 1;
            std::vector<float> c = before;
            kernels_.gemm({m, n, k, a.data(), row, step, b.data(), ldb, c.data(), ldc, mode});
            for (int64_t i = 0; i < most; ++i)
              for (int64_t j = 0; j < ldc; ++j) {
                const auto at = static_cast<size_t>(i * ldc + j);
                float truth = before[at];
                if (i < m && j < n) {
                  if (mode == Accumulate::kSet) truth = 0;
                  for (int64_t p = 0; p < k; ++p) {
                    const float factor = a[static_cast<size_t>(i * row + p * step)];
                    truth = std::fma(mode == Accumulate::kSubtract ? -factor : factor,
                                     b[static_cast<size_t>(p * ldb + j)], truth);
                  }
                }
                ASSERT_EQ(c[at], truth) << m << "x" << n << "x" << k << " at " << i << ", " << j;
              }
          }
}

TEST_P(CpuLoops, WeightedSumTakesItsRowsInOrder) {
  const int64_t stride = 70;
  const auto table = floats(9 * stride), weights = floats(8), last = floats(stride);
  const std::vector<int64_t> rows = {4, 0, 8, 8, 2, 7, 1, 3};
  for (const int64_t n : {1, 16, 33, 64})
    for (int64_t count = 1; count <= 8; ++count)
      for (const bool more : {false, true}) {
        std::vector<float> y(static_cast<size_t>(stride), 7.f);
        kernels_.weighted_sum({table.data(), stride, rows.data(), weights.data(), count,
                               more ? last.data() : nullptr},
                              n, y.data());
        for (int64_t c = 0; c < stride; ++c) {
          const auto at = static_cast<size_t>(c);
          const auto value = [&](int64_t j) {
            return table[static_cast<size_t>(rows[static_cast<size_t>(j)] * stride + c)];
          };
          float truth = weights[0] * value(0);
          for (int64_t j = 1; j < count; ++j)
            truth = std::fma(weights[static_cast<size_t>(j)], value(j), truth);
          if (more) truth += last[at];
          ASSERT_EQ(y[at], c < n ? truth : 7.f) << count << " rows of " << n << " at " << c;
        }
      }
}

TEST_P(CpuLoops, LargestLooksAtEveryNumberAndNoNaN) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (int64_t n = 1; n <= 70; ++n)
    for (int64_t where = 0; where < n; ++where) {
      auto x = floats(n + 1);
      for (float& each : x) each = -std::abs(each) - 1;
      x[static_cast<size_t>(where)] = -.5f;
      x[static_cast<size_t>(n)] = 1;  // behind the end
      if (n > 1) x[static_cast<size_t>((where + 1) % n)] = std::nanf("");
      ASSERT_EQ(kernels_.largest(x.data(), n), -.5f) << where << " of " << n;
    }
  const float none[] = {std::nanf(""), -kInfinity};
  EXPECT_EQ(kernels_.largest(none, 2), -kInfinity);
}

// Every factor against exp in double. Sums of up to 16 log decays are off by 16 half units of 80,
// 16 * 4e-6 at the bound of -5, which no order of summation avoids; products by a few roundings.
// Bits are those of the generic loops.
TEST_P(CpuLoops, DecaysOfASubBlock) {
  const int64_t d = 32, stride = 40;
  const Kernels& plain = select_kernels("generic");
  for (const float lowest : {-5.f, -.3f, -1e-6f})
    for (int64_t rows = 1; rows <= 16; ++rows) {
      const auto q = floats(rows * d), k = floats(rows * d);
      auto g = floats(rows * stride);
      for (float& each : g) each = lowest / (1 + std::exp(-each));
      if (rows % 2 == 0) std::fill(g.begin(), g.end(), lowest);
      std::vector<float> decay(static_cast<size_t>(d), .25f), other_decay = decay;
      const auto run = [&](const Kernels& kernels, std::vector<float>& carried) {
        std::vector<float> out(static_cast<size_t>(8 * rows * d + d));
        float* at[8];
        for (int64_t i = 0; i < 8; ++i) at[i] = out.data() + i * rows * d;
        kernels.kda_decay({rows, d, g.data(), stride, q.data(), k.data(), at[0], at[1], at[2],
                           at[3], at[4], at[5], at[6], at[7], carried.data(),
                           out.data() + 8 * rows * d});
        return out;
      };
      const auto out = run(kernels_, decay);
      EXPECT_EQ(out, run(plain, other_decay));
      EXPECT_EQ(decay, other_decay);
      for (int64_t c = 0; c < d; ++c) {
        std::vector<double> sum;
        double total = 0;
        for (int64_t i = 0; i < rows; ++i)
          sum.push_back(total += static_cast<double>(g[static_cast<size_t>(i * stride + c)]));
        const double middle = sum[static_cast<size_t>(rows / 2)];
        const auto near = [&](double got, double truth, const char* what) {
          ASSERT_LE(std::abs(got - truth), 8e-5 * std::abs(truth) + 1e-37)
              << what << ", rows " << rows << " bound " << lowest;
        };
        for (int64_t i = 0; i < rows; ++i) {
          const auto here = static_cast<size_t>(i * d + c), all = static_cast<size_t>(rows * d);
          const double s = sum[static_cast<size_t>(i)], x = q[here], y = k[here];
          near(out[here], x * std::exp(s), "start q");
          near(out[here + all], y * std::exp(s), "start k");
          near(out[here + 2 * all], x * std::exp(s) / 4, "chunk q");
          near(out[here + 3 * all], y * std::exp(s) / 4, "chunk k");
          near(out[here + 4 * all], x * std::exp(s - middle), "middle q");
          near(out[here + 5 * all], y * std::exp(s - middle), "middle k");
          near(out[here + 6 * all], y * std::exp(middle - s), "right");
          near(out[here + 7 * all], y * std::exp(total - s), "end k");
        }
        near(out[static_cast<size_t>(8 * rows * d + c)], std::exp(total), "block decay");
        near(decay[static_cast<size_t>(c)], std::exp(total) / 4, "decay");
      }
    }
}

}  // namespace
}  // namespace spk::cpu
