// `bench`: measured rows of prefill and decoding, in the forms that bench.h lists.
#include "cli/bench.h"

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/identity.h"
#include "cli/machine.h"
#include "cli/output.h"
#include "cli/sampling.h"
#include "cli/values.h"
#include "cli/verbs.h"
#include "cli/version.h"
#include "measure/show.h"
#include "text/chat.h"

#include <algorithm>

namespace spk::cli {
namespace {

constexpr int kSimulatedDrafts = 3;  // where drafts are simulated and --draft is left to us

std::string clocks_text(const Clocks& before, const Clocks& after) {
  return cat("before ", before.text(), "; after ", after.text());
}

// Greedy unless the command line says otherwise: what is measured must not hang on a checkpoint's
// generation_config.json.
SamplerParams sampling_of(const Options& options) {
  SamplingOptions sampling = options.sampling;
  sampling.temperature = sampling.temperature.value_or(0);
  sampling.seed = sampling.seed.value_or(1);
  constexpr int64_t kAnyVocabulary = int64_t{1} << 30;
  return sampler_params(sampling, std::nullopt, kAnyVocabulary);
}

std::string sampling_text(const SamplerParams& p) {
  if (is_greedy(p)) return "greedy";
  return cat("temperature ", p.temperature, ", top_p ", p.top_p, ", top_k ", p.top_k);
}

// What a form decides itself must not look as if somebody had chosen it.
void check_form(const Options& options) {
  const BenchOptions& b = options.bench;
  const ModelOptions& m = options.model;
  const auto refuse = [](const char* form, const char* option, bool given) {
    if (given) fail_usage(form, " chooses that itself: expected no ", option, ", found one");
  };
  if (b.ladder) {
    refuse("--ladder", "--moe", !m.moe.empty());
    refuse("--ladder", "--require", !m.require.empty());  // no row could hold it before its rung
  }
  if (b.acceptance) {
    refuse("--acceptance", "--temperature", options.sampling.temperature.has_value());
    refuse("--acceptance", "--draft", m.draft != "auto");
    refuse("--acceptance", "--simulate-acceptance", b.simulate_acceptance > 0);
  }
  if (b.kernel) {
    refuse("--kernel", "--prompts", !b.prompts.empty());
    refuse("--kernel", "--simulate-acceptance", b.simulate_acceptance > 0);
    refuse("--kernel", "--simulate-experts", b.simulate_experts > 0);
    if (b.depths.size() > 1) fail_usage("--kernel: expected one --depth, found ", b.depths.size());
  }
}

// Drafts of 3, 4 experts a row: 4 to 16 in a verify pass, or as many as there are.
void check_experts(const BenchOptions& bench, const ModelShape& shape, int draft) {
  if (bench.simulate_experts == 0) return;
  const int64_t most =
      std::min(shape.experts, shape.top_k * ((draft == kAutoDepth ? kMaxDrafts : draft) + 1));
  if (bench.simulate_experts < shape.top_k || bench.simulate_experts > most)
    fail_usage("--simulate-experts: expected ", shape.top_k, " (those of one row) to ", most,
               " (of all rows), found ", bench.simulate_experts);
}

void check_simulation(const Options& options, int draft) {
  const BenchOptions& b = options.bench;
  if (b.simulate_acceptance == 0 && b.simulate_experts == 0) return;
  if (draft == 0)
    fail_usage("--simulate-acceptance and --simulate-experts need drafts, found --draft 0");
  const int most = draft == kAutoDepth ? kMaxDrafts : draft;
  if (b.simulate_acceptance > most + 1)
    fail_usage("--simulate-acceptance: expected at most ", most + 1, " with --draft ", most,
               ", found ", b.simulate_acceptance);
}

// One row for each depth, else one.
int bench_rows(const Options& options) {
  const BenchOptions& b = options.bench;
  BenchWork work = work_of(options);
  const bool texts = !work.prompts.empty();
  if (texts && !b.depths.empty()) fail_usage("expected --prompts or --depth, found both");
  const std::string name =
      texts ? cat(work.prompts.size(), " prompts+out", b.out) : cat("in", b.in, "+out", b.out);
  std::vector<int64_t> depths = b.depths;
  if (depths.empty()) depths.push_back(0);
  work.depth = *std::max_element(depths.begin(), depths.end());
  BenchEngine engine(options, options.model, context_for(work));
  const Clocks before = clocks_now();
  std::vector<BenchRow> rows;
  for (const int64_t depth : depths) {
    work.depth = depth;
    work.warm = !texts;
    rows.push_back(engine.run(b.depths.empty() ? name : cat(name, "@", depth), work, false));
  }
  finish_rows(options, result_frame(options, engine, before), rows);
  return 0;
}

}  // namespace

BenchWork work_of(const Options& options) {
  const BenchOptions& b = options.bench;
  BenchWork work;
  work.in = b.in;
  work.out = b.out;
  work.repeat = b.repeat;
  work.seed = static_cast<uint64_t>(options.sampling.seed.value_or(1));
  work.sampling = sampling_of(options);
  if (b.prompts.empty()) return work;
  work.prompts = encode_prompts(options.model, read_prompts(b.prompts));
  return work;
}

int64_t context_for(const BenchWork& work) {
  int64_t longest = work.prompts.empty() ? work.in : 0;
  for (const auto& prompt : work.prompts)
    longest = std::max(longest, static_cast<int64_t>(prompt.size()));
  return work.depth + longest + work.out + 2;  // one more for the warm prompt
}

std::vector<std::vector<int32_t>> encode_prompts(const ModelOptions& options,
                                                 const std::vector<TextPrompt>& texts) {
  if (!options.synthetic.empty())
    fail_usage("synthetic weights have no tokenizer: expected --in N, found texts");
  const auto json = model_text(options, "tokenizer.json");
  if (!json) fail_input(model_name(options), " has no tokenizer.json, which texts need");
  const Tokenizer tokenizer = Tokenizer::from_json(*json, model_name(options) + "/tokenizer.json");
  RenderOptions render;
  std::vector<std::vector<int32_t>> prompts;
  prompts.reserve(texts.size());
  for (const TextPrompt& prompt : texts) {
    render.thinking = prompt.thinking;
    prompts.push_back(encode_chat(tokenizer, render_chat({{"user", prompt.text, "", {}}}, render)));
  }
  return prompts;
}

BenchEngine::BenchEngine(const Options& options, const ModelOptions& model_options,
                         int64_t context) {
  const BenchOptions& b = options.bench;
  EngineOptions e = engine_options(model_options);
  if (b.simulate_acceptance > 0 && e.draft == kAutoDepth) e.draft = kSimulatedDrafts;
  OpenedModel model = open_model(model_options);
  if (e.draft != 0) check_experts(b, model.config.shape, e.draft);
  name_ = model.name;
  weights_ = weights_identity(model);
  if (e.context == 0) e.context = std::min(context, model.config.context);
  if (context > e.context)
    fail_input("prompt, depth and output need a context of ", context, " tokens, found ",
               e.context);
  bytes_.emplace(model.config, bind_tensors(model.config, *model.source, CheckScales::kLater),
                 ByteCount::Choices{e.head, draft_head_rows(model, model_options, e), 4, 4});
  if (e.draft != 0 && (b.simulate_acceptance > 0 || b.simulate_experts > 0)) {
    simulated_ = true;
    e.simulation = {b.simulate_acceptance, b.simulate_experts,
                    static_cast<uint64_t>(options.sampling.seed.value_or(1))};
  }
  e.decorate = [this](std::unique_ptr<Backend> inner) {
    return make_trace_backend(std::move(inner), trace_);
  };
  engine_ = start_engine(model, model_options, e);
}

BenchRun BenchEngine::begin(const BenchWork& work, bool shares) {
  return {*engine_, work, shares ? &trace_ : nullptr};
}

BenchRow BenchEngine::row_of(const BenchRun& run, const std::string& name) const {
  BenchRow row = run.row();
  row.name = name;
  row.simulated = simulated_ && row.accept_length > 0;
  if (row.accept_length > 0 && bytes_->moe_layers() > 0)
    row.distinct_experts = bytes_->distinct_of(row.verify_weight_bytes, row.verify_rows);
  return row;
}

BenchRow BenchEngine::run(const std::string& name, const BenchWork& work, bool shares) {
  BenchRun measured = begin(work, shares);
  Progress progress(name, measured.steps(), "repetitions");
  for (int64_t i = 0; i < measured.steps(); ++i) {
    measured.step();
    progress.update(i + 1);
  }
  return row_of(measured, name);
}

ResultTable result_frame(const Options& options, BenchEngine& engine, const Clocks& before) {
  Backend& backend = engine.engine().backend();
  ResultTable table =
      result_frame(options, engine.name(), engine.weights(), backend.description(), before);
  if (std::string times = backend.own_times(); !times.empty())
    table.notes.emplace_back("phases", std::move(times));
  return table;
}

ResultTable result_frame(const Options& options, const std::string& model,
                         const std::string& weights, const std::string& backend,
                         const Clocks& before) {
  const Version v = version();
  ResultTable table;
  table.command = options.command;
  table.commit = v.commit;
  table.build = cat(v.build, ", ", v.compiler);
  table.machine = cat(this_machine().text(), "; ", backend);
  table.model = model;
  table.weights = weights;
  table.notes = {{"clocks", clocks_text(before, clocks_now())},
                 {"sampling", sampling_text(sampling_of(options))}};
  return table;
}

void finish_rows(const Options& options, ResultTable table, const std::vector<BenchRow>& rows) {
  add_rows(table, rows);
  out(render(table, options.bench.format));
  out_flush();
  if (!options.bench.plot.empty()) write_plot(options.bench.plot, table, rows);
}

int verb_bench(const Options& options) {
  const BenchOptions& b = options.bench;
  const int forms =
      (b.ladder ? 1 : 0) + (b.acceptance ? 1 : 0) + (b.profile ? 1 : 0) + (b.kernel ? 1 : 0);
  check_form(options);
  check_simulation(options, engine_options(options.model).draft);
  const std::string& plot = b.plot;
  const std::string end = plot.size() > 4 ? plot.substr(plot.size() - 4) : "";
  if (!plot.empty() && end != ".svg" && end != ".png")
    fail_usage("--plot: expected FILE.svg or FILE.png, found '", plot, "'");
  const std::string folder = plot.substr(0, plot.find_last_of('/') + 1);
  if (!folder.empty() && !is_folder(folder))  // not after minutes of measuring
    fail_input("--plot ", plot, ": expected a folder ", folder, ", found none");
  if (forms > 1)
    fail_usage("expected one of --ladder, --acceptance, --profile, --kernel, found ", forms);
  if (b.ladder) return bench_ladder(options);
  if (b.acceptance) return bench_acceptance(options);
  if (b.profile) return bench_profile(options);
  if (b.kernel) return bench_kernels(options);
  return bench_rows(options);
}

}  // namespace spk::cli
