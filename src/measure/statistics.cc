#include "measure/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace spk {
namespace {

constexpr double kZ95 = 1.959963984540054;  // standard normal, 97.5 %

}  // namespace

double mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

Interval wilson_interval(int64_t hits, int64_t n) {
  if (n <= 0) return {0, 1};
  const double size = static_cast<double>(n), p = static_cast<double>(hits) / size;
  const double z2 = kZ95 * kZ95;
  const double centre = (p + z2 / (2 * size)) / (1 + z2 / size);
  const double half =
      kZ95 / (1 + z2 / size) * std::sqrt(p * (1 - p) / size + z2 / (4 * size * size));
  return {std::max(0.0, centre - half), std::min(1.0, centre + half)};
}

double mcnemar_exact(int64_t only_a, int64_t only_b) {
  const int64_t n = only_a + only_b, k = std::min(only_a, only_b);
  if (n == 0) return 1;
  // P(X <= k) of a binomial(n, 1/2), by logarithms: n may be over a thousand.
  const double size = static_cast<double>(n);
  double tail = 0;
  for (int64_t i = 0; i <= k; ++i) {
    const auto x = static_cast<double>(i);
    tail += std::exp(std::lgamma(size + 1) - std::lgamma(x + 1) - std::lgamma(size - x + 1) -
                     size * std::log(2.0));
  }
  return std::min(1.0, 2 * tail);  // equal halves overlap in the middle
}

Interval paired_interval(int64_t only_a, int64_t only_b, int64_t n) {
  const double size = static_cast<double>(n) + 2;
  const double a = static_cast<double>(only_a) + 0.5, b = static_cast<double>(only_b) + 0.5;
  const double difference = (b - a) / size;
  const double half = kZ95 * std::sqrt((a + b - (b - a) * (b - a) / size)) / size;
  return {std::max(-1.0, difference - half), std::min(1.0, difference + half)};
}

}  // namespace spk
