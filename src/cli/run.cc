// `run`: one answer from -p, -f or standard input, or a chat on a terminal.
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/generate.h"
#include "cli/interactive.h"
#include "cli/output.h"
#include "cli/prompt.h"
#include "cli/sampling.h"
#include "cli/source.h"
#include "cli/values.h"
#include "cli/verbs.h"

#include <nlohmann/json.hpp>
#include <unistd.h>

#include <string>
#include <utility>

namespace spk::cli {
namespace {

using Json = nlohmann::ordered_json;

// The markup that our rendering needs; a base checkpoint's vocabulary may lack it.
bool knows_markup(const Tokenizer& tokenizer) {
  for (const char* token : {"<role>", "</role>", "<|role_end|>", "<think>", "</think>"}) {
    const auto id = tokenizer.id_of(token);
    if (!id || !tokenizer.is_added(*id)) return false;
  }
  return true;
}

// What to say about the template before it is used.
void check_template(const OpenedModel& model, const Tokenizer& tokenizer) {
  if (!model.chat_template) {
    if (!knows_markup(tokenizer)) {
      fail_input(model.name,
                 ": expected a chat_template.jinja or chat tokens, found neither; --raw runs a "
                 "base model");
    }
    log_warn("no chat_template.jinja: the family's markup is used; --raw leaves it out");
    return;
  }
  const TemplateMatch match = known_template(*model.chat_template);
  if (!match.known) {
    log_info(cat("chat_template.jinja is not a known one (hash ", match.hash,
                 "): the family's markup is used, `doctor` shows more"));
  }
}

// A tool call's arguments as JSON, or as text when generation ended inside them.
Json arguments_json(const ToolCall& call) {
  Json value = Json::parse(call.arguments.empty() ? "{}" : call.arguments, nullptr, false);
  return value.is_discarded() ? Json(call.arguments) : value;
}

Json usage_json(const Answer& answer, size_t prompt_tokens) {
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", answer.result.tokens.size()},
          {"reasoning_tokens", answer.reasoning_tokens},
          {"total_tokens", prompt_tokens + answer.result.tokens.size()}};
}

Json timings_json(Engine* engine, const Answer& answer, uint64_t seed) {
  const Timings& t = answer.result.timings;
  const bool whole = answer.result.reason != FinishReason::kCancelled;  // else: end soon
  const double bandwidth =
      engine != nullptr && whole ? engine->backend().read_bandwidth() / 1e9 : 0;
  Json j;
  j["prefill_ms"] = 1000 * t.prefill_seconds;
  j["prefill_tok_s"] = t.prefill_tok_s();
  j["decode_ms"] = 1000 * t.decode_seconds;
  j["decode_tok_s"] = t.output_tokens > 1 ? t.decode_tok_s() : 0;
  j["bytes_per_token"] = t.bytes_per_token();
  j["gb_s"] = t.output_tokens > 1 ? t.gigabytes_per_second() : 0;
  j["bandwidth_gb_s"] = bandwidth;
  j["bandwidth_percent"] =
      bandwidth > 0 && t.output_tokens > 1 ? 100 * t.gigabytes_per_second() / bandwidth : 0;
  j["seed"] = seed;
  // Tokens per verify pass over the passes that drafted, and how often the n-th draft was right;
  // null without drafts.
  j["accept_length"] = t.drafts.drafting_cycles ? Json(t.drafts.accept_length()) : Json(nullptr);
  j["drafted"] = t.drafts.drafted;
  j["accepted"] = t.drafts.accepted;
  return j;
}

void print_json(Engine* engine, const Answer& answer, const GenerateRequest& request) {
  Json calls = Json::array();
  for (const ToolCall& call : answer.parsed.tool_calls) {
    calls.push_back(
        {{"name", call.name}, {"arguments", arguments_json(call)}, {"complete", call.complete}});
  }
  Json root;
  root["text"] = answer.parsed.content;
  root["reasoning"] = answer.parsed.reasoning;
  root["tool_calls"] = calls;
  root["prompt_tokens"] = request.prompt;
  root["tokens"] = answer.result.tokens;
  root["finish_reason"] = finish_reason_name(answer.result.reason);
  root["usage"] = usage_json(answer, request.prompt.size());
  root["timings"] = timings_json(engine, answer, request.sampling.seed);
  out(root.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::string read_prompt(const RunOptions& run) {
  std::string text =
      run.prompt ? *run.prompt : read_input(run.file.empty() ? "-" : run.file, kMaxText);
  if (text.empty()) {
    fail_input("expected a prompt, found an empty one in ", run.prompt ? "-p"
                                                            : run.file.empty() || run.file == "-"
                                                                ? "standard input"
                                                                : run.file);
  }
  // The newline that ends a file or an echo is not part of a question.
  if (!run.prompt && !run.raw && text.size() > 1 && text.back() == '\n') text.pop_back();
  return text;
}

GenerateRequest make_request(const Options& options, const OpenedModel& model) {
  GenerateRequest request;
  request.sampling =
      sampler_params(options.sampling, model.generation_config, model.config.shape.vocab);
  request.seeded = options.sampling.seed.has_value();
  request.stop = options.sampling.stop;
  request.ignore_eos = options.sampling.ignore_eos;
  request.max_tokens = options.sampling.max_tokens.value_or(0);
  request.cancel = interrupt_flag();
  request.abort = abort_flag();
  return request;
}

int one_answer(Engine& engine, const Options& options, const GenerateRequest& request,
               const RenderOptions& render) {
  std::optional<ParserOptions> parser;
  if (!options.run.raw) parser = ParserOptions{render.thinking, true, render.tools};
  AnswerPrinter printer(colour_wanted(STDOUT_FILENO));
  set_interrupts(Interrupts::kPolled);
  const Answer answer = generate_answer(engine, request, parser, options.json ? nullptr : &printer);
  if (options.json) print_json(&engine, answer, request);
  out_flush();
  if (options.log != LogLevel::kQuiet && !options.json) {
    if (answer.result.reason == FinishReason::kLength) log_info("ended by the limit of tokens");
    log_info(speed_line(engine, answer.result));
  }
  return answer.result.reason == FinishReason::kCancelled
             ? static_cast<int>(ErrorKind::kInterrupted)
             : 0;
}

}  // namespace

int verb_run(const Options& options) {
  const RunOptions& run = options.run;
  const bool interactive = !run.prompt && run.file.empty() && isatty(STDIN_FILENO) == 1;
  if (interactive && options.json) fail_usage("--json needs -p, -f or a prompt on standard input");
  if (interactive && options.sampling.max_tokens == 0) {
    fail_usage("--max-tokens 0 answers nothing: a chat needs at least 1");
  }
  RenderOptions render;
  render.thinking = run.thinking;
  if (!run.tools.empty()) render.tools = read_tools(run.tools);
  if (!options.model.synthetic.empty()) {
    fail_usage("synthetic weights have no tokenizer: `bench` and `logits` run them");
  }

  OpenedModel model = open_model(options.model);
  std::optional<Tokenizer> tokenizer = load_tokenizer(model);
  if (!tokenizer) {
    fail_input(
        model.name,
        " has no tokenizer.json, which `run` needs; `logits` and `bench` take ids and run without");
  }
  if (!run.raw) check_template(model, *tokenizer);
  GenerateRequest request = make_request(options, model);
  EngineOptions engine_opts = engine_options(options.model);
  if (!interactive) {
    const std::string text = read_prompt(run);
    request.prompt =
        run.raw ? tokenizer->encode(text)
                : Conversation(*tokenizer, render, run.system).prompt({"user", text, "", {}});
    if (options.sampling.max_tokens == 0) {  // the prompt only: nothing to load
      const Answer nothing{GenerateResult{{}, "", FinishReason::kLength, {}}, {}, false, 0};
      if (options.json) print_json(nullptr, nothing, request);
      return 0;
    }
    const auto needed = static_cast<int64_t>(request.prompt.size()) + request.max_tokens + 1;
    if (engine_opts.context == 0 && request.max_tokens > 0 && needed < model.config.context) {
      engine_opts.context = needed;  // no caches for tokens that cannot come
    }
  }
  const auto engine = start_engine(model, options.model, engine_opts, std::move(tokenizer));
  return interactive ? chat(*engine, options, request, render)
                     : one_answer(*engine, options, request, render);
}

}  // namespace spk::cli
