// Packed experts, MXFP4 with int8 activations, of the cpu and the cuda back end: the verb against
// the reference within what the activations' rounding costs.
//
// What int8 costs. In a group of 32 with largest magnitude m an element is off by at most m / 254,
// m / 127 / sqrt(12) = m / 440 as a root mean square. m is at most the norm of the group, so a row
// is off by at most sqrt(32) / 440 = 1.3e-2 of its norm, whatever it holds; a product with weights
// that do not know the errors keeps that ratio. Gate, up and the activations are quantised one
// after another: sqrt(3) * 1.3e-2 = 2.2e-2, a clamp and SwiGLU (slope at most 1.1) add a tenth.
// kInt8 is 1.5 times that, for the spread of sums of some hundred terms.
#include "base/error.h"
#include "support/verbs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace spk {
namespace {

using test::expert_shape;
using test::Family;
using test::kInt8;
using test::random_moe;
using test::Verbs;

class PackedVerbs : public testing::TestWithParam<Family> {
 protected:
  static bool on_cpu() { return GetParam() == Family::kCpu; }
};
INSTANTIATE_TEST_SUITE_P(Each, PackedVerbs, testing::Values(Family::kCpu, Family::kCuda),
                         test::name_of_family);

// The shapes of flash, tiny and ling-nano, and odd ones for the general kernel. Rows chosen so that
// experts see 1 to 8 rows and more.
TEST_P(PackedVerbs, ExpertsEqualReferenceWithinInt8) {
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
    Verbs v(shape, GetParam(), MoeKernel::kPacked);
    const auto moe = random_moe(v, Format::kMxfp4, c.shared_format, 4.0, 5.0);
    for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 17, 64}) {
      // Plain loops in double are slow; bits are another test's.
      if (c.hidden > 1000 && rows != 1 && rows != 3 && rows != 8 && rows != 17) continue;
      if (!on_cpu() && test::emulates_briefly() && rows > (c.hidden > 1000 ? 3 : 17)) continue;
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
        // Launches: items with quantising, up, down, sum; a shared expert of another format has
        // four of its own.
        const uint64_t launches = c.shared_format == Format::kBf16 ? 8 : 4;
        EXPECT_LE(after.joins - before.joins, (on_cpu() ? 2 : launches) + (rows > kMaxVerify));
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
      const std::string kernel = on_cpu() ? c.kernel : cat(" ", c.hidden, "x", c.width, ",");
      EXPECT_NE(v.backend(i).expert_kernel(moe[i].experts[0].gate).find(kernel), std::string::npos)
          << v.backend(i).expert_kernel(moe[i].experts[0].gate);
      if (c.shared_format == Format::kFp8) {
        EXPECT_NE(v.backend(i).expert_kernel(moe[i].shared.gate).find("plain "), std::string::npos);
      }
    }
  }
}

// Activations that quantise badly: one huge value in a group, groups of very different size, a row
// of zeros; the bound of the file's head holds for all of them.
TEST_P(PackedVerbs, OutliersAndZeros) {
  const ModelShape shape = expert_shape(320, 96, 32);
  Verbs v(shape, GetParam(), MoeKernel::kPacked);
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

// What verify passes rest on: a row among up to eight has the bits of the row alone, whoever shares
// its experts.
TEST_P(PackedVerbs, RowsDoNotDependOnEachOther) {
  const ModelShape shape = expert_shape(320, 96, 64);
  Verbs v(shape, GetParam(), MoeKernel::kPacked);
  const auto moe = random_moe(v, Format::kMxfp4, Format::kFp8, 1.5, 2.0);
  const int64_t rows = kMaxVerify;
  const auto h = v.random(rows, shape.hidden), weight = v.random(rows, shape.top_k);
  const auto alone = v.random(rows, shape.hidden);
  std::vector<int32_t> chosen;
  for (int64_t i = 0; i < rows * shape.top_k; ++i)
    chosen.push_back(static_cast<int32_t>(v.generator()() % 6));  // often the same
  const auto ids = v.ints(chosen, shape.top_k);
  const auto run = [&](int64_t together, const std::vector<Rows>& o) {
    v.begin(together > 1 ? StepKind::kVerify : StepKind::kDecode, together, 0);
    v.each([&](Backend& b, size_t i) {
      for (int64_t at = 0; at < rows; at += together) {
        const int64_t n = std::min(together, rows - at);
        b.experts(h[i].slice_rows(at, n), moe[i], ids[i].slice_rows(at, n),
                  weight[i].slice_rows(at, n), o[i].slice_rows(at, n));
      }
    });
  };
  run(1, alone);
  for (const int64_t together : {2, 3, 4, 5, 7, 8}) {
    const auto o = v.random(rows, shape.hidden);
    run(together, o);
    for (size_t i = 1; i < v.size(); ++i)
      EXPECT_EQ(v.read(o, i), v.read(alone, i)) << together << " rows together";
  }
}

// Formats that have no packed form stay as they are, also beside packed ones.
TEST_P(PackedVerbs, OtherFormatsStayPlain) {
  const ModelShape shape = expert_shape(256, 48, 32);  // 48 columns are no whole groups
  Verbs v(shape, GetParam(), MoeKernel::kPacked);
  auto moe = random_moe(v, Format::kBf16, Format::kBf16, 0, 0);
  v.uploading_experts(true);
  const auto gate = v.weight(48, 256, Format::kMxfp4, 0.2);
  const auto up = v.weight(48, 256, Format::kMxfp4, 0.2);
  for (size_t i = 0; i < v.size(); ++i) {
    for (Ffn& f : moe[i].experts) f.gate = gate[i], f.up = up[i];
    EXPECT_FALSE(gate[i].packed || up[i].packed);
  }
  const auto h = v.random(3, 256), o = v.random(3, 256), weight = v.random(3, shape.top_k);
  const auto ids = v.ints({0, 1, 2, 3, 1, 2, 3, 4, 15, 0, 7, 2}, shape.top_k);
  v.begin(StepKind::kPrefill, 3, 0);
  v.each([&](Backend& b, size_t i) { b.experts(h[i], moe[i], ids[i], weight[i], o[i]); });
  v.expect_close(o, 2e-6, "plain");

  // Up packed and down not: the two halves of one expert in two forms.
  ModelShape mixed = expert_shape(256, 96, 32);
  Verbs w(mixed, GetParam(), MoeKernel::kPacked);
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
