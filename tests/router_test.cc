// The router against its formula, written here once more: sigmoid scores, a bias that chooses and
// does not weigh, groups by their two best, weights that sum to the scaling factor. A softmax in
// the place of the sigmoid, a bias in the weights or a lost factor gives plausible text with half
// of the experts wrong, so the trained router of ling-nano chooses here for every token it knows.
#include "base/error.h"
#include "formats/checkpoint.h"
#include "model/config.h"
#include "model/model.h"
#include "support/verbs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

namespace spk {
namespace {

std::vector<double> numbers(const TensorSet& set, const std::string& name) {
  const HostTensor& t = set.at(name).tensor;
  std::vector<double> all(static_cast<size_t>(t.rows * t.cols));
  for (int64_t r = 0; r < t.rows; ++r) dequantise_row(t, r, all.data() + r * t.cols);
  return all;
}

// Indices of the n largest, ties to the lowest index.
std::vector<int64_t> best(const std::vector<double>& values, int64_t n) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
  });
  order.resize(static_cast<size_t>(n));
  return order;
}

struct Choice {
  std::map<int32_t, double> weights;  // by expert
  double gap = 0;                     // between the last that is in and the first that is out
};

Choice choose(const std::vector<double>& logits, const std::vector<double>& bias,
              const ModelShape& s) {
  std::vector<double> score, biased;
  for (size_t e = 0; e < logits.size(); ++e) {
    score.push_back(1 / (1 + std::exp(-logits[e])));
    biased.push_back(score.back() + bias[e]);
  }
  const int64_t per_group = s.experts / s.groups;
  std::vector<double> group;
  for (int64_t g = 0; g < s.groups; ++g) {
    const std::vector<double> of(biased.begin() + g * per_group,
                                 biased.begin() + (g + 1) * per_group);
    const auto two = best(of, 2);
    group.push_back(of[static_cast<size_t>(two[0])] + of[static_cast<size_t>(two[1])]);
  }
  const auto order = best(group, s.groups);
  double gap = s.keep_groups < s.groups ? group[static_cast<size_t>(order[s.keep_groups - 1])] -
                                              group[static_cast<size_t>(order[s.keep_groups])]
                                        : 1;
  std::vector<double> open(biased.size(), -HUGE_VAL);
  for (int64_t g = 0; g < s.keep_groups; ++g)
    for (int64_t e = order[g] * per_group; e < (order[g] + 1) * per_group; ++e)
      open[static_cast<size_t>(e)] = biased[static_cast<size_t>(e)];
  const auto in = best(open, s.top_k + 1);
  gap = std::min(
      gap, open[static_cast<size_t>(in[s.top_k - 1])] - open[static_cast<size_t>(in[s.top_k])]);
  double sum = 0;
  for (int64_t k = 0; k < s.top_k; ++k) sum += score[static_cast<size_t>(in[k])];
  Choice c;
  c.gap = gap;
  for (int64_t k = 0; k < s.top_k; ++k)
    c.weights[static_cast<int32_t>(in[k])] =
        score[static_cast<size_t>(in[k])] / sum * s.routed_scale;
  return c;
}

bool same_experts(const std::map<int32_t, double>& a, const std::map<int32_t, double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return x.first == y.first; });
}

TEST(Router, ATrainedRouterChoosesAndWeighsByTheFormula) {
  const auto checkpoint = Checkpoint::open(std::string(SPARKLING_SOURCE_DIR) + "/models/ling-nano");
  const ModelConfig config = parse_config(*checkpoint->text("config.json"), "config.json");
  const ModelShape& s = config.shape;
  const TensorSet set = bind_tensors(config, *checkpoint);
  const std::vector<double> embed = numbers(set, "model.word_embeddings.weight");
  const int64_t count = s.vocab;
  for (const int64_t layer : {config.dense_layers, config.layers / 2, config.layers - 1}) {
    const std::string prefix = cat("model.layers.", layer, ".");
    const auto norm = numbers(set, prefix + "post_attention_layernorm.weight");
    const auto router = numbers(set, prefix + "mlp.gate.weight");
    const auto bias = numbers(set, prefix + "mlp.gate.expert_bias");
    const auto input = [&](int64_t token) {  // as the layer would see the token alone
      std::vector<double> x(embed.begin() + token * s.hidden,
                            embed.begin() + (token + 1) * s.hidden);
      const double square = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
      const double scale = 1 / std::sqrt(square / static_cast<double>(s.hidden) + s.eps);
      for (size_t c = 0; c < x.size(); ++c)
        x[c] = static_cast<double>(static_cast<float>(x[c] * scale * norm[c]));
      return x;
    };

    test::Verbs v(s);
    const auto at = [&](const std::vector<double>& m, int64_t cols) {
      return [&m, cols](int64_t r, int64_t c) { return m[static_cast<size_t>(r * cols + c)]; };
    };
    const auto w = v.matrix(s.experts, s.hidden, at(router, s.hidden));
    const auto b = v.vector(s.experts, at(bias, s.experts));
    std::vector<double> all;
    for (int64_t t = 0; t < count; ++t) {
      const auto x = input(t);
      all.insert(all.end(), x.begin(), x.end());
    }
    const auto h = v.rows(count, s.hidden, at(all, s.hidden));
    const auto ids = v.ints(std::vector<int32_t>(static_cast<size_t>(count * s.top_k)), s.top_k);
    const auto weights = v.random(count, s.top_k);
    v.begin(StepKind::kPrefill, count, 0);
    v.each([&](Backend& backend, size_t i) {
      Moe moe;
      moe.router = w[i];
      moe.bias = b[i];
      backend.route(h[i], moe, {}, ids[i], weights[i]);
    });

    std::vector<Choice> truth;
    int64_t by_bias = 0;
    const std::vector<double> no_bias(bias.size(), 0.0);
    for (int64_t t = 0; t < count; ++t) {
      std::vector<double> logits;
      for (int64_t e = 0; e < s.experts; ++e)
        logits.push_back(std::inner_product(all.begin() + t * s.hidden,
                                            all.begin() + (t + 1) * s.hidden,
                                            router.begin() + e * s.hidden, 0.0));
      truth.push_back(choose(logits, bias, s));
      by_bias += same_experts(truth.back().weights, choose(logits, no_bias, s).weights) ? 0 : 1;
    }
    EXPECT_GT(by_bias, count / 100) << "the bias never chooses: this layer would prove nothing";

    for (size_t i = 0; i < v.size(); ++i) {
      std::vector<int32_t> got(static_cast<size_t>(count * s.top_k));
      v.backend(i).read(ids[i], got.data());
      const std::vector<float> weight = v.read(weights, i);
      for (int64_t t = 0; t < count; ++t) {
        std::map<int32_t, double> chosen;
        for (int64_t k = 0; k < s.top_k; ++k) {
          const auto place = static_cast<size_t>(t * s.top_k + k);
          chosen[got[place]] = static_cast<double>(weight[place]);
        }
        const Choice& expected = truth[static_cast<size_t>(t)];
        const std::string where = cat(v.backend(i).description(), ", layer ", layer, ", token ", t);
        if (!same_experts(chosen, expected.weights)) {  // only where rounding may decide
          ASSERT_GT(i, 0u) << where;
          ASSERT_LT(expected.gap, 1e-6) << where;
          continue;
        }
        for (const auto& [expert, value] : chosen)
          ASSERT_NEAR(value, expected.weights.at(expert), 1e-6) << where << ", expert " << expert;
      }
    }
  }
}

}  // namespace
}  // namespace spk
