#include "cli/option_table.h"

#include "base/error.h"
#include "cli/option_checks.h"
#include "cli/option_rows.h"
#include "cli/values.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

namespace spk::cli {
namespace {

void add_general(Table& t, Options& o) {
  t.group("General", kAll);
  t.flag("-v,--verbose", "log what is loaded, planned and measured",
         [&o] { o.log = LogLevel::kVerbose; });
  t.flag("-q,--quiet", "log warnings and errors only", [&o] { o.log = LogLevel::kQuiet; });
  t.group("General", kModel & ~bit(Verb::kTokenize) & ~bit(Verb::kLogits) & ~bit(Verb::kBench) &
                         ~bit(Verb::kCompare));
  t.flag("--json", "print one JSON object instead of text", [&o] { o.json = true; });
}

void add_model(Table& t, Options& o) {
  ModelOptions& m = o.model;
  t.group("Model", kTensors);
  t.text("--synthetic", "NAME", m.synthetic,
         "ling-3.0-flash, ling-3.0-tiny or a config.json: random weights made in memory, no files");
  t.integer("--layers", "N", 1, 4096, "keep the first N layers and the MTP layer (all)",
            [&m](int64_t n) { m.layers = n; });
  t.integer("--weights-seed", "S", 0, std::numeric_limits<int64_t>::max(),
            "seed of the synthetic weights (1)", [&m](int64_t n) { m.weights_seed = n; });
  t.value("--rope-scaling", "none|yarn:FACTOR", "context extension (the config's)",
          [&m](const std::string& s) {
            check_rope_scaling(s);
            m.rope_scaling = s;
          });
  t.integer("--context", "N", 1, int64_t{1} << 30,
            "tokens of context (the config's, cut to what fits)",
            [&m](int64_t n) { m.context = n; });
  t.group("How it runs", kRunning & ~bit(Verb::kCompare));
  t.choice("--backend", {"auto", "reference", "cpu", "cuda"}, m.backend,
           "auto: cpu; cuda only when asked for (auto)");
  t.value("--precision", "exact|fast",
          "exact: fp32 throughout, head as stored; fast: what --moe and --lm-head choose",
          [&m](const std::string& s) {
            constexpr std::array<std::string_view, 2> kChoices = {"exact", "fast"};
            check_choice(s, kChoices);
            m.precision = s == "fast" ? PrecisionMode::kFast : PrecisionMode::kExact;
          });
  t.group("How it runs", kRunning);
  t.integer("--threads", "N", 1, 1024, "worker threads (physical cores)",
            [&m](int64_t n) { m.threads = static_cast<int>(n); });
  t.integer("--device", "N", 0, 15, "number of the CUDA device: 0", [](int64_t n) {
    if (n > 0)
      fail_usage("this version uses the first GPU only; CUDA_VISIBLE_DEVICES=", n,
                 " makes another the first");
  });
  t.value("--memory", "SIZE",
          "hard limit for all we allocate: bytes, 12GiB, 80% of the machine (none)",
          [&m](const std::string& s) {
            parse_size(s, uint64_t{1} << 40);
            m.memory = s;
          });
  t.value("--moe", "plain|packed",
          "how the experts run; packed: int8 activations, fast only (fast: packed, else "
          "plain)",
          [&m](const std::string& s) {
            check_available(s, kMoe, kMoeNow);
            m.moe = s;
          });
  t.choice("--lm-head", {"stored", "fp32", "bf16", "fp8", "mxfp4"}, m.lm_head,
           "format of the output head, made at load (fast: fp8, else stored)");
  t.group("How it runs",
          kRunning & ~bit(Verb::kCompare));  // which compares verbs, and drafts nothing
  t.value("--draft", "N|auto",
          "tokens that the MTP layer drafts a step, 0 to 7 (auto: by measured gain)",
          [&m](const std::string& s) {
            check_draft(s);
            m.draft = s;
          });
  t.value("--draft-head", "ROWS|auto",
          "rows of the draft head, 0: the target's (auto: by token_counts.txt, on a CPU)",
          [&m](const std::string& s) {
            m.draft_head = parse_auto_or_int(s, 0, 1 << 20).value_or(kAutoDraftHead);
          });
  t.value("--require", "LIST",
          "refuse to start unless a probe step shows these: moe=packed,lm-head=fp8,draft=3",
          [&m](const std::string& s) {
            check_require(s);
            m.require = s;
          });
}

void add_sampling(Table& t, Options& o) {
  SamplingOptions& s = o.sampling;
  t.group("Sampling (defaults: generation_config.json, then those shown)", bit(Verb::kRun));
  add_choice_of_tokens(t, s, "0.6", "0");
  t.value("--logit-bias", "ID:VALUE,...", "added to these tokens' logits, -1000 to 1000",
          [&s](const std::string& text) { s.logit_bias = parse_bias(text); });
  t.integer("--seed", "N", 0, std::numeric_limits<int64_t>::max(),
            "same seed, same text (a new one each time)", [&s](int64_t n) { s.seed = n; });
  t.value(
      "--stop", "TEXT", "end before this text; may be given up to 16 times",
      [&s](const std::string& text) {
        if (text.empty()) fail_usage("expected a text, found an empty one");
        if (s.stop.size() == 16) fail_usage("expected at most 16 stop texts, found more");
        s.stop.push_back(text);
      },
      OptionRow::Kind::kRepeated);
  t.integer("--max-tokens", "N", 0, int64_t{1} << 30,
            "reasoning and answer together, 0: prompt only (up to the context)",
            [&s](int64_t n) { s.max_tokens = n; });
  t.flag("--ignore-eos", "go on after the end token", [&s] { s.ignore_eos = true; });
}

void add_run(Table& t, Options& o) {
  RunOptions& r = o.run;
  t.group("Prompt", bit(Verb::kRun));
  t.value("-p,--prompt", "TEXT",
          "the prompt (else -f, else a chat on a terminal, else standard input)",
          [&r](const std::string& s) { r.prompt = s; });
  t.text("--system", "TEXT", r.system, "system message");
  t.flag("--raw", "the prompt as it is, without the chat template", [&r] { r.raw = true; });
  t.value("--thinking", "on|off", "whether the model thinks before it answers (on)",
          [&r](const std::string& s) { r.thinking = parse_on_off(s); });
  t.text("--tools", "FILE", r.tools, "JSON array of tools that the model may call");
}

void add_serve(Table& t, Options& o) {
  ServeOptions& s = o.serve;
  t.group("Server", bit(Verb::kServe));
  t.value("--host", "ADDRESS", "address to listen on (127.0.0.1)", [&s](const std::string& host) {
    check_visible(host, "an address");
    s.host = host;
  });
  t.integer("--port", "N", 0, 65535, "port, 0: any free one (8080)",
            [&s](int64_t n) { s.port = static_cast<int>(n); });
  t.value("--api-key", "KEY", "asked for on every route but /health", [&s](const std::string& key) {
    check_visible(key, "an API key");
    s.api_key = key;
  });
  t.text("--api-key-file", "FILE", s.api_key_file, "the key from a file, which `ps` does not show");
  t.flag("--no-api-key", "other machines may ask without a key; needed with such a --host",
         [&s] { s.no_api_key = true; });
  t.value(
      "--cors", "ORIGIN", "pages of this origin may ask, https://example.org; repeatable",
      [&s](const std::string& origin) {
        check_origin(origin);
        s.cors.push_back(origin);
      },
      OptionRow::Kind::kRepeated);
  t.value("--model-name", "NAME", "name in answers and /v1/models (the folder's)",
          [&s](const std::string& name) {
            check_name(name);
            s.model_name = name;
          });
  t.integer("--parallel", "N", 1, 64, "answers at a time (1)", [](int64_t n) {
    if (n > 1) fail_usage("several answers at a time are not in this version; available now: 1");
  });
  t.value("--cache-ram", "SIZE", "memory for the states of earlier prompts (0)",
          [](const std::string& size) {
            if (parse_size(size, uint64_t{1} << 40) > 0)
              fail_usage("a cache of prompts is not in this version; available now: 0");
          });
  t.integer("--queue", "N", 0, 10000, "requests that may wait, more get 429 (16)",
            [&s](int64_t n) { s.queue = n; });
  t.integer("--connections", "N", 1, 10000, "open connections, more get 503 (512)",
            [&s](int64_t n) { s.connections = n; });
  t.value("--max-body", "SIZE", "largest request body, more get 413 (16MiB)",
          [&s](const std::string& size) {
            if (parse_size(size, uint64_t{1} << 40) < 1024)
              fail_usage("expected at least 1024 bytes, found '", size, "'");
            s.max_body = size;
          });
  const auto seconds = [&t](const std::string& flags, double low, double high, double& field,
                            const std::string& help) {
    t.value(flags, "SECONDS", help,
            [=, &field](const std::string& text) { field = parse_real(text, low, high); });
  };
  seconds("--keep-alive", 0, 3600, s.keep_alive,
          "a comment at least this often in a silent stream, 0: none (10)");
  seconds("--stall", 0.1, 86400, s.stall, "a connection without progress is dropped after (60)");
  seconds("--drain", 0, 86400, s.drain, "time for open answers after Ctrl-C or SIGTERM (30)");
  t.value("--thinking", "on|off", "whether the model thinks when a request does not say (on)",
          [&s](const std::string& text) { s.thinking = parse_on_off(text); });
  t.integer("--thinking-budget", "N", 0, int64_t{1} << 30,
            "reasoning tokens when a request does not say, 0: off (no limit)",
            [&s](int64_t n) { s.thinking_budget = n; });
  t.flag("--log-prompts", "write prompts to the log", [&s] { s.log_prompts = true; });
}

void add_others(Table& t, Options& o) {
  t.group("Input", bit(Verb::kRun) | bit(Verb::kTokenize));
  t.value("-f,--file", "FILE", "text from a file, '-': standard input", [&o](const std::string& s) {
    o.run.file = s;
    o.tokenize.file = s;
  });
  t.group("Input", bit(Verb::kLogits) | bit(Verb::kCompare));
  t.text("--tokens", "IDS", o.tokens, "1,2,3 or @FILE");
  LogitsOptions& l = o.logits;
  t.group("Logits", bit(Verb::kLogits));
  t.text("-o,--output", "FILE", l.output, "float32 [tokens, vocabulary], row i after token i");
  t.flag("--mtp", "of the MTP layer: row i from (token i+1, hidden i)", [&l] { l.mtp = true; });
  t.integer("--chunk", "N", 0, 1 << 20, "tokens per step, 1: one by one, 0: the engine's (0)",
            [&l](int64_t n) { l.chunk = n; });
  t.text("--routes-out", "FILE", l.routes_out,
         "write the chosen experts: int32 [tokens, MoE layers + 1, top_k], -1 where unused");
  t.text("--routes-in", "FILE", l.routes_in, "use these experts instead of the router's choice");
  t.group("Doctor", bit(Verb::kDoctor));
  t.flag("--warm", "compile what will be needed and list it (nothing on the CPU)",
         [&o] { o.warm = true; });
  TokenizeOptions& k = o.tokenize;
  t.group("Tokenize", bit(Verb::kTokenize));
  t.value("--text", "TEXT", "this text", [&k](const std::string& s) { k.text = s; });
  t.text("--jsonl", "FILE", k.jsonl,
         "each line one JSON string; prints one JSON array of ids a line");
  t.flag("--special", "special tokens may form from text", [&k] { k.special = true; });
  t.value("--decode", "IDS", "the text of these ids", [&k](const std::string& s) { k.decode = s; });
  t.value(
      "--count", "FILES", "'id count' lines over these files, most frequent first, then by id",
      [&k](const std::string& s) { k.count.push_back(s); }, OptionRow::Kind::kMany);
  CompareOptions& c = o.compare;
  t.group("Compare", bit(Verb::kCompare));
  const auto spec = [](std::string& field) {
    return [&field](const std::string& s) {
      check_backend_spec(s);
      field = s;
    };
  };
  t.value("--a", "BACKEND[:PRECISION]", "its results are kept (reference)", spec(c.a));
  t.value("--b", "BACKEND[:PRECISION]", "its results are checked (cpu)", spec(c.b));
  t.text("--stop-after", "layer.N.VERB", c.stop_after, "end there and show what both have");
}

}  // namespace

std::vector<OptionRow> option_rows(Options& o) {
  Table table;
  add_run(table, o);
  add_serve(table, o);
  add_others(table, o);
  add_measure(table, o);
  add_sampling(table, o);
  add_model(table, o);
  add_general(table, o);
  return std::move(table.rows);
}

std::vector<std::string_view> names_of(std::span<const OptionRow> rows) {
  std::vector<std::string_view> names;
  names.reserve(rows.size());
  for (const OptionRow& row : rows) names.push_back(row.name);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::vector<std::string_view> names_of(std::span<const OptionRow> rows, Verb verb) {
  std::vector<std::string_view> names;
  for (const OptionRow& row : rows) {
    if (row.taken_by(verb)) names.push_back(row.name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string owners_of(std::span<const OptionRow> rows, std::string_view name) {
  unsigned takers = 0;
  for (const OptionRow& row : rows) {
    if (row.name == name) takers |= row.verbs;
  }
  std::string owners;
  for (const VerbInfo& info : verbs()) {
    if ((takers & bit(info.verb)) != 0)
      owners += (owners.empty() ? "" : ", ") + std::string(info.name);
  }
  return owners;
}

}  // namespace spk::cli
