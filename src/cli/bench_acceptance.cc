// `bench --acceptance`: how many drafts are right, by kind of text, temperature, length and depth.
//
// A published 3.90 came from repetitive synthetic text, 2.68 from questions at temperature 0.6: the
// text decides. Every depth decodes the same text (the seed is fixed and drafts change no text), so
// the rates compare, and the best depth is the one with the most tokens per second here.
#include "base/error.h"
#include "base/log.h"
#include "cli/bench.h"
#include "cli/output.h"
#include "measure/show.h"

#include <algorithm>
#include <array>
#include <map>

namespace spk::cli {
namespace {

constexpr int kDeepest = 5;
constexpr std::array<double, 3> kTemperatures = {0, 0.6, 1.0};

struct Kind {
  std::string name;
  std::vector<std::vector<int32_t>> prompts;  // empty: the token stream
};

// Texts by kind in the order of their first appearance, then a stream of random tokens.
std::vector<Kind> kinds_of(const Options& options) {
  std::vector<Kind> kinds;
  if (options.model.synthetic.empty()) {
    const std::string& file = options.bench.prompts;
    std::map<std::string, size_t> place;
    std::vector<TextPrompt> texts;
    std::vector<size_t> kind_of;
    for (const TextPrompt& p : file.empty() ? study_prompts() : read_prompts(file)) {
      const auto [at, fresh] = place.emplace(p.kind, kinds.size());
      if (fresh) kinds.push_back({p.kind.empty() ? "text" : p.kind, {}});
      texts.push_back(p);
      kind_of.push_back(at->second);
    }
    std::vector<std::vector<int32_t>> prompts = encode_prompts(options.model, texts);
    for (size_t i = 0; i < prompts.size(); ++i)
      kinds[kind_of[i]].prompts.push_back(std::move(prompts[i]));
  }
  kinds.push_back({"random tokens", {}});
  return kinds;
}

ResultTable columns_for(ResultTable table) {
  table.columns = {{"text", "kind", 0, 1},
                   {"temperature", "temperature", 1, 1},
                   {"out", "out", 0, 1},
                   {"tokens", "tokens", 0, 1}};
  for (int d = 1; d <= kDeepest; ++d)
    table.columns.push_back({cat("L at ", d), cat("accept_length_", d), 2, 1});
  for (int d = 0; d <= kDeepest; ++d)
    table.columns.push_back({cat("tok/s at ", d), cat("tok_s_", d), 1, 1});
  table.columns.push_back({"best depth", "best_depth", 0, 1});
  table.columns.push_back({"simulated", "simulated", 0, 1});
  return table;
}

std::vector<Cell> study_row(BenchEngine& engine, const Kind& kind, const BenchWork& base) {
  std::vector<Cell> lengths, speeds;
  int64_t best = 0, tokens = 0;
  double best_speed = 0;
  bool simulated = false;
  BenchWork work = base;
  work.prompts = kind.prompts;
  for (int d = 0; d <= kDeepest; ++d) {
    work.draft = d;
    const BenchRow row = engine.run(cat(kind.name, ", depth ", d), work, false);
    simulated = simulated || row.simulated;
    tokens = row.tokens;
    if (d > 0) lengths.push_back(measured_if(row.accept_length > 0, row.accept_length));
    speeds.push_back(measured(row.tok_s));
    if (row.tok_s.value_or(0) > best_speed) {
      best_speed = *row.tok_s;
      best = d;
    }
  }
  std::vector<Cell> cells = {kind.name, work.sampling.temperature, work.out, tokens};
  cells.insert(cells.end(), lengths.begin(), lengths.end());
  cells.insert(cells.end(), speeds.begin(), speeds.end());
  cells.emplace_back(best);
  cells.emplace_back(simulated);
  return cells;
}

}  // namespace

int bench_acceptance(const Options& options) {
  const BenchOptions& b = options.bench;
  if (!b.plot.empty() || !b.depths.empty())
    fail_usage("--acceptance is a table of its own: expected no --plot and no --depth");
  const std::vector<Kind> kinds = kinds_of(options);
  BenchWork work = work_of(options);
  int64_t context = 0;
  for (const Kind& kind : kinds) {
    work.prompts = kind.prompts;
    context = std::max(context, context_for(work));
  }
  ModelOptions model = options.model;
  model.draft = cat(kDeepest);
  BenchEngine engine(options, model, context);
  const Clocks before = clocks_now();
  std::vector<std::vector<Cell>> rows;
  std::vector<int64_t> lengths = {std::max<int64_t>(b.out / 4, 2)};
  if (b.out > lengths[0]) lengths.push_back(b.out);
  for (const Kind& kind : kinds) {
    for (const double temperature : kTemperatures) {
      for (const int64_t out : lengths) {
        work.sampling.temperature = temperature;
        work.out = out;
        rows.push_back(study_row(engine, kind, work));
      }
    }
  }
  ResultTable table = columns_for(result_frame(options, engine, before));
  table.notes.back() = {"sampling", cat("temperature as in the table, top_p ", work.sampling.top_p,
                                        ", top_k ", work.sampling.top_k)};
  table.rows = std::move(rows);
  out(render(table, b.format));
  return 0;
}

}  // namespace spk::cli
