// `bench --ladder`: what each optimisation adds, in one table from one run.
//
// Every rung is an engine of its own; a rung differs from the one before in one option.
#include "base/error.h"
#include "base/log.h"
#include "cli/bench.h"
#include "cli/machine.h"
#include "model/model.h"

#include <memory>

namespace spk::cli {
namespace {

struct Rung {
  std::string name;
  ModelOptions model;
};

std::vector<Rung> rungs_of(const Options& options, bool has_mtp) {
  const std::string wanted_head = options.model.lm_head.empty() || options.model.lm_head == "stored"
                                      ? "fp8"
                                      : options.model.lm_head;
  std::vector<Rung> rungs;
  ModelOptions m = options.model;
  m.moe = "plain";
  m.lm_head = "fp32";
  m.draft = "0";
  m.draft_head = 0;
  rungs.push_back({"plain experts, fp32 head", m});
  if (m.precision == PrecisionMode::kFast && m.backend != "reference") {
    m.moe = "packed";
    rungs.push_back({"+ packed experts", m});
  }
  if (wanted_head != m.lm_head) {
    m.lm_head = wanted_head;
    rungs.push_back({cat("+ ", wanted_head, " head"), m});
  }
  if (options.model.draft != "0" && has_mtp) {
    m.draft_head = options.model.draft_head;
    m.draft = options.model.draft == "auto" ? "3" : options.model.draft;
    rungs.push_back({cat("+ MTP, ", m.draft, " drafts"), m});
  }
  return rungs;
}

// Whether all engines fit side by side with room to spare.
bool fit_together(int64_t weight_bytes, size_t rungs) {
  constexpr uint64_t kShare = 8;  // of the memory that is available
  return static_cast<uint64_t>(weight_bytes) * rungs < this_machine().memory_available / kShare;
}

// In turns: what else the machine does meets all rungs alike.
std::vector<BenchRow> measure_in_turns(const Options& options, const std::vector<Rung>& rungs,
                                       const BenchWork& work, const Clocks& before,
                                       ResultTable& frame) {
  std::vector<std::unique_ptr<BenchEngine>> engines;
  std::vector<BenchRun> runs;
  for (const Rung& rung : rungs) {
    engines.push_back(std::make_unique<BenchEngine>(options, rung.model, context_for(work)));
    runs.push_back(engines.back()->begin(work, true));
  }
  const int64_t steps = runs.front().steps();
  Progress progress("ladder", steps, "rounds");
  for (int64_t i = 0; i < steps; ++i) {
    for (BenchRun& run : runs) run.step();
    progress.update(i + 1);
  }
  std::vector<BenchRow> rows;
  for (size_t i = 0; i < rungs.size(); ++i)
    rows.push_back(engines[i]->row_of(runs[i], rungs[i].name));
  frame = result_frame(options, *engines.back(), before);
  frame.notes.emplace_back("order", "the rows took turns, repetition by repetition");
  return rows;
}

// One after the other, none paying for another's memory.
std::vector<BenchRow> measure_in_order(const Options& options, const std::vector<Rung>& rungs,
                                       const BenchWork& work, const Clocks& before,
                                       ResultTable& frame) {
  std::vector<BenchRow> rows;
  for (const Rung& rung : rungs) {
    BenchEngine engine(options, rung.model, context_for(work));
    rows.push_back(engine.run(rung.name, work, true));
    frame = result_frame(options, engine, before);
  }
  frame.notes.emplace_back("order", "one row after the other");
  return rows;
}

}  // namespace

int bench_ladder(const Options& options) {
  if (!options.bench.depths.empty()) fail_usage("expected --ladder or --depth, found both");
  const BenchWork work = work_of(options);
  const Clocks before = clocks_now();
  const OpenedModel sizes = open_model(options.model, Contents::kSizes);
  const TensorSet tensors = bind_tensors(sizes.config, *sizes.source);
  const std::vector<Rung> rungs = rungs_of(options, tensors.has_mtp);
  const int64_t bytes = model_sizes(sizes.config, tensors).weight_bytes;
  ResultTable frame;
  const auto measure = fit_together(bytes, rungs.size()) ? measure_in_turns : measure_in_order;
  std::vector<BenchRow> rows = measure(options, rungs, work, before, frame);
  relate_rows(rows);
  finish_rows(options, std::move(frame), rows);
  return 0;
}

}  // namespace spk::cli
