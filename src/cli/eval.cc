// `eval`: question files through the model, one row a question, and two such results compared.
//
// Every question once, in the file's order, with its index as seed, so that a run repeats itself
// and two runs pair. What can be resumed and what must be refused is eval_log.h's affair.
#include "base/error.h"
#include "base/log.h"
#include "cli/generate.h"
#include "cli/identity.h"
#include "cli/output.h"
#include "cli/sampling.h"
#include "cli/source.h"
#include "cli/values.h"
#include "cli/verbs.h"
#include "measure/eval_report.h"
#include "measure/questions.h"
#include "measure/show.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace spk::cli {
namespace {

using Clock = std::chrono::steady_clock;

// The published run's sampling; the command line goes first, generation_config.json is not asked,
// so that the same command means the same with every checkpoint.
SamplerParams sampling_of(const Options& options, int64_t vocab) {
  SamplingOptions s = options.sampling;
  s.temperature = s.temperature.value_or(0.6);
  s.top_p = s.top_p.value_or(0.95);
  s.top_k = s.top_k.value_or(29);
  s.seed = 0;  // each question sets its own
  return sampler_params(s, std::nullopt, vocab);
}

std::vector<Question> shots_of(const EvalArguments& e, std::string& hash) {
  if (e.train.empty()) {
    if (e.shots.value_or(0) > 0)
      fail_usage("--shots ", *e.shots, " needs --train FILE, which the examples come from");
    return {};
  }
  QuestionFile train = read_questions(e.train);
  hash = train.hash;
  const auto wanted = static_cast<size_t>(e.shots.value_or(5));
  if (train.questions.size() < wanted)
    fail_input(e.train, ": expected at least ", wanted, " questions for --shots, found ",
               train.questions.size());
  train.questions.resize(wanted);
  return std::move(train.questions);
}

// The question as the last turn of a chat in which the examples were asked and answered before.
std::vector<int32_t> prompt_of(const Tokenizer& tokenizer, const Options& options,
                               const std::vector<Question>& shots, const Question& question) {
  std::vector<Message> messages;
  if (!options.run.system.empty()) messages.push_back({"system", options.run.system, "", {}});
  for (const Question& shot : shots) {
    messages.push_back({"user", shot.question, "", {}});
    messages.push_back({"assistant", shot.answer, "", {}});
  }
  messages.push_back({"user", question.question, "", {}});
  RenderOptions render;
  render.thinking = options.eval.thinking;
  return encode_chat(tokenizer, render_chat(messages, render));
}

EvalSettings settings_of(const Options& options, const QuestionFile& data,
                         const std::string& train_hash, const SamplerParams& p,
                         const std::string& model, const std::string& weights) {
  const EvalArguments& e = options.eval;
  EvalSettings s = {
      {"eval", e.what},
      {"data", data.hash},
      {"shots", train_hash.empty() ? "0" : cat(e.shots.value_or(5), " of ", train_hash)},
      {"thinking", e.thinking ? "on" : "off"},
      {"system", options.run.system},
      {"max_tokens", cat(e.max_tokens)},
      {"temperature", cat(p.temperature)},
      {"top_p", cat(p.top_p)},
      {"top_k", cat(p.top_k)},
      {"min_p", cat(p.min_p)},
      {"repetition_penalty", cat(p.repetition_penalty)},
      {"presence_penalty", cat(p.presence_penalty)},
      {"frequency_penalty", cat(p.frequency_penalty)},
      {"model", model},
      {"weights", weights},
  };
  for (const auto& pair : run_settings(options.model)) s.push_back(pair);
  return s;
}

EvalRow ask(Engine& engine, const Question& question, const GenerateRequest& request,
            bool thinking) {
  EvalRow row;
  row.id = question.id;
  row.gold = question.gold.value;
  row.prompt_tokens = static_cast<int64_t>(request.prompt.size());
  ParserOptions parser;
  parser.thinking = thinking;
  parser.tool_calls = false;
  Answer answer;
  try {
    answer = generate_answer(engine, request, parser, nullptr);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;  // the machine's trouble is not the question's
    row.finish_reason = "error";
    row.error = error.what();
    return row;
  }
  const Timings& t = answer.result.timings;
  row.finish_reason = finish_reason_name(answer.result.reason);
  row.text = answer.parsed.content;
  row.answer = extract_answer(row.text, question.gold);
  row.correct = same_answer(row.answer, question.gold);
  row.output_tokens = t.output_tokens;
  row.ttft_ms = 1000 * t.prefill_seconds;
  row.decode_ms = 1000 * t.decode_seconds;
  row.accept_length = t.drafts.accept_length();
  row.draft_passes = static_cast<int64_t>(t.drafts.drafting_cycles);
  row.draft_tokens = static_cast<int64_t>(t.drafts.committed_drafting);
  return row;
}

std::string state_line(const std::vector<EvalRow>& rows, size_t fresh, double seconds,
                       size_t left) {
  const EvalReport r = summarise(rows);
  std::string line = cat(show_fixed(r.accuracy_percent(), 1), " % right, ",
                         show_fixed(r.decode_tok_s, 1), " tok/s");
  if (fresh == 0) return line;
  const double remaining = seconds / static_cast<double>(fresh) * static_cast<double>(left);
  return cat(line, ", ", show_duration(remaining), " left");
}

void print(const Options& options, const EvalLog& log, const EvalSettings& settings) {
  const EvalReport report = summarise(log.rows());
  out(options.json || options.eval.format == "json" ? report_json(report, settings)
                                                    : report_text(report));
}

int run_questions(const Options& options) {
  const EvalArguments& e = options.eval;
  QuestionFile data = read_questions(e.data);
  std::string train_hash;
  const std::vector<Question> shots = shots_of(e, train_hash);
  if (e.limit > 0 && static_cast<size_t>(e.limit) < data.questions.size())
    data.questions.resize(static_cast<size_t>(e.limit));
  if (!options.model.synthetic.empty())
    fail_usage("synthetic weights have no tokenizer: `bench` and `logits` run them");

  OpenedModel model = open_model(options.model);
  std::optional<Tokenizer> tokenizer = load_tokenizer(model);
  if (!tokenizer) fail_input(model.name, " has no tokenizer.json, which `eval` needs");

  GenerateRequest request;
  request.sampling = sampling_of(options, model.config.shape.vocab);
  request.max_tokens = e.max_tokens;
  request.cancel = interrupt_flag();
  request.abort = abort_flag();
  const EvalSettings settings =
      settings_of(options, data, train_hash, request.sampling, model.name, weights_identity(model));
  std::vector<std::string> ids;
  std::vector<std::vector<int32_t>> prompts;
  int64_t longest = 0;
  for (const Question& q : data.questions) {
    ids.push_back(q.id);
    prompts.push_back(prompt_of(*tokenizer, options, shots, q));
    longest = std::max(longest, static_cast<int64_t>(prompts.back().size()));
  }
  EvalLog log(e.out, settings, ids);
  if (log.dropped_bytes() > 0)
    log_warn(cat(e.out, ": its last row was cut short (", log.dropped_bytes(),
                 " bytes) and is dropped"));
  const size_t total = ids.size();
  if (log.resumed() > 0)
    log_info(cat(e.out, ": goes on after ", log.resumed(), " of ", total, " questions"));
  if (log.rows().size() == total) {
    print(options, log, settings);
    return 0;
  }

  EngineOptions engine_opts = engine_options(options.model);
  if (engine_opts.context == 0)
    engine_opts.context = std::min(longest + e.max_tokens + 1, model.config.context);
  const auto engine = start_engine(model, options.model, engine_opts, std::move(tokenizer));
  set_interrupts(Interrupts::kPolled);
  Progress progress(cat("eval ", e.what), static_cast<int64_t>(total), "questions");
  const Clock::time_point start = Clock::now();
  for (size_t i = log.rows().size(); i < total; ++i) {
    request.prompt = std::move(prompts[i]);
    request.sampling.seed = i;
    EvalRow row = ask(*engine, data.questions[i], request, e.thinking);
    if (interrupted()) {
      log_info(cat("interrupted after ", i, " of ", total, " questions",
                   e.out.empty() ? "" : "; the same command goes on from there"));
      if (i > 0) print(options, log, settings);
      return static_cast<int>(ErrorKind::kInterrupted);
    }
    log.append(std::move(row));
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    progress.update(static_cast<int64_t>(i + 1), [&] {
      return state_line(log.rows(), i + 1 - static_cast<size_t>(log.resumed()), seconds,
                        total - i - 1);
    });
  }
  print(options, log, settings);
  return 0;
}

int compare_files(const Options& options) {
  const auto read = [](const std::string& path) {
    EvalFile file = read_eval_file(path);
    if (file.dropped_bytes > 0)
      log_warn(cat(path, ": its last row was cut short (", file.dropped_bytes,
                   " bytes) and is left out"));
    if (file.rows.empty()) fail_input(path, ": expected at least one row, found none");
    // A result that does not say which build made it proves nothing about any.
    if (std::none_of(file.options.begin(), file.options.end(),
                     [](const auto& option) { return option.first == "commit"; }))
      fail_input(path, ": expected the commit of the build among its options, found none");
    return file;
  };
  const EvalFile a = read(options.eval.a), b = read(options.eval.b);
  const EvalComparison comparison = compare_evals(a, b);
  out(options.json || options.eval.format == "json" ? comparison_json(comparison)
                                                    : comparison_text(comparison));
  return 0;
}

}  // namespace

int verb_eval(const Options& options) {
  return options.eval.what == "compare" ? compare_files(options) : run_questions(options);
}

}  // namespace spk::cli
