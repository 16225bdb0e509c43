// What the rows of an evaluation say: accuracy, speed, lengths; and two evaluations paired.
//
// Errors and truncations count as wrong and are counted apart, never left out. Ratios of speed are
// of the same questions. Texts here; where they go is the command line's affair.
#pragma once

#include "measure/eval_log.h"
#include "measure/statistics.h"

#include <string>
#include <vector>

namespace spk {

struct EvalReport {
  int64_t questions = 0;
  int64_t correct = 0;
  int64_t truncated = 0;
  int64_t errors = 0;
  int64_t no_answer = 0;  // nothing that could be the value was found in the text
  Interval accuracy;      // 95 %
  double decode_tok_s = 0;
  double ms_per_token = 0;  // decode time over tokens after the first
  double latency_mean_ms = 0, latency_p50_ms = 0, latency_p95_ms = 0;
  double ttft_mean_ms = 0, ttft_p50_ms = 0, ttft_p95_ms = 0;
  double output_p50 = 0, output_p95 = 0;  // tokens
  int64_t prompt_tokens = 0, output_tokens = 0;
  double accept_length = 0;  // over all passes that drafted; 0: none

  double accuracy_percent() const {
    return questions > 0 ? 100.0 * static_cast<double>(correct) / static_cast<double>(questions)
                         : 0;
  }
};
EvalReport summarise(const std::vector<EvalRow>& rows);
std::string report_text(const EvalReport& report);
std::string report_json(const EvalReport& report, const EvalSettings& options);

struct EvalComparison {
  std::string a, b;                      // names of the files
  int64_t only_in_a = 0, only_in_b = 0;  // questions without a partner, left out
  EvalReport in_a, in_b;                 // of the pairs
  int64_t both = 0, neither = 0, right_a = 0, right_b = 0;
  double p = 1;              // McNemar's exact test
  Interval difference;       // of the accuracies, B - A, 95 %
  double speed_ratio = 0;    // decode tok/s, B / A
  double latency_ratio = 0;  // mean, B / A
  double ttft_ratio = 0;
  double median_latency_ratio = 0;  // over the questions
  EvalSettings changed;             // options with different values: "a -> b"
  int64_t pairs() const { return both + neither + right_a + right_b; }
};
// Error(kInput) when no question is in both, or one has two different right answers.
EvalComparison compare_evals(const EvalFile& a, const EvalFile& b);
std::string comparison_text(const EvalComparison& comparison);
std::string comparison_json(const EvalComparison& comparison);

}  // namespace spk
