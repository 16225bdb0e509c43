// One measured row: an engine, a workload, repetitions.
//
// The first repetition is run and dropped (page faults, clocks, caches); median and spread of the
// others. Every repetition of a synthetic workload has other tokens, and that nothing of its prompt
// came from a cache is checked. Bytes are the back end's counts.
#pragma once

#include "backend/trace.h"
#include "engine/engine.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace spk {

struct BenchWork {
  int64_t in = 128;   // prompt tokens that are timed
  int64_t out = 64;   // decoded tokens
  int64_t depth = 0;  // tokens that are there before them
  // Prompts instead of a stream; an end token then ends an answer.
  std::vector<std::vector<int32_t>> prompts;
  int64_t repeat = 3;
  uint64_t seed = 1;
  SamplerParams sampling;
  std::optional<int> draft;  // instead of the engine's
  bool warm = false;         // also the time to the first token when the prompt is in the cache
};

struct BenchRow {
  std::string name;
  bool simulated = false;
  int64_t repetitions = 0;
  int64_t depth = 0;
  int64_t tokens = 0;           // decoded in one repetition
  std::optional<double> tok_s;  // absent where no token was decoded after the first
  double spread_percent = 0;    // (largest - smallest) / median
  double step_p95_ms = 0;       // of the passes
  double drop_percent = 0;      // speed of the second half of the tokens against the first
  double bytes_per_token = 0;
  double gb_s = 0, roof_gb_s = 0, roof_percent = 0;
  double prefill_tok_s = 0;
  double cold_ttft_ms = 0;
  std::optional<double> warm_ttft_ms;
  // Drafts.
  double accept_length = 0;  // 0: none
  double drafts = 0;         // mean drafts of a drafting pass
  double verify_ms = 0;      // mean of the drafting passes
  std::optional<double> verify_over_step;
  double verify_weight_bytes = 0, verify_rows = 0;  // means of the drafting passes
  std::optional<double> distinct_experts;
  // Shares of the decode time, percent, from a traced repetition.
  bool traced = false;
  double moe_percent = 0, attention_percent = 0, feed_percent = 0, head_percent = 0,
         sampling_percent = 0;
  // Against the row before and against the first row, percent.
  std::optional<double> gain_percent, gain_total_percent;

  double ms_per_token() const { return tok_s && *tok_s > 0 ? 1000 / *tok_s : 0; }
};

// The repetitions of one row, one at a time, so that several rows can take turns.
class BenchRun {
 public:
  // `trace`: of the engine's decorator; null: no shares. Engine and trace are borrowed.
  BenchRun(Engine& engine, const BenchWork& work, Trace* trace);
  ~BenchRun();
  BenchRun(BenchRun&&) noexcept;

  int64_t steps() const;  // how often step() is to be called
  void step();
  BenchRow row() const;  // after the last step

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spk
