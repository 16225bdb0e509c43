// What the forms of `bench` share: an opened model with its engine and trace, the workload of the
// command line, the frame of a result.
#pragma once

#include "backend/trace.h"
#include "cli/clocks.h"
#include "cli/options.h"
#include "cli/source.h"
#include "measure/bench_report.h"
#include "measure/pass_bytes.h"
#include "measure/workload.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace spk::cli {

// An engine made for measuring. Not movable: the engine holds the trace.
class BenchEngine {
 public:
  // `context` tokens unless the command line asks for another number; a smaller one is an error.
  BenchEngine(const Options& options, const ModelOptions& model, int64_t context);
  BenchEngine(const BenchEngine&) = delete;
  BenchEngine& operator=(const BenchEngine&) = delete;

  Engine& engine() { return *engine_; }
  Trace& trace() { return trace_; }
  const std::string& name() const { return name_; }
  const std::string& weights() const { return weights_; }
  const ByteCount& bytes() const { return *bytes_; }

  // All steps of one row, with a progress line.
  BenchRow run(const std::string& name, const BenchWork& work, bool shares);
  // The same in pieces. The row of a finished run, with what the bytes tell about experts and
  // whether something was simulated.
  BenchRun begin(const BenchWork& work, bool shares);
  BenchRow row_of(const BenchRun& run, const std::string& name) const;

 private:
  std::string name_, weights_;
  bool simulated_ = false;
  std::optional<ByteCount> bytes_;
  Trace trace_;
  std::unique_ptr<Engine> engine_;
};

// Tokens of the prompts of --prompts; Error when the model has no tokenizer.
std::vector<std::vector<int32_t>> encode_prompts(const ModelOptions& options,
                                                 const std::vector<TextPrompt>& texts);

// Prompts of --prompts or the stream of --in, without depth.
BenchWork work_of(const Options& options);
int64_t context_for(const BenchWork& work);
// Command, commit, machine, model and clocks; the caller adds columns and rows.
ResultTable result_frame(const Options& options, BenchEngine& engine, const Clocks& before);
ResultTable result_frame(const Options& options, const std::string& model,
                         const std::string& weights, const std::string& backend,
                         const Clocks& before);
// Writes the rows to standard output, then --plot where it is wanted: a figure that cannot be
// written costs no row.
void finish_rows(const Options& options, ResultTable table, const std::vector<BenchRow>& rows);
void write_plot(const std::string& path, const ResultTable& frame,
                const std::vector<BenchRow>& rows);

int bench_ladder(const Options& options);
int bench_acceptance(const Options& options);
int bench_profile(const Options& options);
int bench_kernels(const Options& options);

}  // namespace spk::cli
