// Packed experts of the cpu back end: the kernels against their definition (packed.h), row against
// row and team against team, all bit for bit. The verb against the reference: packed_verbs_test.cc.
#include "backend/cpu/kernels.h"
#include "backend/cpu/packed.h"
#include "base/error.h"
#include "base/types.h"
#include "support/verbs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

namespace spk {
namespace {

using test::kInt8;
using test::random_moe;
using test::relative_error;
using test::small_shape;
using test::Verbs;

// Every table of packed kernels that this processor runs.
std::vector<const cpu::PackedKernels*> tables() {
  std::set<const cpu::PackedKernels*> found;
  for (const std::string& isa : test::available_isas()) found.insert(&cpu::select_packed(isa));
  return {found.begin(), found.end()};
}

// A random stored matrix and its packed form.
struct Stored {
  Stored(int64_t rows, int64_t cols, std::mt19937_64& random, bool extreme) {
    codes.resize(static_cast<size_t>(code_bytes(Format::kMxfp4, rows, cols)));
    scales.resize(static_cast<size_t>(scale_count(Format::kMxfp4, rows, cols)));
    for (uint8_t& c : codes) c = static_cast<uint8_t>(random());
    constexpr uint8_t kEnds[] = {0, 1, 2, 127, 253, 254};
    for (uint8_t& s : scales)
      s = extreme ? kEnds[random() % std::size(kEnds)] : static_cast<uint8_t>(118 + random() % 8);
    tensor.format = Format::kMxfp4;
    tensor.scale_type = ScaleType::kE8m0;
    tensor.rows = rows;
    tensor.cols = cols;
    tensor.data = reinterpret_cast<const std::byte*>(codes.data());
    tensor.scales = reinterpret_cast<const std::byte*>(scales.data());
    packed_codes.resize(codes.size());
    packed_scales.resize(scales.size());
    cpu::pack_tiles(tensor, 0, rows / cpu::kTileRows, packed_codes.data(), packed_scales.data());
    matrix = {packed_codes.data(), packed_scales.data(), rows, cols};
  }
  std::vector<uint8_t> codes, scales, packed_codes, packed_scales;
  HostTensor tensor;
  cpu::PackedMatrix matrix;
};

struct Quantised {
  Quantised(const cpu::Kernels& kernels, const std::vector<float>& x)
      : q(x.size()), scale(x.size() / kGroup), offset(x.size() / kGroup) {
    kernels.quantise(x.data(), static_cast<int64_t>(x.size()), q.data(), scale.data(),
                     offset.data());
  }
  cpu::QuantRow row() { return {q.data(), scale.data(), offset.data()}; }
  std::vector<int8_t> q;
  std::vector<float> scale;
  std::vector<int32_t> offset;
};

// The definition: integer sums of groups, then one rounding of the product with x's scale and one
// of the fma.
float defined(const Stored& w, int64_t row, const Quantised& x) {
  float y = 0;
  const int64_t groups = w.tensor.cols / kGroup;
  for (int64_t g = 0; g < groups; ++g) {
    int32_t sum = 0;
    for (int64_t i = 0; i < kGroup; ++i) {
      const int64_t at = row * w.tensor.cols + g * kGroup + i;
      const uint8_t code = w.codes[static_cast<size_t>(at / 2)] >> (at % 2 * 4) & 15;
      sum += static_cast<int32_t>(2 * kE2m1[code]) * x.q[static_cast<size_t>(g * kGroup + i)];
    }
    const float scaled = static_cast<float>(sum) * x.scale[static_cast<size_t>(g)];
    y = std::fma(scaled, e8m0_to_float(w.scales[static_cast<size_t>(row * groups + g)]), y);
  }
  return y;
}

bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

TEST(CpuPacked, KernelsAreTheirDefinitionBitForBit) {
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal;
  const cpu::Kernels& loops = *cpu::kernels_generic();
  struct Shape {
    int64_t cols, rows;
  };
  for (Shape shape : {Shape{2560, 64},
                      {768, 64},
                      {1536, 64},
                      {512, 64},
                      {256, 64},
                      {64, 256},
                      {32, 32},
                      {96, 160}}) {
    for (const bool extreme : {false, true}) {
      const Stored w(shape.rows, shape.cols, random, extreme);
      std::vector<Quantised> x;
      for (int i = 0; i < 17; ++i) {
        std::vector<float> row(static_cast<size_t>(shape.cols));
        for (float& v : row) v = normal(random) * (i % 3 == 2 && random() % 50 == 0 ? 1e3f : 1.f);
        if (i == 4) row.assign(row.size(), 0.f);
        if (i == 5) row[7] = std::numeric_limits<float>::infinity();
        x.emplace_back(loops, row);
      }
      std::vector<float> truth;
      for (Quantised& row : x)
        for (int64_t r = 0; r < shape.rows; ++r) truth.push_back(defined(w, r, row));
      for (const cpu::PackedKernels* table : tables())
        for (const cpu::PackedKernel& kernel : table->kernels) {
          if (kernel.cols != 0 && kernel.cols != shape.cols) continue;
          for (int64_t n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17}) {
            std::vector<float> y(static_cast<size_t>(n * shape.rows), NAN);
            std::vector<cpu::QuantRow> rows;
            std::vector<float*> to;
            for (int64_t i = 0; i < n; ++i) {
              rows.push_back(x[static_cast<size_t>(i)].row());
              to.push_back(y.data() + i * shape.rows);
            }
            // In two calls: a cut between tiles must not show.
            const uint8_t nowhere = 0;  // what is asked for ahead of time need not be there
            kernel.product(w.matrix, 0, 16, rows.data(), n, to.data(), 0, nullptr);
            kernel.product(w.matrix, 16, shape.rows, rows.data(), n, to.data(), 16, &nowhere);
            for (size_t k = 0; k < y.size(); ++k)
              ASSERT_TRUE(same(y[k], truth[k]))
                  << table->isa << " " << kernel.name << " cols " << shape.cols << " n " << n
                  << " extreme " << extreme << " at " << k << ": " << y[k] << " " << truth[k];
          }
        }
    }
  }
}

TEST(CpuPacked, QuantisedRowsAreTheSameEverywhereAndNearTheFloats) {
  std::mt19937_64 random(6);
  std::normal_distribution<float> normal;
  std::vector<float> x(32 * 40);
  for (size_t i = 0; i < x.size(); ++i) {
    const auto g = static_cast<int>(i / 32);
    x[i] = normal(random) * std::ldexp(1.f, g * 5 - 100);
  }
  for (int i = 0; i < 32; ++i) x[i] = 1e-45f;  // denormals count as zeros
  for (int i = 32; i < 64; ++i) x[i] = -0.f;   // and zeros stay
  for (int i = 64; i < 96; ++i) x[i] = i % 2 ? 3.4e38f : -3.4e38f;
  x[100] = NAN;
  x[140] = -std::numeric_limits<float>::infinity();
  const Quantised truth(*cpu::kernels_generic(), x);
  for (const std::string& isa : test::available_isas()) {
    const Quantised other(cpu::select_kernels(isa), x);
    EXPECT_EQ(truth.q, other.q) << isa;
    EXPECT_EQ(truth.offset, other.offset) << isa;
    for (size_t g = 0; g < truth.scale.size(); ++g)
      EXPECT_TRUE(same(truth.scale[g], other.scale[g])) << isa << " group " << g;
  }
  for (size_t g = 0; g < truth.scale.size(); ++g) {
    if (g == 3 || g == 4) {
      EXPECT_TRUE(std::isnan(truth.scale[g])) << "group " << g << " hides a number that is none";
      continue;
    }
    float largest = 0;
    for (size_t i = 32 * g; i < 32 * g + 32; ++i) largest = std::max(largest, std::fabs(x[i]));
    int32_t sum = 0;
    for (size_t i = 32 * g; i < 32 * g + 32; ++i) {
      const double back = 2.0 * truth.scale[g] * truth.q[i];
      ASSERT_NEAR(back, x[i], largest / 253.9 + 1e-30) << i;
      sum += truth.q[i];
    }
    EXPECT_EQ(truth.offset[g], -cpu::kCodeOffset * sum);
  }
}

// What verify passes and prefill rest on: a row among others has the bits of the row alone, and the
// team's size does not matter.
TEST(CpuPacked, RowsAndTeamsDoNotMatter) {
  const ModelShape shape = test::expert_shape(256, 64, 128);
  std::vector<float>
      truth[2];  // of a verify pass; of a prompt, where the shared expert's sums differ
  for (int threads : {1, 2, 5}) {
    Verbs v(shape, threads, MoeKernel::kPacked);
    const auto moe = random_moe(v, Format::kMxfp4, Format::kFp8, 1.5, 2.0);
    const int64_t rows = 40;
    const auto h = v.random(rows, shape.hidden), weight = v.random(rows, shape.top_k);
    std::vector<int32_t> chosen;
    for (int64_t i = 0; i < rows * shape.top_k; ++i)
      chosen.push_back(static_cast<int32_t>(v.generator()() % 16));
    const auto ids = v.ints(chosen, shape.top_k);
    for (const bool prompt : {false, true})
      for (int64_t together : {40, 1, 2, 4, 5, 8, 9}) {
        if (!prompt && together > kMaxVerify) continue;
        v.begin(prompt ? StepKind::kPrefill : StepKind::kVerify, together, 0);
        const auto o = v.rows(rows, shape.hidden, [](int64_t, int64_t) { return NAN; });
        for (size_t i = 1; i < v.size(); ++i) {
          for (int64_t at = 0; at < rows; at += together) {
            const int64_t n = std::min(together, rows - at);
            v.backend(i).experts(h[i].slice_rows(at, n), moe[i], ids[i].slice_rows(at, n),
                                 weight[i].slice_rows(at, n), o[i].slice_rows(at, n));
          }
          const std::vector<float> got = v.read(o, i);
          if (truth[prompt].empty()) truth[prompt] = got;
          EXPECT_EQ(got, truth[prompt])
              << v.backend(i).description() << ", " << together << " rows together";
        }
      }
  }
}

// A draft head of some rows takes int8 activations as experts do; the target's head does not.
TEST(CpuPacked, DraftHeadsStayNearAndRowsDoNotDependOnEachOther) {
  Verbs v(small_shape(), 2, MoeKernel::kPacked);
  const int64_t vocab = 200, cols = 288;
  std::vector<float> stored;
  for (int64_t i = 0; i < vocab * cols; ++i) stored.push_back(static_cast<float>(v.normal()));
  HostTensor tensor;
  tensor.rows = vocab;
  tensor.cols = cols;
  tensor.data = reinterpret_cast<const std::byte*>(stored.data());
  for (const int64_t kept : {160, 152, 0}) {  // 152: not whole groups; 0: all rows
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < kept; ++i) ids.push_back(static_cast<int32_t>(vocab - 1 - i));
    const int64_t rows = kept > 0 ? kept : vocab;
    std::vector<LmHead> heads;
    v.each([&](Backend& b, size_t) { heads.emplace_back(b, tensor, HeadFormat::kMxfp4, ids, 2); });
    const auto x = v.random(8, cols);
    const auto alone = v.rows(8, rows, [](int64_t, int64_t) { return NAN; });
    for (int64_t r = 0; r < 8; ++r) {
      v.begin(StepKind::kDecode, 1, r);
      v.each([&](Backend& b, size_t i) {
        b.logits(x[i].slice_rows(r, 1), heads[i], alone[i].slice_rows(r, 1));
      });
    }
    const auto truth = v.read(alone, 0);
    for (size_t i = 1; i < v.size(); ++i) {
      const std::vector<float> one = v.read(alone, i);
      const double error = relative_error(one, truth);
      EXPECT_LE(error, kInt8);
      EXPECT_EQ(error > 1e-4, kept == 160) << "which heads are packed?";
      for (int64_t n = 2; n <= 8; ++n) {
        const auto y = v.rows(n, rows, [](int64_t, int64_t) { return NAN; });
        v.begin(StepKind::kVerify, n, 0);
        v.backend(i).logits(x[i].slice_rows(0, n), heads[i], y[i]);
        const std::vector<float> many = v.read(y, i);
        EXPECT_TRUE(std::equal(many.begin(), many.end(), one.begin())) << kept << " n " << n;
      }
    }
  }
}

}  // namespace
}  // namespace spk
