// One sanity check over the loaded numbers: are the routed experts' scales off by a constant power
// of two?
//
// An older quantiser wrote E8M0 scales with bias 125 instead of 127: every expert is 4 times too
// large per matrix, and the model answers blandly instead of failing. Nothing in one tensor shows
// it. What shows it is the shared expert of the same layer: it reads the same normed input, has the
// same activation, and writes into the same residual stream. The gain of an expert is the product
// of its three matrices' gains (mean |w| * sqrt(cols) each). A bias error of 2 changes that product
// by 4^3 = 64; trained and random members of the family stay well within a factor of 4. So the
// median over the layers beyond a factor of 16, either way, is reported.
#include "base/error.h"
#include "model/tensor_table.h"

#include <algorithm>
#include <cmath>

namespace spk {
namespace {

constexpr double kBeyond = 16.0;
constexpr int64_t kExperts = 4;  // sampled per layer
constexpr int64_t kRows = 4;     // sampled per matrix

double gain(const BoundTensor& bound, const TensorSource& source) {
  const HostTensor& t = bound.tensor;
  const auto codes = static_cast<size_t>(code_bytes(t.format, t.rows, t.cols));
  source.recall(t.data, codes);
  if (t.scales != nullptr) source.recall(t.scales, static_cast<size_t>(t.bytes()) - codes);
  std::vector<float> row(static_cast<size_t>(t.cols));
  double sum = 0;
  const int64_t rows = std::min(kRows, t.rows);
  for (int64_t i = 0; i < rows; ++i) {
    dequantise_row(t, i * t.rows / rows, row.data());
    for (const float w : row) sum += std::fabs(static_cast<double>(w));
  }
  source.drop(t.data, codes);
  const double mean = sum / static_cast<double>(rows * t.cols);
  return mean * std::sqrt(static_cast<double>(t.cols));
}

double ffn_gain(const TensorSet& set, const std::string& prefix) {
  double product = 1;
  for (const char* name : {"gate_proj.weight", "up_proj.weight", "down_proj.weight"})
    product *= gain(set.at(prefix + name), *set.source);
  return product;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::vector<std::string> implausible_experts(const ModelConfig& config, const TensorSet& set) {
  std::vector<double> ratios;  // log2, one a layer
  for (int64_t l = config.dense_layers; l < config.layers; ++l) {
    const std::string mlp = cat("model.layers.", l, ".mlp.");
    const double shared = ffn_gain(set, mlp + "shared_experts.");
    std::vector<double> routed;
    const int64_t count = std::min(kExperts, config.shape.experts);
    for (int64_t i = 0; i < count; ++i)
      routed.push_back(ffn_gain(set, cat(mlp, "experts.", i * config.shape.experts / count, ".")));
    ratios.push_back(std::log2(median(routed) / shared));
  }
  if (ratios.empty()) return {};
  const double ratio = std::exp2(median(ratios));
  if (ratio <= kBeyond && ratio >= 1.0 / kBeyond) return {};
  if (std::isnan(ratio))
    return {
        "WARNING: implausible expert norms: expected numbers, found only zeros in routed and "
        "shared experts: is this file damaged?"};
  return {cat("WARNING: implausible expert norms: the routed experts' gain is ", ratio,
              " times the shared expert's (median over ", ratios.size(),
              " layers, expected within 1/", kBeyond, " to ", kBeyond,
              "): were their scales written with another bias?")};
}

}  // namespace spk
