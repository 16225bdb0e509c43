#include "measure/eval_report.h"

#include "base/error.h"
#include "measure/show.h"

#include <nlohmann/json.hpp>

#include <unordered_map>

namespace spk {
namespace {

using Json = nlohmann::ordered_json;

std::string share(int64_t count, int64_t of) {
  return cat(count, " of ", of, " (",
             fixed(of > 0 ? 100.0 * static_cast<double>(count) / static_cast<double>(of) : 0, 2),
             " %)");
}
std::string percent(const Interval& i, int decimals) {
  return cat(fixed(100 * i.low, decimals), " to ", fixed(100 * i.high, decimals));
}
double ratio(double b, double a) { return a > 0 ? b / a : 0; }

Json json_of(const EvalReport& r) {
  Json j;
  j["questions"] = r.questions;
  j["correct"] = r.correct;
  j["accuracy_percent"] = r.accuracy_percent();
  j["accuracy_interval_percent"] = {100 * r.accuracy.low, 100 * r.accuracy.high};
  j["truncated"] = r.truncated;
  j["errors"] = r.errors;
  j["no_answer"] = r.no_answer;
  j["decode_tok_s"] = r.decode_tok_s;
  j["ms_per_token"] = r.ms_per_token;
  j["latency_ms"] = {
      {"mean", r.latency_mean_ms}, {"p50", r.latency_p50_ms}, {"p95", r.latency_p95_ms}};
  j["ttft_ms"] = {{"mean", r.ttft_mean_ms}, {"p50", r.ttft_p50_ms}, {"p95", r.ttft_p95_ms}};
  j["output_tokens"] = {{"total", r.output_tokens}, {"p50", r.output_p50}, {"p95", r.output_p95}};
  j["prompt_tokens"] = r.prompt_tokens;
  j["accept_length"] = r.accept_length > 0 ? Json(r.accept_length) : Json(nullptr);
  return j;
}

Json json_of(const EvalSettings& options) {
  Json j = Json::object();
  for (const auto& [name, value] : options) j[name] = value;
  return j;
}

std::string dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

EvalReport summarise(const std::vector<EvalRow>& rows) {
  EvalReport r;
  std::vector<double> latency, ttft, output;
  double decode_ms = 0;
  int64_t decoded = 0, passes = 0, tokens_of_passes = 0;
  for (const EvalRow& row : rows) {
    ++r.questions;
    r.correct += row.correct ? 1 : 0;
    r.truncated += row.truncated() ? 1 : 0;
    r.errors += row.failed() ? 1 : 0;
    if (row.failed()) continue;  // no time was measured
    r.no_answer += row.answer ? 0 : 1;
    r.prompt_tokens += row.prompt_tokens;
    r.output_tokens += row.output_tokens;
    latency.push_back(row.latency_ms());
    ttft.push_back(row.ttft_ms);
    output.push_back(static_cast<double>(row.output_tokens));
    decode_ms += row.decode_ms;
    decoded += std::max<int64_t>(row.output_tokens - 1, 0);
    passes += row.draft_passes;
    tokens_of_passes += row.draft_tokens;
  }
  r.accuracy = wilson_interval(r.correct, r.questions);
  r.decode_tok_s = ratio(1000 * static_cast<double>(decoded), decode_ms);
  r.ms_per_token = ratio(decode_ms, static_cast<double>(decoded));
  r.latency_mean_ms = mean(latency);
  r.latency_p50_ms = quantile(latency, 0.5);
  r.latency_p95_ms = quantile(latency, 0.95);
  r.ttft_mean_ms = mean(ttft);
  r.ttft_p50_ms = quantile(ttft, 0.5);
  r.ttft_p95_ms = quantile(ttft, 0.95);
  r.output_p50 = quantile(output, 0.5);
  r.output_p95 = quantile(output, 0.95);
  r.accept_length = ratio(static_cast<double>(tokens_of_passes), static_cast<double>(passes));
  return r;
}

std::string report_text(const EvalReport& r) {
  const auto three = [](double average, double p50, double p95) {
    return cat("mean ", fixed(average, 1), ", P50 ", fixed(p50, 1), ", P95 ", fixed(p95, 1), " ms");
  };
  std::string out = cat("accuracy       ", share(r.correct, r.questions), ", 95 % interval ",
                        percent(r.accuracy, 2), "\n");
  out += cat("truncated      ", share(r.truncated, r.questions), "\n");
  out += cat("no answer      ", r.no_answer, "; errors ", r.errors, "\n");
  out += cat("decode         ", fixed(r.decode_tok_s, 1), " tok/s, ", fixed(r.ms_per_token, 3),
             " ms per output token\n");
  out += cat("latency        ", three(r.latency_mean_ms, r.latency_p50_ms, r.latency_p95_ms), "\n");
  out += cat("first token    ", three(r.ttft_mean_ms, r.ttft_p50_ms, r.ttft_p95_ms), "\n");
  out += cat("output tokens  P50 ", fixed(r.output_p50, 0), ", P95 ", fixed(r.output_p95, 0),
             ", total ", r.output_tokens, "; prompt total ", r.prompt_tokens, "\n");
  out += cat("accept length  ", r.accept_length > 0 ? fixed(r.accept_length, 2) : "- (no drafts)",
             "\n");
  return out;
}

std::string report_json(const EvalReport& report, const EvalSettings& options) {
  Json j = json_of(report);
  j["options"] = json_of(options);
  return dump(j);
}

EvalComparison compare_evals(const EvalFile& a, const EvalFile& b) {
  EvalComparison c;
  c.a = a.path;
  c.b = b.path;
  std::unordered_map<std::string, const EvalRow*> of_b;
  for (const EvalRow& row : b.rows) of_b.emplace(row.id, &row);
  std::vector<EvalRow> rows_a, rows_b;
  std::vector<double> ratios;
  for (const EvalRow& row : a.rows) {
    const auto at = of_b.find(row.id);
    if (at == of_b.end()) {
      ++c.only_in_a;
      continue;
    }
    const EvalRow& other = *at->second;
    if (row.gold != other.gold)
      fail_input("question \"", row.id, "\": expected one right answer, found ", row.gold, " in ",
                 a.path, " and ", other.gold, " in ", b.path);
    rows_a.push_back(row);
    rows_b.push_back(other);
    c.both += row.correct && other.correct ? 1 : 0;
    c.neither += !row.correct && !other.correct ? 1 : 0;
    c.right_a += row.correct && !other.correct ? 1 : 0;
    c.right_b += !row.correct && other.correct ? 1 : 0;
    if (row.latency_ms() > 0 && !other.failed())
      ratios.push_back(other.latency_ms() / row.latency_ms());
  }
  if (rows_a.empty())
    fail_input("expected questions that are in both files, found none: ", a.rows.size(), " in ",
               a.path, ", ", b.rows.size(), " in ", b.path);
  c.only_in_b = static_cast<int64_t>(b.rows.size() - rows_b.size());
  c.in_a = summarise(rows_a);
  c.in_b = summarise(rows_b);
  c.p = mcnemar_exact(c.right_a, c.right_b);
  c.difference = paired_interval(c.right_a, c.right_b, c.pairs());
  c.speed_ratio = ratio(c.in_b.decode_tok_s, c.in_a.decode_tok_s);
  c.latency_ratio = ratio(c.in_b.latency_mean_ms, c.in_a.latency_mean_ms);
  c.ttft_ratio = ratio(c.in_b.ttft_mean_ms, c.in_a.ttft_mean_ms);
  c.median_latency_ratio = median(ratios);
  for (const auto& [name, value] : a.options) {
    for (const auto& [other_name, other] : b.options)
      if (name == other_name && value != other)
        c.changed.emplace_back(name, cat(value, " -> ", other));
  }
  return c;
}

std::string comparison_text(const EvalComparison& c) {
  std::string out = cat("A  ", c.a, "\nB  ", c.b, "\n");
  for (const auto& [name, change] : c.changed) out += cat("   ", name, ": ", change, "\n");
  if (c.only_in_a + c.only_in_b > 0)
    out += cat("left out, without a partner: ", c.only_in_a, " of A, ", c.only_in_b, " of B\n");
  out += cat("\n", c.pairs(), " pairs           B right   B wrong\n");
  out += cat("A right", right_aligned(std::to_string(c.both), 18),
             right_aligned(std::to_string(c.right_a), 10), "\n");
  out += cat("A wrong", right_aligned(std::to_string(c.right_b), 18),
             right_aligned(std::to_string(c.neither), 10), "\n\n");
  const auto line = [&](const char* name, const std::string& a, const std::string& b,
                        const std::string& rest) {
    out +=
        cat(left_aligned(name, 22), right_aligned(a, 10), right_aligned(b, 10), "   ", rest, "\n");
  };
  line("", "A", "B", "");
  line("accuracy %", fixed(c.in_a.accuracy_percent(), 2), fixed(c.in_b.accuracy_percent(), 2),
       cat("difference ", fixed(c.in_b.accuracy_percent() - c.in_a.accuracy_percent(), 2),
           " points, 95 % interval ", percent(c.difference, 2),
           "; McNemar's exact p = ", fixed(c.p, 4)));
  line("decode tok/s", fixed(c.in_a.decode_tok_s, 1), fixed(c.in_b.decode_tok_s, 1),
       cat("B / A = ", fixed(c.speed_ratio, 3)));
  line("latency, mean ms", fixed(c.in_a.latency_mean_ms, 1), fixed(c.in_b.latency_mean_ms, 1),
       cat("B / A = ", fixed(c.latency_ratio, 3), ", median over the questions ",
           fixed(c.median_latency_ratio, 3)));
  line("latency, P95 ms", fixed(c.in_a.latency_p95_ms, 1), fixed(c.in_b.latency_p95_ms, 1), "");
  line("first token, mean ms", fixed(c.in_a.ttft_mean_ms, 1), fixed(c.in_b.ttft_mean_ms, 1),
       cat("B / A = ", fixed(c.ttft_ratio, 3)));
  line("output tokens, P50", fixed(c.in_a.output_p50, 0), fixed(c.in_b.output_p50, 0), "");
  const auto accept = [](double x) { return x > 0 ? fixed(x, 2) : std::string("-"); };
  line("accept length", accept(c.in_a.accept_length), accept(c.in_b.accept_length), "");
  line("truncated", std::to_string(c.in_a.truncated), std::to_string(c.in_b.truncated), "");
  line("errors", std::to_string(c.in_a.errors), std::to_string(c.in_b.errors), "");
  return out;
}

std::string comparison_json(const EvalComparison& c) {
  Json j;
  j["a"] = c.a;
  j["b"] = c.b;
  j["changed"] = json_of(c.changed);
  j["only_in_a"] = c.only_in_a;
  j["only_in_b"] = c.only_in_b;
  j["pairs"] = c.pairs();
  j["both_right"] = c.both;
  j["right_in_a_only"] = c.right_a;
  j["right_in_b_only"] = c.right_b;
  j["both_wrong"] = c.neither;
  j["difference_points"] = c.in_b.accuracy_percent() - c.in_a.accuracy_percent();
  j["difference_interval_points"] = {100 * c.difference.low, 100 * c.difference.high};
  j["mcnemar_p"] = c.p;
  j["speed_ratio"] = c.speed_ratio;
  j["latency_ratio"] = c.latency_ratio;
  j["median_latency_ratio"] = c.median_latency_ratio;
  j["ttft_ratio"] = c.ttft_ratio;
  j["report_a"] = json_of(c.in_a);
  j["report_b"] = json_of(c.in_b);
  return dump(j);
}

}  // namespace spk
