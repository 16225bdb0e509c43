// The device's packed experts against their definition (kernels/packed.cuh) bit for bit: quantised
// rows are the cpu back end's, a product is exact sums of groups in a fixed order, whatever rows
// share it. The verb is in packed_verbs_test.cc.
#include "backend/cpu/kernels.h"
#include "base/types.h"
#include "formats/quant.h"
#include "kernels/args.cuh"
#include "support/on_device.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace spk::cuda {
namespace {

using test::OnDevice;

constexpr size_t kColumns = 32;  // of a group
constexpr int kOffset = 116, kRoundBits = 0x4b400000;

struct Quantised {
  std::vector<signed char> codes;
  std::vector<unsigned> groups;
};

Quantised on_cpu(const std::vector<float>& x) {
  std::vector<int8_t> q(x.size());
  std::vector<float> scale(x.size() / kColumns);
  std::vector<int32_t> offset(scale.size());
  cpu::kernels_generic()->quantise(x.data(), static_cast<int64_t>(x.size()), q.data(), scale.data(),
                                   offset.data());
  Quantised out{{q.begin(), q.end()}, {}};
  for (size_t g = 0; g < scale.size(); ++g) {
    int sum = 0;
    for (size_t i = 0; i < kColumns; ++i) sum += q[g * kColumns + i];
    out.groups.push_back(std::isnan(scale[g]) ? 0x7fc00000u : std::bit_cast<unsigned>(scale[g]));
    out.groups.push_back(static_cast<unsigned>(kRoundBits + kOffset * sum));
  }
  return out;
}

std::vector<float> random_row(std::mt19937_64& random, size_t cols) {
  std::normal_distribution<float> normal;
  std::vector<float> x(cols);
  for (float& v : x) v = normal(random) * (random() % 50 == 0 ? 1e3f : 1.f);
  return x;
}

TEST(CudaPacked, QuantisedRowsAreTheCpus) {
  constexpr size_t kCols = 1280;
  std::mt19937_64 random(6);
  std::vector<float> x = random_row(random, 2 * kCols);
  for (size_t i = 0; i < kCols; ++i) x[i] *= std::ldexp(1.f, static_cast<int>(i / 32) * 5 - 100);
  for (size_t i = 0; i < 32; ++i) x[i] = 1e-45f;
  for (size_t i = 32; i < 64; ++i) x[i] = -0.f;
  for (size_t i = 64; i < 96; ++i) x[i] = i % 2 ? 3.4e38f : -3.4e38f;
  x[100] = NAN;
  x[140] = -std::numeric_limits<float>::infinity();
  for (const bool backward : {false, true}) {
    OnDevice d(backward);
    gpu::QuantiseArgs a{};
    a.x = {d.put(x), kCols};
    a.to.codes = d.put(std::vector<signed char>(x.size()));
    a.to.groups = d.put(std::vector<unsigned>(x.size() / 16));
    a.to.cols = kCols;
    d.launch("packed", "quantise_rows", {kCols / 32 / 8, 2}, gpu::kThreads, a);
    const Quantised truth = on_cpu(x);
    EXPECT_EQ(d.get(a.to.codes, x.size()), truth.codes);
    EXPECT_EQ(d.get(a.to.groups, x.size() / 16), truth.groups);
  }
}

struct Stored {
  int rows, cols;
  std::vector<unsigned char> codes, scales;
};

Stored random_matrix(std::mt19937_64& random, int rows, int cols, bool extreme) {
  Stored w{rows, cols, {}, {}};
  constexpr unsigned char kEnds[] = {0, 1, 2, 127, 253, 254};
  for (int i = 0; i < rows * cols / 2; ++i) w.codes.push_back(static_cast<unsigned char>(random()));
  for (int i = 0; i < rows * cols / 32; ++i)
    w.scales.push_back(extreme ? kEnds[random() % std::size(kEnds)]
                               : static_cast<unsigned char>(118 + random() % 8));
  return w;
}

// Eight sums, groups in turns; then pairs of them four, two and one apart.
float defined(const Stored& w, int row, const Quantised& x) {
  float lane[8] = {};
  const auto cols = static_cast<size_t>(w.cols), groups = cols / kColumns;
  const size_t first = static_cast<size_t>(row) * groups;
  for (size_t g = 0; g < groups; ++g) {
    int sum = 0;
    for (size_t i = 0; i < kColumns; ++i) {
      const size_t at = (first + g) * kColumns + i;
      const size_t code = w.codes[at / 2] >> (at % 2 * 4) & 15;
      sum += static_cast<int>(2 * kE2m1[code]) * x.codes[g * kColumns + i];
    }
    const float scaled = static_cast<float>(sum) * std::bit_cast<float>(x.groups[2 * g]);
    float& y = lane[g % 8];
    y = std::fma(scaled, e8m0_to_float(w.scales[first + g]), y);
  }
  for (int apart = 4; apart > 0; apart /= 2)
    for (int l = 0; l < apart; ++l) lane[l] += lane[l + apart];
  return lane[0];
}

bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

// Shapes: whole turns of the eight lanes, a part of one, several with a rest; and rows that do not
// fill a block.
TEST(CudaPacked, ProductsAreTheirDefinitionBitForBit) {
  std::mt19937_64 random(7);
  struct Shape {
    int cols, rows;
  };
  for (const Shape shape : {Shape{768, 160}, {64, 256}, {2560, 32}, {416, 96}})
    for (const bool extreme : {false, true}) {
      const Stored w = random_matrix(random, shape.rows, shape.cols, extreme);
      std::vector<Quantised> x;
      Quantised all;
      for (int i = 0; i < 8; ++i) {
        std::vector<float> row = random_row(random, static_cast<size_t>(shape.cols));
        if (i == 4) row.assign(row.size(), 0.f);
        if (i == 5) row[7] = std::numeric_limits<float>::infinity();
        x.push_back(on_cpu(row));
        all.codes.insert(all.codes.end(), x.back().codes.begin(), x.back().codes.end());
        all.groups.insert(all.groups.end(), x.back().groups.begin(), x.back().groups.end());
      }
      for (const int n : {1, 2, 3, 4, 5, 8}) {
        OnDevice d(n % 2 != 0);
        const auto rows = static_cast<size_t>(shape.rows), count = 8 * rows;
        const gpu::ExpertWeights expert{
            {}, {}, {d.put(w.codes), d.put(w.scales), shape.cols / 2, shape.rows, shape.cols}};
        std::vector<int> item = {0, n};  // the first expert, pairs from the last down
        for (int i = 0; i < n; ++i) item.push_back(7 - i);
        item.resize(gpu::kItemInts);
        gpu::PackedArgs a{};
        a.e.experts = d.put(std::vector<gpu::ExpertWeights>{expert});
        a.e.items = d.put(item);
        a.e.count = d.put(std::vector<int>{1});
        a.e.out = d.put(std::vector<float>(count, -7));
        a.e.top_k = 1;
        a.e.hidden = shape.rows;
        a.act = {d.put(all.codes), d.put(all.groups), shape.cols};
        a.blocks = static_cast<int>(ceil_div(shape.rows, gpu::kPackedDownRows));
        d.launch(packed_down_kernel(Format::kMxfp4, row_bucket(n)), {a.blocks}, gpu::kThreads, a);
        const std::vector<float> y = d.get(a.e.out, count);
        for (int i = 0; i < 8; ++i)
          for (int r = 0; r < shape.rows; ++r) {
            const float truth = i >= 8 - n ? defined(w, r, x[static_cast<size_t>(i)]) : -7;
            const float got = y[static_cast<size_t>(i) * rows + static_cast<size_t>(r)];
            ASSERT_TRUE(same(got, truth)) << shape.cols << " columns, " << n << " rows, row " << i
                                          << " output " << r << ": " << got << " " << truth;
          }
      }
    }
}

}  // namespace
}  // namespace spk::cuda
