// The statistics of reports against scipy 1.17.1 and numpy; the call is beside each value.
#include "measure/statistics.h"

#include <gtest/gtest.h>

#include <vector>

namespace spk {
namespace {

TEST(Statistics, WilsonIsScipys) {
  // scipy.stats.binomtest(k, n).proportion_ci(method='wilson')
  const struct {
    int64_t hits, n;
    double low, high;
  } rows[] = {
      {0, 10, 0.0, 0.27753279986288926},
      {10, 10, 0.7224672001371109, 1.0},
      {1, 10, 0.017876213095072896, 0.4041500267952385},
      {957, 1000, 0.942580996155916, 0.9679213465882865},
      {1278, 1319, 0.9581034752838483, 0.9770048037557116},
      {24, 1319, 0.012257491085503381, 0.026931981299880208},
  };
  for (const auto& row : rows) {
    const Interval i = wilson_interval(row.hits, row.n);
    EXPECT_NEAR(i.low, row.low, 1e-12) << row.hits << " of " << row.n;
    EXPECT_NEAR(i.high, row.high, 1e-12) << row.hits << " of " << row.n;
  }
  EXPECT_EQ(wilson_interval(0, 0).low, 0);
  EXPECT_EQ(wilson_interval(0, 0).high, 1);
}

TEST(Statistics, McNemarIsScipys) {
  // scipy.stats.binomtest(min(b, c), b + c, 0.5).pvalue; statsmodels' mcnemar(exact=True) is equal
  EXPECT_EQ(mcnemar_exact(0, 0), 1.0);
  EXPECT_NEAR(mcnemar_exact(1, 0), 1.0, 1e-12);
  EXPECT_NEAR(mcnemar_exact(3, 7), 0.34375, 1e-12);
  EXPECT_NEAR(mcnemar_exact(7, 3), 0.34375, 1e-12);
  EXPECT_NEAR(mcnemar_exact(5, 5), 1.0, 1e-12);
  EXPECT_NEAR(mcnemar_exact(15, 14), 1.0, 1e-12);
  EXPECT_NEAR(mcnemar_exact(40, 20), 0.01348929373119186, 1e-12);
  EXPECT_NEAR(mcnemar_exact(600, 500), 0.0028195449914364284, 1e-11);
}

TEST(Statistics, PairedIntervalIsAgrestiMins) {
  // p12 = (a + 0.5) / (n + 2), p21 likewise, d = p21 - p12,
  // d -+ 1.959964 sqrt((p12 + p21 - d^2) / (n + 2)), computed in Python
  const struct {
    int64_t a, b, n;
    double low, high;
  } rows[] = {
      {3, 7, 100, -0.0240583292693531, 0.1024897018183727},
      {0, 0, 1000, -0.001956051880778497, 0.001956051880778497},
      {40, 20, 1000, -0.03518726197607807, -0.004732897704560654},
  };
  for (const auto& row : rows) {
    const Interval i = paired_interval(row.a, row.b, row.n);
    EXPECT_NEAR(i.low, row.low, 1e-12);
    EXPECT_NEAR(i.high, row.high, 1e-12);
  }
}

TEST(Statistics, QuantilesAreNumpys) {
  // numpy.quantile([3, 1, 2, 10, 7], [0, .25, .5, .95, 1])
  const std::vector<double> values = {3, 1, 2, 10, 7};
  EXPECT_DOUBLE_EQ(quantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(values, 0.25), 2);
  EXPECT_DOUBLE_EQ(median(values), 3);
  EXPECT_NEAR(quantile(values, 0.95), 9.4, 1e-12);
  EXPECT_DOUBLE_EQ(quantile(values, 1), 10);
  EXPECT_DOUBLE_EQ(median({4, 1}), 2.5);
  EXPECT_EQ(quantile({}, 0.5), 0);
  EXPECT_DOUBLE_EQ(mean({1, 2, 6}), 3);
}

}  // namespace
}  // namespace spk
