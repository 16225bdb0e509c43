// Synthetic weights: the fp4 layout, sane values, the same bytes for every number of threads.
#include "model/synthetic.h"

#include "backend/backend.h"
#include "base/error.h"
#include "model/model.h"
#include "support/checkpoint_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

namespace spk {
namespace {

std::string all_bytes(const TensorSource& source) {
  std::string bytes;
  source.for_each([&](const TensorBytes& t) {
    bytes.append(reinterpret_cast<const char*>(t.data), t.info->bytes);
  });
  return bytes;
}

ModelConfig small() { return parse_config(test::small_config(), "config.json"); }

TEST(Synthetic, DeterministicInConfigAndSeed) {
  const std::string one = all_bytes(*make_synthetic(small(), 5, 1));
  EXPECT_EQ(one, all_bytes(*make_synthetic(small(), 5, 3)));
  EXPECT_NE(one, all_bytes(*make_synthetic(small(), 6, 1)));
}

TEST(Synthetic, BindsAndLoadsWithoutComplaint) {
  ModelConfig c = parse_config(known_config("ling-3.0-tiny"), "tiny");
  keep_layers(c, 2);  // a dense and an expert layer at their real sizes
  c.shape.vocab = 1000;
  for (const ModelConfig& config : {small(), c}) {
    const auto source = make_synthetic(config, 1, 2);
    const TensorSet set = bind_tensors(config, *source);
    EXPECT_TRUE(set.notes.empty()) << set.notes[0];
    EXPECT_EQ(set.has_mtp, config.mtp_layers > 0);
    const auto backend = make_reference_backend({});
    backend->prepare(config.shape);
    EXPECT_NO_THROW(load_model(config, set, *backend));  // no code is a NaN
  }
}

TEST(Synthetic, FormatsOfTheFp4Release) {
  const auto source = make_synthetic(small(), 1, 1);
  const TensorSet set = bind_tensors(small(), *source);
  for (const BoundTensor& bound : set.tensors) {
    if (bound.expert >= 0) {
      EXPECT_EQ(bound.tensor.format, Format::kMxfp4) << bound.name;
    }
    if (bound.component == Component::kRouter) {
      EXPECT_NE(bound.tensor.format, Format::kFp8) << bound.name;
    }
  }
  EXPECT_EQ(set.at("model.word_embeddings.weight").tensor.format, Format::kBf16);
  EXPECT_EQ(set.at("model.layers.0.attention.q_proj.weight").tensor.format, Format::kFp8);
  EXPECT_EQ(set.at("model.layers.0.attention.A_log").tensor.format, Format::kF32);
}

TEST(Synthetic, EveryExpertHasItsOwnBytes) {
  const auto source = make_synthetic(small(), 1, 1);
  const TensorSet set = bind_tensors(small(), *source);
  const HostTensor& a = set.at("model.layers.1.mlp.experts.0.up_proj.weight").tensor;
  for (const char* name : {"model.layers.1.mlp.experts.1.up_proj.weight",
                           "model.layers.2.mlp.experts.0.up_proj.weight",
                           "model.layers.1.mlp.experts.0.gate_proj.weight"}) {
    const HostTensor& b = set.at(name).tensor;
    EXPECT_NE(a.data, b.data);
    EXPECT_NE(std::memcmp(a.data, b.data, static_cast<size_t>(a.rows * a.cols / 2)), 0);
  }
}

// A row of a matrix maps inputs of order one to an output of order one: rms * sqrt(cols) near 1 (3
// for the head). Scales are powers of two (a factor of 2^-0.5 to 2^0.5), some one step lower (1/2).
TEST(Synthetic, ValuesAreSane) {
  const auto source = make_synthetic(small(), 1, 1);
  const TensorSet set = bind_tensors(small(), *source);
  for (const BoundTensor& bound : set.tensors) {
    const HostTensor& t = bound.tensor;
    std::vector<double> row(static_cast<size_t>(t.cols));
    double sum = 0;
    double mean = 0;
    for (int64_t r = 0; r < t.rows; ++r) {
      dequantise_row(t, r, row.data());
      for (const double v : row) {
        sum += v * v;
        mean += v;
      }
    }
    const auto count = static_cast<double>(t.rows * t.cols);
    const double rms = std::sqrt(sum / count);
    if (t.rows == 1) {
      EXPECT_LT(rms, 2.5) << bound.name;
      continue;
    }
    const double gain =
        bound.component == Component::kEmbed ? rms : rms * std::sqrt(static_cast<double>(t.cols));
    const double wanted = bound.component == Component::kHead ? 3.0 : 1.0;
    EXPECT_GT(gain, wanted * .33) << bound.name;
    EXPECT_LT(gain, wanted * 1.5) << bound.name;
    EXPECT_LT(std::fabs(mean / count), rms * .2) << bound.name;  // signs are balanced
  }
}

}  // namespace
}  // namespace spk
