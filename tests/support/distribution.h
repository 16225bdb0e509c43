// What a sampler should draw, computed the slow way, and whether counted draws agree with it.
#pragma once

#include "backend/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

namespace spk::test {

// The distribution that the rule defines, computed the slow way: sort everything, filter,
// normalise.
inline std::vector<double> slow_distribution(const std::vector<float>& logits,
                                             const SamplerParams& p) {
  const size_t n = logits.size();
  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  std::vector<double> w(n, 0.0);
  for (size_t i = 0; i < n; ++i)
    if (p.top_k <= 0 || i < static_cast<size_t>(p.top_k))
      w[order[i]] =
          std::exp((static_cast<double>(logits[order[i]]) - logits[order[0]]) / p.temperature);
  const double total = std::accumulate(w.begin(), w.end(), 0.0);
  double seen = 0;
  for (size_t i = 0; i < n; ++i) {
    if (seen >= p.top_p * total || w[order[i]] < p.min_p) {
      w[order[i]] = 0;
    } else {
      seen += w[order[i]];
    }
  }
  const double kept = std::accumulate(w.begin(), w.end(), 0.0);
  for (double& x : w) x /= kept;
  return w;
}

// Chi-square of counts against probabilities, the 99.9 % point for its degrees of freedom
// (Wilson-Hilferty). Ids of probability 0 must not occur; rare ones are counted together.
inline void expect_distribution(const std::vector<int>& count, const std::vector<double>& expected,
                                const std::string& where) {
  const double draws = std::accumulate(count.begin(), count.end(), 0.0);
  double chi = 0, rare = 0, rare_count = 0;
  int df = -1;
  const auto add = [&](double found, double e) {
    chi += (found - e) * (found - e) / e;
    ++df;
  };
  for (size_t t = 0; t < count.size(); ++t) {
    const double e = expected[t] * draws;
    if (expected[t] == 0) {
      EXPECT_EQ(count[t], 0) << where << ": id " << t << " is filtered out";
    } else if (e < 5) {
      rare += e;
      rare_count += count[t];
    } else {
      add(count[t], e);
    }
  }
  if (rare >= 5) add(rare_count, rare);
  ASSERT_GE(df, 1) << where;
  const double h = 2.0 / (9.0 * df), bound = df * std::pow(1 - h + 3.09 * std::sqrt(h), 3);
  EXPECT_LT(chi, bound) << where << ", " << df << " degrees of freedom";
}

}  // namespace spk::test
