#include "cli/options.h"

#include "base/error.h"
#include "cli/values.h"
#include "cli/version.h"

#include <CLI/CLI.hpp>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>

namespace spk::cli {
namespace {

constexpr std::array<VerbInfo, kVerbs> kVerbTable = {{
    {Verb::kRun, "run", "answer a prompt, or chat on a terminal"},
    {Verb::kServe, "serve", "answer the OpenAI and Anthropic APIs over HTTP"},
    {Verb::kLogits, "logits", "write the logits of a token list as .npy"},
    {Verb::kTokenize, "tokenize", "text to token ids and back"},
    {Verb::kInspect, "inspect", "config, layers, parameters, bytes, cache sizes"},
    {Verb::kDoctor, "doctor", "this machine, what will be used and why, a self test"},
    {Verb::kBench, "bench", "decode and prefill speed, bytes per token, percent of bandwidth"},
    {Verb::kCompare, "compare", "two back ends on the same inputs, verb by verb"},
    {Verb::kCompletion, "completion", "a completion script for bash or zsh"},
}};
constexpr std::array<std::string_view, 3> kLaterVerbs = {"plan", "eval", "quantize"};

constexpr unsigned bit(Verb verb) { return 1u << static_cast<unsigned>(verb); }
constexpr unsigned kAll = (1u << kVerbs) - 1;
constexpr unsigned kModel = kAll & ~bit(Verb::kCompletion);
constexpr unsigned kTensors = kModel & ~bit(Verb::kTokenize);
constexpr unsigned kRunning = kTensors & ~bit(Verb::kInspect);

// What this version can do of an option whose other values come later.
struct NotYet {
  std::span<const std::string_view> known;
  std::span<const std::string_view> now;
};

std::string env_name(std::string_view option) {
  std::string name = "SPARKLING_";
  for (const char c : option) name += c == '-' ? '_' : static_cast<char>(std::toupper(c));
  return name;
}

// "-o,--output" -> "output"
std::string long_name(std::string_view flags) {
  const size_t dashes = flags.find("--");
  return std::string(dashes == std::string_view::npos ? flags : flags.substr(dashes + 2));
}

class Formatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0 || option->get_type_name().empty()) return "";
    return " " + option->get_type_name();
  }
};

// Rows of the option table. A row is added to the CLI library only for verbs that take it, but its
// name is known for all, so that a config file may hold options of several verbs and a message can
// say whose option something is.
class Table {
 public:
  using Parser = std::function<void(const std::string&)>;

  Table(CLI::App& app, Verb verb) : app_(app), verb_(verb) {}

  void group(std::string title, unsigned verbs) {
    group_ = std::move(title);
    verbs_ = verbs;
  }

  enum class Count {
    kOne,
    kRepeated,
    kMany
  };  // the last counts; one each time it is given; all that follow
  // An option with a value.
  void value(const std::string& flags, const std::string& type, const std::string& help,
             Parser parse, Count count = Count::kOne) {
    const std::string name = long_name(flags);
    owners_[name] |= verbs_;
    if ((verbs_ & bit(verb_)) == 0) return;
    auto guarded = [this, name, parse = std::move(parse)](const std::vector<std::string>& texts) {
      for (const std::string& text : texts) {
        try {
          parse(text);
        } catch (const Error& error) {
          throw Error(error.kind(), cat("--", name, origin(name, text), ": ", error.what()));
        }
      }
    };
    auto* option =
        app_.add_option_function<std::vector<std::string>>(flags, std::move(guarded), help);
    option->type_name(type)->group(group_)->envname(env_name(name));
    option->allow_extra_args(count == Count::kMany);
    if (count == Count::kMany)
      option->expected(1, CLI::detail::expected_max_vector_size);
    else
      option->expected(1);
    option->multi_option_policy(count == Count::kOne ? CLI::MultiOptionPolicy::TakeLast
                                                     : CLI::MultiOptionPolicy::TakeAll);
  }

  void text(const std::string& flags, const std::string& type, std::string& field,
            const std::string& help) {
    value(flags, type, help, [&field](const std::string& s) { field = s; });
  }
  void integer(const std::string& flags, const std::string& type, int64_t low, int64_t high,
               const std::string& help, const std::function<void(int64_t)>& set) {
    value(flags, type, help, [=](const std::string& s) { set(parse_int(s, low, high)); });
  }
  void real(const std::string& flags, double low, double high, std::optional<double>& field,
            const std::string& help) {
    value(flags, "X", help,
          [=, &field](const std::string& s) { field = parse_real(s, low, high); });
  }
  void flag(const std::string& flags, const std::string& help, std::function<void()> set) {
    const std::string name = long_name(flags);
    owners_[name] |= verbs_;
    flags_.insert(name);
    if ((verbs_ & bit(verb_)) == 0) return;
    auto* option = app_.add_flag_function(
        flags,
        [set = std::move(set)](int64_t count) {
          if (count > 0) set();
        },
        help);
    option->group(group_)->envname(env_name(name));
  }
  void choice(const std::string& flags, std::vector<std::string_view> choices, std::string& field,
              const std::string& help) {
    std::string type;
    for (const std::string_view c : choices) type += (type.empty() ? "" : "|") + std::string(c);
    value(flags, type, help, [choices = std::move(choices), &field](const std::string& s) {
      check_choice(s, choices);
      field = s;
    });
  }

  const std::map<std::string, unsigned>& owners() const { return owners_; }
  const std::set<std::string>& flag_names() const { return flags_; }
  void from_config(const std::string& name, const std::string& file) { config_[name] = file; }

  std::vector<std::string_view> names() const {
    std::vector<std::string_view> out;
    out.reserve(owners_.size());
    for (const auto& [name, mask] : owners_) {
      if ((mask & bit(verb_)) != 0) out.push_back(name);
    }
    return out;
  }

 private:
  // Where a value came from when it was not typed: " (from SPARKLING_TOP_K)", " (from
  // sparkling.toml)".
  std::string origin(const std::string& name, const std::string& text) const {
    if (const auto at = config_.find(name); at != config_.end())
      return cat(" (from ", at->second, ")");
    const std::string variable = env_name(name);
    const char* set = std::getenv(variable.c_str());
    return set != nullptr && text == set ? cat(" (or ", variable, ")") : std::string();
  }

  CLI::App& app_;
  Verb verb_;
  std::string group_;
  unsigned verbs_ = kAll;
  std::map<std::string, unsigned> owners_;
  std::set<std::string> flags_;
  std::map<std::string, std::string> config_;
};

// A config file as CLI11 reads it (TOML or INI), made to fit one verb: options stand at the top
// level or in a section named by a verb; those of other verbs are passed over, unknown ones are
// refused, and the environment goes first.
class ConfigFile : public CLI::ConfigTOML {
 public:
  ConfigFile(Table& table, std::string_view verb) : table_(table), verb_(verb) {}
  std::string file;

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::vector<CLI::ConfigItem> kept;
    for (CLI::ConfigItem item : CLI::ConfigTOML::from_config(input)) {
      if (item.name == "++" || item.name == "--") continue;  // sections open and close
      if (item.parents.size() > 1) fail_usage(file, ": unknown section [", item.fullname(), "]");
      if (item.parents.size() == 1) {
        const std::string section = item.parents.front();
        std::vector<std::string_view> names;
        names.reserve(kVerbTable.size());
        for (const VerbInfo& info : kVerbTable) names.push_back(info.name);
        if (std::find(names.begin(), names.end(), section) == names.end()) {
          fail_usage(file, ": unknown section [", section, "]", did_you_mean(section, names));
        }
        if (section != verb_) continue;
        item.parents.clear();
      }
      std::replace(item.name.begin(), item.name.end(), '_', '-');
      const auto owner = table_.owners().find(item.name);
      if (owner == table_.owners().end()) {
        std::vector<std::string_view> names;
        names.reserve(table_.owners().size());
        for (const auto& [name, mask] : table_.owners()) names.push_back(name);
        fail_usage(file, ": unknown option '", item.name, "'", did_you_mean(item.name, names));
      }
      const auto mine = table_.names();
      if (std::find(mine.begin(), mine.end(), item.name) == mine.end()) continue;
      if (const char* set = std::getenv(env_name(item.name).c_str());
          set != nullptr && *set != '\0') {
        continue;
      }
      table_.from_config(item.name, file);
      kept.push_back(std::move(item));
    }
    return kept;
  }

 private:
  Table& table_;
  std::string_view verb_;
};

// Refuses values that the contract names but this version lacks: never silently something else.
void check_available(const std::string& text, const NotYet& values) {
  if (std::find(values.now.begin(), values.now.end(), text) != values.now.end()) return;
  check_choice(text, values.known);
  fail_usage("'", text, "' is not in this version; available now: ", join_choices(values.now));
}

constexpr std::array<std::string_view, 3> kMoe = {"plain", "packed", "jit"};
constexpr std::array<std::string_view, 1> kMoeNow = {"plain"};
constexpr std::array<std::string_view, 5> kHead = {"stored", "fp32", "bf16", "fp8", "mxfp4"};

void check_draft(const std::string& text) {
  if (text != "auto") parse_int(text, 0, 7);
}

void check_require(const std::string& text) {
  size_t at = 0;
  while (at <= text.size()) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, comma - at);
    const size_t equals = std::min(item.find('='), item.size());
    const std::string key = item.substr(0, equals);
    const std::string value = equals < item.size() ? item.substr(equals + 1) : "";
    if (key == "moe") {
      check_available(value, {kMoe, kMoeNow});
    } else if (key == "lm-head") {
      constexpr std::array<std::string_view, 1> kProven = {"stored"};
      check_available(value, {kHead, kProven});
    } else if (key == "draft") {
      check_draft(value);
      if (value != "0")
        fail_usage("draft=", value, " cannot be proven in this version; available now: draft=0");
    } else {
      constexpr std::array<std::string_view, 3> kKeys = {"moe", "lm-head", "draft"};
      fail_usage("expected moe=, lm-head= or draft=, found '", item, "'", did_you_mean(key, kKeys));
    }
    at = comma + 1;
  }
}

void check_rope_scaling(const std::string& text) {
  if (text == "none") return;
  constexpr std::string_view kYarn = "yarn:";
  if (text.rfind(kYarn, 0) != 0) fail_usage("expected none or yarn:FACTOR, found '", text, "'");
  parse_real(std::string_view(text).substr(kYarn.size()), 1, 64);
}

void check_backend_spec(const std::string& text) {
  constexpr std::array<std::string_view, 4> kBackends = {"auto", "reference", "cpu", "cuda"};
  constexpr std::array<std::string_view, 2> kPrecisions = {"exact", "fast"};
  const size_t colon = std::min(text.find(':'), text.size());
  check_choice(std::string_view(text).substr(0, colon), kBackends);
  if (colon < text.size()) check_choice(std::string_view(text).substr(colon + 1), kPrecisions);
}

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
           "auto: cuda where it can run, else cpu (auto)");
  t.value("--precision", "exact|fast",
          "exact: fp32 activations and caches, head as stored; fast: the same in this version",
          [&m](const std::string& s) {
            constexpr std::array<std::string_view, 2> kChoices = {"exact", "fast"};
            check_choice(s, kChoices);
            m.precision = s == "fast" ? PrecisionMode::kFast : PrecisionMode::kExact;
            m.precision_given = true;
          });
  t.group("How it runs", kRunning);
  t.integer("--threads", "N", 1, 1024, "worker threads (physical cores)",
            [&m](int64_t n) { m.threads = static_cast<int>(n); });
  t.integer("--device", "N", 0, 15, "number of the CUDA device (0)", [](int64_t n) {
    if (n > 0) fail_usage("device numbers need a CUDA back end, which is not in this version");
  });
  t.value("--memory", "SIZE",
          "hard limit for all we allocate: bytes, 12GiB, 80% of the machine (none)",
          [&m](const std::string& s) {
            parse_size(s, uint64_t{1} << 40);
            m.memory = s;
          });
  t.value("--moe", "plain", "how the experts run (plain)", [](const std::string& s) {
    check_available(s, {kMoe, kMoeNow});
  });
  t.choice("--lm-head", {"stored", "fp32", "bf16", "fp8", "mxfp4"}, m.lm_head,
           "format of the output head, made at load (stored)");
  t.value("--draft", "N|auto",
          "tokens that the MTP layer drafts a step, 0 to 7 (auto: by measured gain)",
          [&m](const std::string& s) {
            check_draft(s);
            m.draft = s;
          });
  t.integer("--draft-head", "ROWS", 0, 1 << 20, "rows of the draft head, 0: the target's (0)",
            [](int64_t n) {
              if (n > 0) fail_usage("a draft head is not in this version; available now: 0");
            });
  t.value("--require", "LIST",
          "refuse to start unless these are in use: moe=plain,lm-head=stored,draft=0",
          [&m](const std::string& s) {
            check_require(s);
            m.require = s;
          });
}

void add_sampling(Table& t, Options& o) {
  SamplingOptions& s = o.sampling;
  t.group("Sampling (defaults: generation_config.json, then those shown)", bit(Verb::kRun));
  t.real("--temperature", 0, 100, s.temperature, "0: always the likeliest token (0.6)");
  t.integer("--top-k", "N", -1, 1 << 30, "keep the N likeliest tokens, 0 or -1: all (0)",
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
  t.value("--logit-bias", "ID:VALUE,...", "added to these tokens' logits, -1000 to 1000",
          [&s](const std::string& text) { s.logit_bias = parse_bias(text); });
  t.integer("--seed", "N", 0, std::numeric_limits<int64_t>::max(),
            "same seed, same text (a new one each time)", [&s](int64_t n) { s.seed = n; });
  t.value(
      "--stop", "TEXT", "end before this text; may be given up to 16 times",
      [&s](const std::string& text) {
        if (text.empty()) fail_usage("expected a text, found an empty one");
        if (s.stop.size() == 16) fail_usage("expected at most 16 stop texts");
        s.stop.push_back(text);
      },
      Table::Count::kRepeated);
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
          [&r](const std::string& s) {
            constexpr std::array<std::string_view, 2> kChoices = {"on", "off"};
            check_choice(s, kChoices);
            r.thinking = s == "on";
          });
  t.text("--tools", "FILE", r.tools, "JSON array of tools that the model may call");
}

void add_serve(Table& t, Options& o) {
  ServeOptions& s = o.serve;
  t.group("Server", bit(Verb::kServe));
  t.text("--host", "ADDRESS", s.host, "address to listen on (127.0.0.1)");
  t.integer("--port", "N", 0, 65535, "port, 0: any free one (8080)",
            [&s](int64_t n) { s.port = static_cast<int>(n); });
  t.value("--api-key", "KEY", "asked for on every route but /health", [&s](const std::string& key) {
    if (key.empty()) fail_usage("expected a key, found nothing");
    s.api_key = key;
  });
  t.text("--api-key-file", "FILE", s.api_key_file, "the key from a file, which `ps` does not show");
  t.flag("--no-api-key", "other machines may ask without a key; needed with such a --host",
         [&s] { s.no_api_key = true; });
  t.value(
      "--cors", "ORIGIN", "pages of this origin may ask, https://example.org; repeatable",
      [&s](const std::string& origin) {
        if (origin.find("://") == std::string::npos)
          fail_usage("expected an origin such as https://example.org, found '", origin, "'");
        s.cors.push_back(origin);
      },
      Table::Count::kRepeated);
  t.text("--model-name", "NAME", s.model_name, "name in answers and /v1/models (the folder's)");
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
              fail_usage("expected at least 1024 bytes");
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
          [&s](const std::string& text) {
            constexpr std::array<std::string_view, 2> kChoices = {"on", "off"};
            check_choice(text, kChoices);
            s.thinking = text == "on";
          });
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
  t.flag("--warm", "compile what will be needed (nothing on the CPU)", [&o] { o.warm = true; });
  TokenizeOptions& k = o.tokenize;
  t.group("Tokenize", bit(Verb::kTokenize));
  t.value("--text", "TEXT", "this text", [&k](const std::string& s) { k.text = s; });
  t.text("--jsonl", "FILE", k.jsonl,
         "each line one JSON string; prints one JSON array of ids a line");
  t.flag("--special", "special tokens may form from text", [&k] { k.special = true; });
  t.value("--decode", "IDS", "the text of these ids", [&k](const std::string& s) { k.decode = s; });
  t.value(
      "--count", "FILES", "'id count' lines over these files, most frequent first, then by id",
      [&k](const std::string& s) { k.count.push_back(s); }, Table::Count::kMany);
  BenchOptions& b = o.bench;
  t.group("Bench", bit(Verb::kBench));
  t.integer("--in", "N", 1, 1 << 24, "prompt tokens (128)", [&b](int64_t n) { b.in = n; });
  t.integer("--out", "N", 1, 1 << 24, "decoded tokens, the end token is ignored (64)",
            [&b](int64_t n) { b.out = n; });
  t.integer("--repeat", "N", 1, 1000, "measured repetitions, after one that is dropped (3)",
            [&b](int64_t n) { b.repeat = n; });
  t.choice("--format", {"table", "md", "csv", "json"}, b.format, "(table)");
  t.integer("--seed", "N", 0, std::numeric_limits<int64_t>::max(), "seed of the token stream (1)",
            [&o](int64_t n) { o.sampling.seed = n; });
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

const VerbInfo& find_verb(std::string_view name) {
  std::vector<std::string_view> names;
  for (const VerbInfo& info : kVerbTable) {
    if (info.name == name) return info;
    names.push_back(info.name);
  }
  if (std::find(kLaterVerbs.begin(), kLaterVerbs.end(), name) != kLaterVerbs.end()) {
    fail_usage("'", name, "' is not in this version; available now: ", join_choices(names));
  }
  fail_usage(name.substr(0, 1) == "-" ? "expected a verb first, found '" : "unknown verb '", name,
             "'", did_you_mean(name, names), " Verbs: ", join_choices(names));
}

std::string version_text() {
  const Version v = version();
  return cat("sparkling ", v.number, "\ncommit    ", v.commit, "\nbuild     ", v.build, ", ",
             v.compiler, "\nback ends reference, cpu\n");
}

std::string overview() {
  std::string out =
      "sparkling: the Ling-3.0 family on one machine\n\n"
      "Usage: sparkling VERB [MODEL] [options]\n\nVerbs\n";
  for (const VerbInfo& info : kVerbTable) {
    out += cat("  ", info.name, std::string(12 - info.name.size(), ' '), info.summary, "\n");
  }
  return out +
         "\nMODEL is a checkpoint folder; without it SPARKLING_MODEL, else the small model "
         "ling-nano that is\n"
         "part of this program. 'sparkling VERB --help' shows options, defaults and units;\n"
         "'sparkling --version' shows commit, build and back ends.\n\n"
         "Exit status: 0 done, 1 bad input, 2 wrong usage, 3 memory or device, 130 interrupted.\n";
}

constexpr const char* kFooter =
    "\nEach option can also be set by SPARKLING_<OPTION> (SPARKLING_TOP_K=20) or in the --config "
    "file\n"
    "(TOML or INI, 'top-k = 20', at the top or in a section named by the verb); the command line "
    "wins,\n"
    "then the environment. Results go to standard output, the log to standard error.\n";
constexpr const char* kRunFooter =
    "\nThe model's reasoning is streamed first (dimmed on a terminal), then an empty line, then "
    "the answer;\n"
    "tool calls follow as one JSON object a line. The last line, on standard error, gives the "
    "speed.\n";

// A hint for an argument that nothing took.
[[noreturn]] void fail_unknown(const std::string& argument, const Table& table) {
  if (argument.size() < 2 || argument[0] != '-') {
    fail_usage("unexpected argument '", argument, "'");
  }
  const size_t first = argument.find_first_not_of('-');
  const std::string name =
      first == std::string::npos ? "" : argument.substr(first, argument.find('=') - first);
  const auto owner = table.owners().find(name);
  if (owner != table.owners().end()) {
    std::string of;
    for (const VerbInfo& info : kVerbTable) {
      if ((owner->second & bit(info.verb)) != 0)
        of += (of.empty() ? "" : ", ") + std::string(info.name);
    }
    fail_usage("option '--", name, "' belongs to: ", of);
  }
  fail_usage("unknown option '", argument.substr(0, argument.find('=')), "'",
             did_you_mean(name, table.names(), "--"));
}

// Variables that look like ours but name no option: most likely slips, so they are said, not
// refused.
void check_environment(const Table& table, std::vector<std::string>& warnings) {
  std::vector<std::string> known = {"SPARKLING_MODEL", "SPARKLING_CONFIG"};
  for (const auto& [name, mask] : table.owners()) known.push_back(env_name(name));
  const std::vector<std::string_view> views(known.begin(), known.end());
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view pair(*entry);
    const std::string_view name = pair.substr(0, pair.find('='));
    if (name.rfind("SPARKLING_", 0) != 0) continue;
    if (std::find(views.begin(), views.end(), name) != views.end()) continue;
    if (const auto near = nearest(name, views)) {
      warnings.push_back(
          cat("environment variable ", name, " sets nothing; did you mean ", *near, "?"));
    }
  }
}

void check_together(const Options& o) {
  if (!o.model.model.empty() && !o.model.synthetic.empty()) {
    fail_usage("expected MODEL or --synthetic, found both");
  }
  if (!o.serve.api_key.empty() && !o.serve.api_key_file.empty())
    fail_usage("expected --api-key or --api-key-file, found both");
  if (o.model.layers > 0 && o.model.synthetic.empty()) fail_usage("--layers needs --synthetic");
  if (o.run.prompt && !o.run.file.empty()) fail_usage("expected -p or -f, found both");
  if (o.verb == Verb::kRun && o.run.raw && !o.run.tools.empty()) {
    fail_usage("--tools needs the chat template, which --raw leaves out");
  }
  if (o.verb == Verb::kRun && o.run.raw && !o.run.system.empty()) {
    fail_usage("--system needs the chat template, which --raw leaves out");
  }
  if (o.verb == Verb::kLogits && o.tokens.empty()) fail_usage("logits needs --tokens 1,2,3");
  if (o.verb == Verb::kLogits && o.logits.output.empty()) fail_usage("logits needs -o FILE.npy");
  if (o.verb == Verb::kTokenize) {
    const TokenizeOptions& k = o.tokenize;
    const int forms = (k.text ? 1 : 0) + (k.file.empty() ? 0 : 1) + (k.jsonl.empty() ? 0 : 1) +
                      (k.decode ? 1 : 0) + (k.count.empty() ? 0 : 1);
    if (forms > 1) fail_usage("expected one of --text, -f, --jsonl, --decode, --count");
  }
}

}  // namespace

std::span<const VerbInfo> verbs() { return kVerbTable; }

Options parse_options(int argc, const char* const* argv) {
  Options o;
  for (int i = 0; i < argc; ++i) o.command += (i > 0 ? " " : "") + std::string(argv[i]);
  if (argc < 2) {
    throw Error(ErrorKind::kUsage, cat("expected a verb\n\n", overview()));
  }
  const std::string first = argv[1];
  if (first == "--help" || first == "-h" || first == "help") {
    o.text = overview();
    return o;
  }
  if (first == "--version" || first == "-V") {
    o.text = version_text();
    return o;
  }
  const VerbInfo& info = find_verb(first);
  o.verb = info.verb;
  o.model.precision =
      (kRunning & bit(o.verb)) != 0 &&
              (o.verb == Verb::kRun || o.verb == Verb::kBench || o.verb == Verb::kServe)
          ? PrecisionMode::kFast
          : PrecisionMode::kExact;

  CLI::App app(std::string(info.summary), cat("sparkling ", info.name));
  app.formatter(std::make_shared<Formatter>());
  app.get_formatter()->column_width(34);
  app.allow_extras();
  app.set_help_flag();  // added last, so that the help ends with it
  app.footer(std::string(o.verb == Verb::kRun ? kRunFooter : "") + kFooter);
  if (o.verb == Verb::kCompletion) {
    app.add_option("SHELL", o.shell, "bash or zsh")->type_name("");
  } else {
    app.add_option("MODEL", o.model.model, "checkpoint folder (SPARKLING_MODEL, else ling-nano)")
        ->type_name("");
  }
  Table table(app, o.verb);
  add_run(table, o);
  add_serve(table, o);
  add_others(table, o);
  add_sampling(table, o);
  add_model(table, o);
  add_general(table, o);

  auto config = std::make_shared<ConfigFile>(table, info.name);
  auto* config_option = app.set_config("--config", "", "TOML or INI file with options");
  config_option->group("General")->type_name("FILE")->multi_option_policy(
      CLI::MultiOptionPolicy::TakeLast);
  app.config_formatter(config);
  app.set_help_flag("-h,--help", "this text")->group("General");

  // The library wants the arguments last first; the config file named by the environment comes
  // before all.
  std::vector<std::string> arguments;
  for (int i = argc - 1; i > 1; --i) {
    arguments.emplace_back(argv[i]);
    if (arguments.back() == "--config" && i + 1 < argc) config->file = argv[i + 1];
    if (arguments.back().rfind("--config=", 0) == 0) config->file = arguments.back().substr(9);
  }
  if (const char* set = std::getenv("SPARKLING_CONFIG");
      set != nullptr && *set != '\0' && config->file.empty()) {
    config->file = set;
    arguments.push_back(cat("--config=", set));
  }
  if (!config->file.empty())
    read_file(config->file);  // a missing one is bad input, said in our words
  try {
    app.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    std::string help = app.help();
    for (size_t at = 0; (at = help.find("\n\n\n", at)) != std::string::npos;) help.erase(at, 1);
    o.text = help;
    return o;
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string_view what(error.what());
    throw Error(ErrorKind::kUsage,
                cat(what.substr(0, what.find(':')), ": expected a value, found none"));
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorKind::kUsage, error.what());
  } catch (const std::logic_error&) {  // std::stoll inside CLI11, from the value of a switch
    fail_usage("expected true or false as the value of a switch (--json, --raw, --ignore-eos, ",
               "--quiet, --verbose; also from SPARKLING_ variables and --config), found another");
  }
  for (const std::string& argument : app.remaining()) fail_unknown(argument, table);
  check_environment(table, o.warnings);
  check_together(o);
  return o;
}

std::string completion_script(std::string_view shell) {
  constexpr std::array<std::string_view, 2> kShells = {"bash", "zsh"};
  check_choice(shell, kShells);
  std::string names;
  std::string cases;
  for (const VerbInfo& info : kVerbTable) {
    names += (names.empty() ? "" : " ") + std::string(info.name);
    CLI::App app;
    Options o;
    Table table(app, info.verb);
    add_run(table, o);
    add_others(table, o);
    add_sampling(table, o);
    add_model(table, o);
    add_general(table, o);
    std::string words = "--help --config";
    for (const std::string_view name : table.names()) words += cat(" --", name);
    cases += cat("    ", info.name, ") words=\"", words, "\" ;;\n");
  }
  std::string out = "# sparkling completion ";
  out += shell;
  out += "; load it with: source <(sparkling completion ";
  out += shell;
  out += ")\n";
  if (shell == "zsh") out += "autoload -U +X bashcompinit && bashcompinit\n";
  return out +
         cat("_sparkling() {\n  local cur=\"${COMP_WORDS[COMP_CWORD]}\" words\n"
             "  if [ \"$COMP_CWORD\" -eq 1 ]; then words=\"",
             names, " --help --version\"\n  else case \"${COMP_WORDS[1]}\" in\n", cases,
             "    *) words=\"\" ;;\n  esac; fi\n"
             "  case \"$cur\" in\n"
             "    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")) ;;\n"
             "    *) if [ \"$COMP_CWORD\" -eq 1 ]; then COMPREPLY=($(compgen -W \"$words\" -- "
             "\"$cur\")); else COMPREPLY=($(compgen -f -- \"$cur\")); fi ;;\n"
             "  esac\n}\ncomplete -o filenames -F _sparkling sparkling\n");
}

}  // namespace spk::cli
