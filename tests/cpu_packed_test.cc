// Packed experts: the kernels against their definition (packed.h) bit for bit, the verb against the
// reference within what int8 activations cost, and row against row, team against team bit for bit.
//
// What int8 costs. In a group of 32 with largest magnitude m an element is off by at most m / 254,
// m / 127 / sqrt(12) = m / 440 as a root mean square. m is at most the norm of the group, so a row
// is off by at most sqrt(32) / 440 = 1.3e-2 of its norm, whatever it holds; a product with weights
// that do not know the errors keeps that ratio. Gate, up and the activations are quantised one
// after another: sqrt(3) * 1.3e-2 = 2.2e-2, a clamp and SwiGLU (slope at most 1.1) add a tenth.
// kInt8 is 1.5 times that, for the spread of sums of some hundred terms.
#include "backend/cpu/kernels.h"
#include "backend/cpu/packed.h"
#include "base/error.h"
#include "base/types.h"
#include "support/verbs.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

namespace spk {
namespace {

using test::random_moe;
using test::relative_error;
using test::small_shape;
using test::Verbs;

constexpr double kInt8 = 3.6e-2;

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
            kernel.product(w.matrix, 0, 16, rows.data(), n, to.data(), 0);
            kernel.product(w.matrix, 16, shape.rows, rows.data(), n, to.data(), 16);
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

ModelShape expert_shape(int64_t hidden, int64_t width, int64_t shared) {
  ModelShape s = small_shape();
  s.hidden = hidden;
  s.expert_dim = width;
  s.shared_dim = shared;
  s.experts = hidden > 1000 ? 8 : 16;
  s.groups = 4;
  s.keep_groups = 2;
  return s;
}

// The shapes of flash, tiny and ling-nano, and odd ones for the general kernel. Rows chosen so that
// experts see 1 to 8 rows and more.
TEST(CpuPacked, ExpertsEqualReferenceWithinInt8) {
  struct Case {
    int64_t hidden, width, shared;
    Format shared_format;
    const char* kernel;  // part of the name
  };
  for (const Case& c : {Case{2560, 768, 768, Format::kFp8, " 2560x768,"},
                        {1536, 512, 512, Format::kFp8, " 1536x512,"},
                        {256, 64, 128, Format::kFp8, " 256x64,"},
                        {320, 96, 160, Format::kBf16, " general,"},
                        {64, 32, 32, Format::kBf16, " general,"},
                        {96, 224, 96, Format::kMxfp4, " general,"}}) {
    const ModelShape shape = expert_shape(c.hidden, c.width, c.shared);
    Verbs v(shape, 2, MoeKernel::kPacked);
    const auto moe = random_moe(v, Format::kMxfp4, c.shared_format, 4.0, 5.0);
    for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 17, 64}) {
      // Plain loops in double are slow; bits are another test's.
      if (c.hidden > 1000 && rows != 1 && rows != 3 && rows != 8 && rows != 17) continue;
      const auto h = v.random(rows, shape.hidden), o = v.random(rows, shape.hidden);
      const auto weight = v.rows(rows, shape.top_k, [](int64_t, int64_t) { return 0.6; });
      std::vector<int32_t> chosen;
      for (int64_t i = 0; i < rows * shape.top_k; ++i)  // the same expert never twice in a row
        chosen.push_back(
            static_cast<int32_t>((i % shape.top_k * 5 + i / shape.top_k % 3) % shape.experts));
      const auto ids = v.ints(chosen, shape.top_k);
      v.begin(rows == 1 ? StepKind::kDecode : StepKind::kPrefill, rows, 0);
      const std::set<int32_t> distinct(chosen.begin(), chosen.end());
      v.each([&](Backend& b, size_t i) {
        const Counters before = b.counters();
        b.experts(h[i], moe[i], ids[i], weight[i], o[i]);
        if (i == 0) return;
        const Counters& after = b.counters();
        const bool ninth = c.shared_format == Format::kMxfp4;  // packed too
        EXPECT_EQ(after.packed_experts - before.packed_experts, distinct.size() + ninth);
        EXPECT_EQ(after.plain_experts - before.plain_experts, ninth ? 0u : 1u);
        EXPECT_LE(after.joins - before.joins, 2u + (rows > kMaxVerify));
        const Ffn &f = moe[i].experts[0], &s = moe[i].shared;
        EXPECT_EQ(
            after.weight_bytes - before.weight_bytes,
            distinct.size() * static_cast<uint64_t>(f.gate.bytes + f.up.bytes + f.down.bytes) +
                static_cast<uint64_t>(s.gate.bytes + s.up.bytes + s.down.bytes))
            << "each expert is read once";
      });
      v.expect_close(o, kInt8, cat(c.hidden, "x", c.width, " rows ", rows));
    }
    for (size_t i = 1; i < v.size(); ++i) {
      EXPECT_NE(v.backend(i).expert_kernel(moe[i].experts[0].gate).find("packed "),
                std::string::npos);
      EXPECT_NE(v.backend(i).expert_kernel(moe[i].experts[0].gate).find(c.kernel),
                std::string::npos)
          << v.backend(i).expert_kernel(moe[i].experts[0].gate);
      if (c.shared_format == Format::kFp8) {
        EXPECT_NE(v.backend(i).expert_kernel(moe[i].shared.gate).find("plain "), std::string::npos);
      }
    }
  }
}

// Activations that quantise badly: one huge value in a group, groups of very different size, a row
// of zeros; the bound of the file's head holds for all of them.
TEST(CpuPacked, OutliersAndZeros) {
  const ModelShape shape = expert_shape(320, 96, 32);
  Verbs v(shape, 2, MoeKernel::kPacked);
  const auto moe = random_moe(v, Format::kMxfp4, Format::kBf16, 0, 0);
  const Verbs::Values values[] = {
      [&](int64_t, int64_t c) { return v.normal() * (c % 32 == 5 ? 300.0 : 1.0); },
      [&](int64_t, int64_t c) { return v.normal() * std::ldexp(1.0, static_cast<int>(c / 32)); },
      [&](int64_t, int64_t c) { return c == 77 ? 50.0 : 0.01 * v.normal(); },
      [&](int64_t r, int64_t) { return r == 1 ? 0.0 : v.normal(); },
  };
  int kind = 0;
  for (const Verbs::Values& x : values) {
    const auto h = v.rows(3, shape.hidden, x), o = v.random(3, shape.hidden);
    const auto weight = v.rows(3, shape.top_k, [](int64_t, int64_t) { return 0.6; });
    const auto ids = v.ints({0, 1, 2, 3, 1, 2, 3, 4, 15, 0, 7, 2}, shape.top_k);
    v.begin(StepKind::kPrefill, 3, 0);
    v.each([&](Backend& b, size_t i) { b.experts(h[i], moe[i], ids[i], weight[i], o[i]); });
    v.expect_close(o, kInt8, cat("kind ", kind++));
  }
  // A NaN that comes in must come out.
  const auto h = v.rows(1, shape.hidden, [](int64_t, int64_t c) { return c == 9 ? NAN : 1.0; });
  const auto o = v.random(1, shape.hidden), weight = v.random(1, shape.top_k);
  const auto ids = v.ints({0, 1, 2, 3}, shape.top_k);
  v.begin(StepKind::kDecode, 1, 0);
  for (size_t i = 1; i < v.size(); ++i) {
    v.backend(i).experts(h[i], moe[i], ids[i], weight[i], o[i]);
    for (float x : v.read(o, i)) ASSERT_TRUE(std::isnan(x));
  }
}

// What verify passes and prefill rest on: a row among others has the bits of the row alone, and the
// team's size does not matter.
TEST(CpuPacked, RowsAndTeamsDoNotMatter) {
  const ModelShape shape = expert_shape(256, 64, 128);
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

// Formats that have no packed form stay as they are, also beside packed ones.
TEST(CpuPacked, OtherFormatsStayPlain) {
  const ModelShape shape = expert_shape(256, 48, 32);  // 48 columns are no whole groups
  Verbs v(shape, 2, MoeKernel::kPacked);
  auto moe = random_moe(v, Format::kBf16, Format::kBf16, 0, 0);
  v.uploading_experts(true);
  const auto gate = v.weight(48, 256, Format::kMxfp4, 0.2);
  for (size_t i = 0; i < v.size(); ++i) {
    for (Ffn& f : moe[i].experts) f.gate = gate[i];
    EXPECT_FALSE(gate[i].packed);
  }
  const auto h = v.random(3, 256), o = v.random(3, 256), weight = v.random(3, shape.top_k);
  const auto ids = v.ints({0, 1, 2, 3, 1, 2, 3, 4, 15, 0, 7, 2}, shape.top_k);
  v.begin(StepKind::kPrefill, 3, 0);
  v.each([&](Backend& b, size_t i) { b.experts(h[i], moe[i], ids[i], weight[i], o[i]); });
  v.expect_close(o, 2e-6, "plain");

  // Up packed and down not: the two halves of one expert in two forms.
  ModelShape mixed = expert_shape(256, 96, 32);
  Verbs w(mixed, 2, MoeKernel::kPacked);
  auto half = random_moe(w, Format::kMxfp4, Format::kBf16, 0, 0);
  const auto down = w.weight(256, 96, Format::kBf16, 0.2);
  for (size_t i = 0; i < w.size(); ++i)
    for (Ffn& f : half[i].experts) f.down = down[i];
  const auto h2 = w.random(3, 256), o2 = w.random(3, 256), weight2 = w.random(3, mixed.top_k);
  const auto ids2 = w.ints({0, 1, 2, 3, 1, 2, 3, 4, 15, 0, 7, 2}, mixed.top_k);
  w.begin(StepKind::kPrefill, 3, 0);
  w.each([&](Backend& b, size_t i) { b.experts(h2[i], half[i], ids2[i], weight2[i], o2[i]); });
  w.expect_close(o2, kInt8, "half packed");
}

}  // namespace
}  // namespace spk
