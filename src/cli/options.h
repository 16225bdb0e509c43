// What the command line, a config file and the environment ask for, as plain data.
//
// Filled from the option table (option_table.h); nothing else in the program knows option names,
// and only options.cc the CLI library. Order of strength: command line, SPARKLING_<OPTION>,
// --config file, default.
#pragma once

#include "backend/layout.h"
#include "base/log.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spk::cli {

enum class Verb : uint8_t {
  kRun,
  kServe,
  kLogits,
  kTokenize,
  kInspect,
  kDoctor,
  kPlan,
  kBench,
  kEval,
  kCompare,
  kCompletion,
};
inline constexpr int kVerbs = 11;

struct VerbInfo {
  Verb verb;
  std::string_view name;
  std::string_view summary;
};
std::span<const VerbInfo> verbs();
std::string_view verb_name(Verb verb);

// --draft-head auto: rows by the checkpoint's own counts, where that pays.
inline constexpr int64_t kAutoDraftHead = -1;

// Which model, and how it is run.
struct ModelOptions {
  std::string model;  // folder; "": SPARKLING_MODEL, else the embedded ling-nano
  std::string synthetic;
  int64_t layers = 0;  // 0: all
  int64_t weights_seed = 1;
  std::string backend = "auto";
  PrecisionMode precision = PrecisionMode::kExact;
  int threads = 0;
  std::string memory;  // as written; sizes in percent need the machine
  int64_t context = 0;
  std::string rope_scaling;
  std::string draft = "auto";
  std::string lm_head;                  // "": what the precision says
  std::string moe;                      // "": what the precision says
  int64_t draft_head = kAutoDraftHead;  // rows; 0: the target's head
  std::string require;
};

// Absent fields: generation_config.json, then ours.
struct SamplingOptions {
  std::optional<double> temperature, top_p, min_p;
  std::optional<int64_t> top_k;
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::vector<std::pair<int32_t, double>> logit_bias;
  std::optional<int64_t> seed;
  std::vector<std::string> stop;
  std::optional<int64_t> max_tokens;  // 0: no answer at all
  bool ignore_eos = false;
};

struct RunOptions {
  std::optional<std::string> prompt;
  std::string file;
  std::string system;
  bool raw = false;
  bool thinking = true;
  std::string tools;  // file
};

struct ServeOptions {
  std::string host = "127.0.0.1";
  int port = 8080;
  std::string api_key, api_key_file;
  bool no_api_key = false;  // said on purpose
  std::vector<std::string> cors;
  std::string model_name;
  int64_t queue = 16;
  int64_t connections = 512;
  double keep_alive = 10, stall = 60, drain = 30;  // seconds
  std::string max_body = "16MiB";
  bool log_prompts = false;
  bool thinking = true;
  int64_t thinking_budget = -1;
};

struct LogitsOptions {
  bool mtp = false;
  int64_t chunk = 0;
  std::string routes_in, routes_out, output;
};

struct TokenizeOptions {
  std::optional<std::string> text;
  std::string file, jsonl;
  bool special = false;
  std::optional<std::string> decode;
  std::vector<std::string> count;
};

struct BenchOptions {
  int64_t in = 128;
  int64_t out = 64;
  int64_t repeat = 3;
  std::vector<int64_t> depths;  // tokens that are there before; empty: none
  std::string prompts;          // file
  bool ladder = false;
  bool acceptance = false;
  bool profile = false;
  std::optional<std::string> kernel;  // "": all
  double simulate_acceptance = 0;     // 0: off
  int64_t simulate_experts = 0;
  std::string plot;  // file
  std::string format = "table";
};

// eval gsm8k [MODEL] | set FILE [MODEL] | compare A B
struct EvalArguments {
  std::vector<std::string> words;  // as typed; the rest is made of them
  std::string what;                // gsm8k, set, compare
  std::string data, train;         // question files
  std::string a, b;                // compare: result files
  std::string out;                 // result file, "": none
  std::optional<int64_t> shots;
  int64_t limit = 0;  // 0: all
  bool thinking = false;
  int64_t max_tokens = 1024;
  std::string format = "table";
};

struct PlanArguments {
  std::string device;  // "": this machine
  int64_t depth = 1024;
  std::string head = "fp8";
  int64_t draft = 3;
  int64_t draft_head = 0;               // rows, 0: the target's head
  std::optional<double> accept_length;  // 2.68, or what the drafts allow
  double distinct = 0;                  // experts a verify pass, 0: estimated
  bool bf16_latents = false;            // else floats
};

struct CompareOptions {
  std::string a = "reference";
  std::string b = "cpu";
  std::string stop_after;
};

struct Options {
  Verb verb = Verb::kRun;
  std::string command;  // as typed, for reports
  LogLevel log = LogLevel::kInfo;
  bool json = false;
  bool warm = false;  // doctor
  ModelOptions model;
  SamplingOptions sampling;
  std::string tokens;  // logits, compare: as written
  RunOptions run;
  ServeOptions serve;
  LogitsOptions logits;
  TokenizeOptions tokenize;
  BenchOptions bench;
  EvalArguments eval;
  PlanArguments plan;
  CompareOptions compare;
  std::string shell;                // completion
  std::optional<std::string> text;  // --help, --version: print this and stop
  std::vector<std::string> warnings;
};

// Error(kUsage) for anything that the table does not allow; Error(kInput) for a config file that
// cannot be read.
Options parse_options(int argc, const char* const* argv);

// A script for bash or zsh, made from the same table.
std::string completion_script(std::string_view shell);

}  // namespace spk::cli
