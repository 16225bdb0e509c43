// Rows of the verbs that measure: bench, eval, plan.
#include "base/error.h"
#include "cli/option_checks.h"
#include "cli/option_rows.h"

#include <limits>

namespace spk::cli {
namespace {

void add_bench(Table& t, Options& o) {
  BenchOptions& b = o.bench;
  t.group("Bench", bit(Verb::kBench));
  t.integer("--in", "N", 1, 1 << 24, "prompt tokens (128)", [&b](int64_t n) { b.in = n; });
  t.integer("--out", "N", 1, 1 << 24, "decoded tokens, the end token is ignored (64)",
            [&b](int64_t n) { b.out = n; });
  t.integer("--repeat", "N", 1, 1000, "measured repetitions, after one that is dropped (3)",
            [&b](int64_t n) { b.repeat = n; });
  t.value("--depth", "LIST", "tokens that are there before, one row each: 0,4096,32768",
          [&b](const std::string& s) {
            if (s.find_first_not_of("0123456789, ") != std::string::npos)
              fail_usage("expected whole numbers from 0 on, separated by commas, found '", s, "'");
            b.depths.clear();
            for (const int32_t n : parse_ids(s)) b.depths.push_back(n);
          });
  t.text("--prompts", "FILE", b.prompts,
         "real text: JSONL of strings or {\"prompt\", \"kind\"?, \"thinking\"?}, --out tokens each "
         "at most");
  t.flag("--ladder", "plain experts and FP32 head, then one optimisation more a row",
         [&b] { b.ladder = true; });
  t.flag("--acceptance", "accept length by kind of text, temperature, length and drafts",
         [&b] { b.acceptance = true; });
  t.flag("--profile", "time, bytes and share of the roof of each verb; --out 1: of a prompt",
         [&b] { b.profile = true; });
  t.value(
      "--kernel", "NAME",
      "kernels alone on cold weights: all of them, or those whose name has NAME",
      [&b](const std::string& s) { b.kernel = s; }, OptionRow::Kind::kMaybe);
  t.value("--simulate-acceptance", "L",
          "random weights: drafts (3 unless --draft says) are taken by draws so that a pass yields "
          "L tokens",
          [&b](const std::string& s) { b.simulate_acceptance = parse_real(s, 1, 8); });
  t.integer("--simulate-experts", "N", 1, 65536,
            "random weights: a verify pass uses N experts of each layer",
            [&b](int64_t n) { b.simulate_experts = n; });
  t.text("--plot", "FILE.svg|png", b.plot, "the rows as a figure");
  t.choice("--format", {"table", "md", "csv", "json"}, b.format, "(table)");
  t.integer("--seed", "N", 0, std::numeric_limits<int64_t>::max(), "seed of the token stream (1)",
            [&o](int64_t n) { o.sampling.seed = n; });
  t.group("Sampling", bit(Verb::kBench));
  add_choice_of_tokens(t, o.sampling, "0", "0");
}

void add_eval(Table& t, Options& o) {
  EvalArguments& e = o.eval;
  t.group("Questions", bit(Verb::kEval));
  t.text("--data", "FILE", e.data, "gsm8k: JSONL of {id?, question, answer}");
  t.text("--train", "FILE", e.train, "worked examples come from here, asked and answered first");
  t.integer("--shots", "N", 0, 1000, "how many of them (5 with --train, else 0)",
            [&e](int64_t n) { e.shots = n; });
  t.integer("--limit", "N", 1, 1 << 30, "the first N questions (all)",
            [&e](int64_t n) { e.limit = n; });
  t.text("--out", "FILE", e.out, "a JSONL row after each question; a rerun goes on from there");
  t.text("--system", "TEXT", o.run.system, "system message");
  t.value("--thinking", "on|off", "whether the model thinks before it answers (off)",
          [&e](const std::string& s) { e.thinking = parse_on_off(s); });
  t.integer("--max-tokens", "N", 1, 1 << 30, "tokens of an answer, cut ones are counted (1024)",
            [&e](int64_t n) { e.max_tokens = n; });
  t.choice("--format", {"table", "json"}, e.format, "(table)");
  t.group("Sampling (the seed is the question's number)", bit(Verb::kEval));
  add_choice_of_tokens(t, o.sampling, "0.6", "29");
}

void add_plan(Table& t, Options& o) {
  PlanArguments& p = o.plan;
  t.group("Plan", bit(Verb::kPlan));
  t.text("--device", "NAME|FILE", p.device,
         "gb10, h200 or a JSON description (this machine, its bandwidth measured)");
  t.integer("--depth", "N", 0, 1 << 30, "position of the decoded token (1024)",
            [&p](int64_t n) { p.depth = n; });
  t.choice("--lm-head", {"stored", "fp32", "bf16", "fp8", "mxfp4"}, p.head,
           "format of the output head (fp8)");
  // "auto", which the environment may hold for the other verbs, is what is said in brackets.
  t.value("--draft", "N|auto", "drafts a step (3)", [&p](const std::string& s) {
    if (const auto n = parse_auto_or_int(s, 0, 7)) p.draft = *n;
  });
  t.value("--draft-head", "ROWS|auto", "rows of the draft head, 0: the target's (0)",
          [&p](const std::string& s) {
            if (const auto n = parse_auto_or_int(s, 0, 1 << 20)) p.draft_head = *n;
          });
  t.value("--accept-length", "X",
          "tokens a verify pass yields, drafts included (2.68, with one draft 1.68)",
          [&p](const std::string& s) { p.accept_length = parse_real(s, 1, 8); });
  t.value("--distinct", "X", "distinct experts of a verify pass (60 % of independent growth)",
          [&p](const std::string& s) { p.distinct = parse_real(s, 1, 4096); });
  t.value("--latents", "float|bf16",
          "how cached latents are kept; every back end here keeps floats (float)",
          [&p](const std::string& s) {
            constexpr std::array<std::string_view, 2> kChoices = {"float", "bf16"};
            check_choice(s, kChoices);
            p.bf16_latents = s == "bf16";
          });
}

}  // namespace

void add_choice_of_tokens(Table& t, SamplingOptions& s, const std::string& temperature,
                          const std::string& top_k) {
  t.real("--temperature", 0, 100, s.temperature,
         cat("0: always the likeliest token (", temperature, ")"));
  t.integer("--top-k", "N", -1, 1 << 30,
            cat("keep the N likeliest tokens, 0 or -1: all (", top_k, ")"),
            [&s](int64_t n) { s.top_k = n; });
  t.value("--top-p", "X", "keep the likeliest tokens that hold this share, above 0 (0.95)",
          [&s](const std::string& text) {
            s.top_p = parse_real(text, 0, 1);
            if (*s.top_p <= 0) fail_usage("expected a number above 0 up to 1, found '", text, "'");
          });
  t.real("--min-p", 0, 1, s.min_p, "drop tokens below this share of the likeliest (0)");
  t.real("--repetition-penalty", 0.01, 100, s.repetition_penalty,
         "over prompt and answer, 1: none (1)");
  t.real("--presence-penalty", -100, 100, s.presence_penalty, "per token seen in the answer (0)");
  t.real("--frequency-penalty", -100, 100, s.frequency_penalty, "per occurrence in the answer (0)");
}

void add_measure(Table& t, Options& o) {
  add_bench(t, o);
  add_eval(t, o);
  add_plan(t, o);
}

// gsm8k [MODEL] | set FILE [MODEL] | compare A B
void settle_eval(Options& o) {
  EvalArguments& e = o.eval;
  if (e.words.empty()) fail_usage("eval needs gsm8k, set or compare after it");
  constexpr std::array<std::string_view, 3> kWhat = {"gsm8k", "set", "compare"};
  check_choice(e.words[0], kWhat);
  e.what = e.words[0];
  const size_t given = e.words.size() - 1;
  const size_t files = e.what == "gsm8k" ? 0 : e.what == "set" ? 1 : 2;
  const size_t most = e.what == "compare" ? 2 : files + 1;
  const char* form = e.what == "gsm8k" ? "gsm8k [MODEL] --data FILE"
                     : e.what == "set" ? "set FILE [MODEL]"
                                       : "compare A.jsonl B.jsonl";
  if (given < files || given > most)
    fail_usage("expected 'eval ", form, "', found ", given, " words after ", e.what);
  if (e.what == "compare") {
    e.a = e.words[1];
    e.b = e.words[2];
    return;
  }
  if (e.what == "set") {
    if (!e.data.empty()) fail_usage("eval set FILE takes no --data: FILE is the questions");
    e.data = e.words[1];
  }
  if (e.data.empty()) fail_usage("eval gsm8k needs --data FILE, the questions");
  if (given > files) o.model.model = e.words.back();
}

}  // namespace spk::cli
