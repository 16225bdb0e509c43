// The statistics that reports quote: order statistics, Wilson's interval, McNemar's exact test.
//
// Plain functions of their arguments. The tests hold them against values of scipy and statsmodels.
#pragma once

#include <cstdint>
#include <vector>

namespace spk {

double mean(const std::vector<double>& values);
// Quantile `q` of 0 to 1 by linear interpolation between the sorted values, as numpy's default; 0
// for no values.
double quantile(std::vector<double> values, double q);
double median(std::vector<double> values);

struct Interval {
  double low = 0;
  double high = 0;
};

// 95 % interval of a share of `hits` in `n`; [0, 1] for n = 0. Wilson's: it stays inside [0, 1]
// and means something for 0 hits and for all.
Interval wilson_interval(int64_t hits, int64_t n);

// Two-sided p of McNemar's exact test: of `only_a` + `only_b` pairs that disagree, each side is a
// fair coin. 1 when none disagrees.
double mcnemar_exact(int64_t only_a, int64_t only_b);

// 95 % interval of (share right in B) - (share right in A) over n pairs, of which `only_a` and
// `only_b` were right in one only. Agresti and Min's: Wald's after half a pair is added to each of
// the four cells, so that few disagreements do not look like certainty.
Interval paired_interval(int64_t only_a, int64_t only_b, int64_t n);

}  // namespace spk
