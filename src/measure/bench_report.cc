#include "measure/bench_report.h"

#include "base/error.h"
#include "measure/show.h"

#include <algorithm>
#include <functional>
#include <optional>

namespace spk {
namespace {

// A column and how to read it from a row; absent: not measured.
struct Field {
  TableColumn column;
  std::function<std::optional<double>(const BenchRow&)> value;
};

std::optional<double> when(bool there, double value) {
  return there ? std::optional<double>(value) : std::nullopt;
}

constexpr int64_t kDropTokens = 128;  // fewer tell nothing about a drop

// The first keys are the contract of the JSON form.
const std::vector<Field>& fields() {
  using R = const BenchRow&;
  static const std::vector<Field> all = {
      {{"decode tok/s", "tok_s", 1, 1}, [](R r) { return r.tok_s; }},
      {{"ms/token", "ms_per_token", 3, 1},
       [](R r) { return when(r.tok_s.has_value(), r.ms_per_token()); }},
      {{"gain %", "gain_percent", 1, 1}, [](R r) { return r.gain_percent; }},
      {{"total gain %", "", 1, 1}, [](R r) { return r.gain_total_percent; }},
      {{"MB/token", "bytes_per_token", 2, 1e-6},
       [](R r) { return when(r.tok_s.has_value(), r.bytes_per_token); }},
      {{"GB/s", "gb_s", 2, 1}, [](R r) { return when(r.tok_s.has_value(), r.gb_s); }},
      {{"% of roof", "roof_percent", 1, 1},
       [](R r) { return when(r.tok_s.has_value() && r.roof_gb_s > 0, r.roof_percent); }},
      {{"accept length", "accept_length", 2, 1},
       [](R r) { return when(r.accept_length > 0, r.accept_length); }},
      {{"verify/step", "verify_over_step", 2, 1}, [](R r) { return r.verify_over_step; }},
      {{"distinct experts", "distinct_experts", 1, 1}, [](R r) { return r.distinct_experts; }},
      {{"MoE %", "moe_percent", 1, 1}, [](R r) { return when(r.traced, r.moe_percent); }},
      {{"attention %", "attention_percent", 1, 1},
       [](R r) { return when(r.traced, r.attention_percent); }},
      {{"head %", "head_percent", 1, 1}, [](R r) { return when(r.traced, r.head_percent); }},
      {{"sampling %", "sampling_percent", 1, 1},
       [](R r) { return when(r.traced, r.sampling_percent); }},
      {{"prefill tok/s", "prefill_tok_s", 1, 1},
       [](R r) { return when(r.prefill_tok_s > 0, r.prefill_tok_s); }},
      {{"spread %", "tok_s_spread_percent", 1, 1},
       [](R r) { return when(r.tok_s.has_value(), r.spread_percent); }},
      {{"pass P95 ms", "pass_p95_ms", 2, 1},
       [](R r) { return when(r.step_p95_ms > 0, r.step_p95_ms); }},
      {{"drop %", "drop_percent", 1, 1},
       [](R r) { return when(r.tok_s.has_value() && r.tokens >= kDropTokens, r.drop_percent); }},
      {{"cold TTFT ms", "cold_ttft_ms", 1, 1}, [](R r) { return when(true, r.cold_ttft_ms); }},
      {{"", "gain_total_percent", 1, 1}, [](R r) { return r.gain_total_percent; }},
      {{"warm TTFT ms", "warm_ttft_ms", 1, 1}, [](R r) { return r.warm_ttft_ms; }},
  };
  return all;
}
constexpr size_t kContract = 14;  // "simulated" stands after these

}  // namespace

void relate_rows(std::vector<BenchRow>& rows) {
  double roof = 0;
  for (const BenchRow& r : rows) roof = std::max(roof, r.roof_gb_s);
  const BenchRow* before = nullptr;
  double step_ms = 0;  // of the last row without drafts
  for (BenchRow& r : rows) {
    r.roof_gb_s = roof;
    if (roof > 0) r.roof_percent = 100 * r.gb_s / roof;
    if (r.tok_s && before != nullptr && before->tok_s && *before->tok_s > 0) {
      r.gain_percent = 100 * (*r.tok_s / *before->tok_s - 1);
      r.gain_total_percent = 100 * (*r.tok_s / *rows.front().tok_s - 1);
    }
    if (r.accept_length == 0) {
      step_ms = r.ms_per_token();
    } else if (step_ms > 0) {
      r.verify_over_step = r.verify_ms / step_ms;
    }
    before = &r;
  }
}

void add_rows(ResultTable& table, const std::vector<BenchRow>& rows) {
  table.columns = {{"test", "", 0, 1}, {"", "name", 0, 1}};
  // Beside the shares of a ladder there is no room for what follows prefill and spread.
  const bool traced = std::any_of(rows.begin(), rows.end(), [](const auto& r) { return r.traced; });
  for (size_t i = 0; i < fields().size(); ++i) {
    if (i == kContract) table.columns.push_back({"", "simulated", 0, 1});
    table.columns.push_back(fields()[i].column);
    if (traced && i >= kContract + 2) table.columns.back().head.clear();
  }
  for (const char* key : {"drafts", "verify_ms", "roof_gb_s", "repetitions", "tokens"})
    table.columns.push_back({"", key, 0, 1});
  double roof = 0;
  for (const BenchRow& r : rows) {
    std::vector<Cell> cells = {r.name + (r.simulated ? " (simulated)" : ""), r.name};
    for (size_t i = 0; i < fields().size(); ++i) {
      if (i == kContract) cells.emplace_back(r.simulated);
      const auto value = fields()[i].value(r);
      cells.push_back(measured(value));
    }
    cells.emplace_back(r.drafts);
    cells.push_back(measured_if(r.accept_length > 0, r.verify_ms));
    cells.emplace_back(r.roof_gb_s);
    cells.emplace_back(r.repetitions);
    cells.emplace_back(r.tokens);
    table.rows.push_back(std::move(cells));
    roof = std::max(roof, r.roof_gb_s);
  }
  table.notes.emplace_back(
      "roof", roof > 0 ? cat(fixed(roof, 1), " GB/s, read bandwidth of the same threads")
                       : "not measured within the memory limit");
}

}  // namespace spk
