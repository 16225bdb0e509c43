// FP8 matrices with BF16 activations (precision fast): the kernel against its definition bit for
// bit, the verbs against the reference within what BF16 costs, and row against row bit for bit.
//
// What BF16 costs: an activation is off by at most 2^-8 of itself, 2^-8 / sqrt(3) * 0.72 = 1.6e-3
// as a root mean square over mantissas. A sum with weights that do not know the errors keeps that
#include "backend/cpu/bf16.h"
#include "base/error.h"
#include "base/types.h"
#include "support/verbs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace spk {
namespace {

using test::relative_error;
using test::small_shape;
using test::Verbs;

constexpr double kBf16 = 2.4e-3;

// Column of number `at` of a block of 64 rounded ones.
int64_t column_of(int64_t at) {
  const int64_t half = at / 32, run = at % 32 / 8;
  return 16 * run + 8 * half + at % 8;
}

// One output: lanes of column pairs (16 in matvec, two in tiles, one in panels), the odd one first,
// blocks of 128 columns times their scale.
float defined(const std::vector<uint8_t>& codes, const std::vector<float>& scales, bool by_row,
              int64_t cols, int64_t row, const std::vector<float>& x, int64_t lanes) {
  float total[16] = {}, sum[16] = {};
  for (int64_t k = 0; k < cols; k += 64) {
    for (int64_t half = 0; half < 64; half += 32)
      for (int64_t lane = 0; lane < 16; ++lane)
        for (int64_t odd = 1; odd >= 0; --odd) {
          const int64_t c = k + column_of(half + 2 * lane + odd);
          if (c >= cols) continue;  // zeros change nothing
          const float w = e4m3_to_float(codes[static_cast<size_t>(row * cols + c)]) * 0x1p-8f;
          const float a = bf16_to_float(float_to_bf16(x[static_cast<size_t>(c)]));
          sum[lane % lanes] = std::fma(w, a, sum[lane % lanes]);
        }
    if (k % 128 == 0 && cols - k > 64) continue;
    const int64_t blocks = ceil_div(cols, int64_t{128});
    const float scale =
        scales[static_cast<size_t>(by_row ? row : row / 128 * blocks + k / 128)] * 256;
    if (lanes == 2) {  // tiles: even and odd pairs meet before the scale
      sum[0] += sum[1];
      sum[1] = 0;
    }
    for (int64_t lane = 0; lane < lanes; ++lane) {
      total[lane] = std::fma(sum[lane], scale, total[lane]);
      sum[lane] = 0;
    }
  }
  for (int64_t step = lanes / 2; step > 0; step /= 2)
    for (int64_t lane = 0; lane < step; ++lane) total[lane] += total[lane + step];
  return total[0];
}

// matvec and panels, cut in two, for 1 to 15 rows of x; panels also added to what is there.
TEST(CpuBf16, ProductsAreTheirDefinitionBitForBit) {
  const cpu::Bf16Kernels* const kernels = cpu::select_bf16("avx512");
  if (!kernels) GTEST_SKIP() << "no instruction set AVX-512 BF16 with VBMI";
  std::mt19937_64 random(3);
  std::normal_distribution<float> normal;
  for (const bool by_row : {false, true})
    for (int64_t cols : {64, 128, 192, 200, 250, 256, 768, 1536, 2560}) {
      const int64_t rows = 131;  // into a second block of scales
      std::vector<uint8_t> codes(static_cast<size_t>(rows * cols));
      for (uint8_t& c : codes) {
        c = static_cast<uint8_t>(random());
        if ((c & 0x7f) == 0x7f) c = 0;  // NaN codes are refused by the loaders
      }
      const int64_t count =
          by_row ? rows : ceil_div(rows, int64_t{128}) * ceil_div(cols, int64_t{128});
      std::vector<float> scales, kept;
      for (int64_t i = 0; i < count; ++i) scales.push_back(0.01f * std::exp2(normal(random)));
      kept.reserve(scales.size());
      for (float s : scales) kept.push_back(s * 256);
      const cpu::Matrix w{by_row ? Format::kFp8Row : Format::kFp8, rows, cols, codes.data(),
                          reinterpret_cast<const uint8_t*>(kept.data())};
      constexpr size_t kMost = 15;
      std::vector<std::vector<float>> x(kMost);
      std::vector<std::vector<uint16_t>> rounded(kMost);
      std::vector<const uint16_t*> in;
      for (size_t i = 0; i < kMost; ++i) {
        for (int64_t c = 0; c < cols; ++c) x[i].push_back(normal(random));
        rounded[i].resize(static_cast<size_t>(cpu::bf16_size(cols)));
        kernels->round(x[i].data(), cols, rounded[i].data());
        in.push_back(rounded[i].data());
      }
      const int64_t whole = cpu::can_tile(128, cols) ? 128 : 0;  // rows in tiles
      std::vector<uint8_t> tiles(static_cast<size_t>(whole * cols));
      cpu::Matrix tiled = w;
      tiled.tiles = tiles.data();
      if (whole > 0) cpu::tile_codes(codes.data(), whole, cols, tiles.data());
      std::vector<float> panels(static_cast<size_t>(cpu::bf16_panel_floats(rows, cols)));
      for (const int64_t lanes : {16, 2, 1})
        for (int64_t n = 1; n <= (lanes == 16 ? 8 : 15); ++n) {
          if (lanes == 2 && whole == 0) continue;
          std::vector<std::vector<float>> y(kMost,
                                            std::vector<float>(static_cast<size_t>(rows), NAN));
          std::vector<float*> out;
          for (auto& row : y) out.push_back(row.data());
          for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, 7}, {7, rows}}) {
            if (lanes == 2) {
              const int64_t from = first == 0 ? 0 : 48, to = first == 0 ? 48 : whole;
              kernels->matvec_tiles(tiled, from, to, in.data(), n, out.data(), from);
            } else if (lanes == 16) {
              kernels->matvec(w, first, last, in.data(), n, out.data(), first);
            } else {
              float& behind =
                  panels[static_cast<size_t>(cpu::bf16_panel_floats(last - first, cols))];
              behind = 7;
              kernels->panels(w, first, last, panels.data());
              ASSERT_EQ(behind, 7.f);
              kernels->panel_dots(panels.data(), last - first, cols, in.data(), n, out.data(),
                                  first, false);
              if (n % 2 == 0)  // once more, to what is there: twice the sum, exactly
                kernels->panel_dots(panels.data(), last - first, cols, in.data(), n, out.data(),
                                    first, true);
            }
          }
          for (int64_t i = 0; i < n; ++i)
            for (int64_t r = 0; r < (lanes == 2 ? whole : rows); r += n == 1 ? 1 : 10) {
              const auto at = static_cast<size_t>(i);
              const float times = lanes == 1 && n % 2 == 0 ? 2.f : 1.f;
              const float truth = times * defined(codes, scales, by_row, cols, r, x[at], lanes);
              ASSERT_EQ(std::bit_cast<uint32_t>(y[at][static_cast<size_t>(r)]),
                        std::bit_cast<uint32_t>(truth))
                  << "cols " << cols << " n " << n << " row " << r << " by row " << by_row
                  << " lanes " << lanes;
            }
        }
    }
}

// Columns of a piece of a matrix: pairs of weight rows in one lane, the odd one first, 64 rows
// times their scale.
TEST(CpuBf16, TheTransposeIsItsDefinitionBitForBit) {
  const cpu::Bf16Kernels* const kernels = cpu::select_bf16("avx512");
  if (!kernels) GTEST_SKIP() << "no instruction set AVX-512 BF16 with VBMI";
  std::mt19937_64 random(4);
  std::normal_distribution<float> normal;
  for (int64_t cols : {64, 128, 200, 512}) {
    constexpr int64_t kRows = 320, kFirst = 64, kTaken = 192, kMost = 9;
    const int64_t blocks = ceil_div(cols, int64_t{128});
    std::vector<uint8_t> codes(static_cast<size_t>(kRows * cols));
    for (uint8_t& c : codes) {
      c = static_cast<uint8_t>(random());
      if ((c & 0x7f) == 0x7f) c = 0;
    }
    std::vector<float> kept;  // as the back end keeps them: times 256
    for (int64_t i = 0; i < 3 * blocks; ++i) kept.push_back(2.56f * std::exp2(normal(random)));
    const cpu::Matrix w{Format::kFp8, kRows, cols, codes.data(),
                        reinterpret_cast<const uint8_t*>(kept.data())};
    std::vector<std::vector<float>> x(kMost);
    std::vector<std::vector<uint16_t>> rounded(kMost, std::vector<uint16_t>(kTaken));
    std::vector<const uint16_t*> in;
    for (size_t i = 0; i < kMost; ++i) {
      for (int64_t r = 0; r < kTaken; ++r) x[i].push_back(normal(random));
      kernels->round(x[i].data(), kTaken, rounded[i].data());
      in.push_back(rounded[i].data());
    }
    for (int64_t n = 1; n <= kMost; ++n)
      for (int64_t from = 0; from < cols; from += 128) {
        const int64_t to = std::min(cols, from + 384);
        // One number more: what is behind the last column must stay.
        std::vector<std::vector<float>> y(
            kMost, std::vector<float>(static_cast<size_t>(to - from) + 1, 7));
        std::vector<float*> out;
        for (auto& row : y) out.push_back(row.data());
        kernels->matvec_across(w, kFirst, kTaken, from, to, in.data(), n, out.data());
        for (int64_t i = 0; i < n; ++i) {
          const auto at = static_cast<size_t>(i);
          for (int64_t c = from; c < to; ++c) {
            float total = 0;
            for (int64_t r = 0; r < kTaken; r += 64) {
              float sum = 0;
              for (int64_t pair = 0; pair < 64; pair += 2)
                for (int64_t odd = 1; odd >= 0; --odd) {
                  const int64_t row = r + column_of(pair + odd);
                  const auto code = codes[static_cast<size_t>((kFirst + row) * cols + c)];
                  sum =
                      std::fma(e4m3_to_float(code) * 0x1p-8f,
                               bf16_to_float(float_to_bf16(x[at][static_cast<size_t>(row)])), sum);
                }
              const int64_t block = (kFirst + r) / 128 * blocks + c / 128;
              total = std::fma(sum, kept[static_cast<size_t>(block)], total);
            }
            ASSERT_EQ(std::bit_cast<uint32_t>(y[at][static_cast<size_t>(c - from)]),
                      std::bit_cast<uint32_t>(total))
                << "cols " << cols << " n " << n << " column " << c;
          }
          ASSERT_EQ(y[at].back(), 7.f);
        }
      }
  }
}

// All instruction sets, with and without a BF16 table, through the verbs that use it. Rows of a
// verify pass have the bits of the row alone, and so have rows of a prompt.
TEST(CpuBf16, ProductsStayNearAndRowsDoNotDependOnEachOther) {
  Verbs v(small_shape(), 2, MoeKernel::kPacked, PrecisionMode::kFast);
  for (auto [rows, cols] :
       {std::pair<int64_t, int64_t>{67, 288}, {130, 160}, {5, 250}, {64, 2560}}) {
    const auto w = v.weight(rows, cols, Format::kFp8);
    std::vector<float> stored;
    for (int64_t i = 0; i < rows * cols; ++i) stored.push_back(static_cast<float>(v.normal()));
    HostTensor tensor;
    tensor.rows = rows;
    tensor.cols = cols;
    tensor.data = reinterpret_cast<const std::byte*>(stored.data());
    std::vector<LmHead> heads;
    v.each([&](Backend& b, size_t) {
      heads.emplace_back(b, tensor, HeadFormat::kFp8, std::span<const int32_t>{}, 1);
    });
    const auto x = v.random(8, cols);
    for (const bool head : {false, true}) {
      const auto product = [&](size_t i, int64_t first, int64_t n, const Rows& y) {
        const Rows in = x[i].slice_rows(first, n);
        head ? v.backend(i).logits(in, heads[i], y) : v.backend(i).matmul(in, w[i], y);
      };
      for (const StepKind kind : {StepKind::kVerify, StepKind::kPrefill}) {
        const auto alone = v.rows(8, rows, [](int64_t, int64_t) { return NAN; });
        for (int64_t r = 0; r < 8; ++r) {
          v.begin(kind == StepKind::kVerify ? StepKind::kDecode : kind, 1, r);
          v.each([&](Backend&, size_t i) { product(i, r, 1, alone[i].slice_rows(r, 1)); });
        }
        const auto truth = v.read(alone, 0);
        for (size_t i = 1; i < v.size(); ++i) {
          const double error = relative_error(v.read(alone, i), truth);
          const std::string isa = test::available_isas()[i - 1];
          EXPECT_LE(error, kBf16) << isa << " " << rows << "x" << cols;
          EXPECT_EQ(error > 1e-4, cpu::select_bf16(isa) != nullptr) << isa << ": who rounds?";
        }
        for (int64_t n = 2; n <= 8; ++n) {
          const auto y = v.rows(n, rows, [](int64_t, int64_t) { return NAN; });
          v.begin(kind, n, 0);
          for (size_t i = 1; i < v.size(); ++i) {
            product(i, 0, n, y[i]);
            const auto many = v.read(y, i), one = v.read(alone, i);
            EXPECT_TRUE(std::equal(many.begin(), many.end(), one.begin()))
                << v.backend(i).description() << " n " << n;
          }
        }
      }
    }
  }
}

// Attention of a prompt: queries, cached rows and weights are rounded. A score is a sum of products
// of unit normals over a square root, about `spread` in size, and off by kBf16 of that; so are its
// weight and the sum. Other steps and other processors do not round.
TEST(CpuBf16, AttentionOfAPromptStaysNear) {
  const ModelShape shape = small_shape();
  Verbs v(shape, 2, MoeKernel::kPacked, PrecisionMode::kFast);
  const int64_t width = shape.latent + shape.rope, score = shape.nope + shape.rope;
  const double spread = std::sqrt(static_cast<double>(width) / static_cast<double>(score));
  for (auto [first, rows] :
       {std::pair<int64_t, int64_t>{0, 9}, {60, 17}, {100, 1}, {900, 200}, {1010, 30}}) {
    const auto latent =
        v.rows(first + rows + 3, width, [&, end = first + rows](int64_t r, int64_t) {
          return r < end ? v.normal() : NAN;  // what was never written must not be read
        });
    const auto q = v.random(rows, shape.heads * score);
    const auto q_latent = v.random(rows, shape.heads * shape.latent);
    const auto z = v.random(rows, shape.heads * shape.latent);
    v.begin(StepKind::kPrefill, rows, first);
    v.each([&](Backend& b, size_t i) {
      LayerState state;
      state.latent = latent[i];
      b.latent_attend(q_latent[i], q[i], state, z[i]);
    });
    const auto truth = v.read(z, 0);
    for (size_t i = 1; i < v.size(); ++i) {
      const double error = relative_error(v.read(z, i), truth);
      const std::string isa = test::available_isas()[i - 1];
      EXPECT_LE(error, kBf16 * (2 + spread)) << isa << " first " << first << " rows " << rows;
      EXPECT_EQ(error > 1e-4, cpu::select_bf16(isa) != nullptr) << isa << ": who rounds?";
    }
  }
}

}  // namespace
}  // namespace spk
