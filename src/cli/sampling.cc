#include "cli/sampling.h"

#include "base/error.h"
#include "base/json_whole.h"
#include "base/log.h"
#include "formats/untrusted.h"

#include <nlohmann/json.hpp>

#include <array>
#include <cmath>
#include <random>

namespace spk::cli {
namespace {

constexpr const char* kFile = "generation_config.json";
constexpr size_t kMaxDepth = 32;

std::string shown(const nlohmann::json& value) {
  return printable(value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
}

// What would make another text of it elsewhere; here the options of the command line and of the
// requests say it, and the end tokens are config.json's.
void warn_unused(const nlohmann::json& config) {
  struct Unused {
    const char* key;
    nlohmann::json harmless;
  };
  const std::array<Unused, 8> unused = {{{"num_beams", 1},
                                         {"typical_p", 1.0},
                                         {"epsilon_cutoff", 0.0},
                                         {"eta_cutoff", 0.0},
                                         {"penalty_alpha", 0.0},
                                         {"no_repeat_ngram_size", 0},
                                         {"bad_words_ids", nullptr},
                                         {"suppress_tokens", nullptr}}};
  for (const Unused& u : unused) {
    const auto at = config.find(u.key);
    if (at != config.end() && !at->is_null() && *at != u.harmless)
      log_warn(cat(kFile, ": ", u.key, ": not supported, found ", shown(*at), "; it is not used"));
  }
}

double number(const nlohmann::json& config, const char* key, double otherwise) {
  const auto at = config.find(key);
  if (at == config.end() || at->is_null()) return otherwise;
  if (!at->is_number()) {
    fail_input(kFile, ": ", key, ": expected a number, found ", shown(*at));
  }
  return at->get<double>();
}

}  // namespace

SamplerParams model_defaults(const std::optional<std::string>& generation_config, int64_t vocab) {
  SamplerParams p;
  p.temperature = 0.6;
  p.top_p = 0.95;
  if (!generation_config) return p;
  if (const size_t depth = json_depth(*generation_config); depth > kMaxDepth)
    fail_input(kFile, ": expected at most ", kMaxDepth, " levels, found ", depth);
  const auto config = nlohmann::json::parse(json_whole(*generation_config), nullptr, false);
  if (!config.is_object())
    fail_input(kFile, ": expected a JSON object, found ",
               config.is_discarded() ? "no valid JSON" : shown(config));
  p.temperature = number(config, "temperature", p.temperature);
  p.top_p = number(config, "top_p", p.top_p);
  p.min_p = number(config, "min_p", p.min_p);
  const double top_k = number(config, "top_k", 0);
  if (!(top_k >= -1 && top_k <= 1e9 && std::floor(top_k) == top_k))
    fail_input(kFile, ": top_k: expected a whole number from -1 to 1e9, found ", top_k);
  p.top_k = static_cast<int64_t>(top_k);
  p.repetition_penalty = number(config, "repetition_penalty", p.repetition_penalty);
  if (const auto sample = config.find("do_sample"); sample != config.end() && !sample->is_null()) {
    if (!sample->is_boolean())
      fail_input(kFile, ": do_sample: expected true or false, found ", shown(*sample));
    if (!sample->get<bool>()) p.temperature = 0;
  }
  warn_unused(config);
  try {
    check_params(p, vocab);
  } catch (const Error& error) {
    fail_input(kFile, ": ", error.what());
  }
  return p;
}

SamplerParams sampler_params(const SamplingOptions& options,
                             const std::optional<std::string>& generation_config, int64_t vocab) {
  SamplerParams p = model_defaults(generation_config, vocab);
  p.temperature = options.temperature.value_or(p.temperature);
  p.top_k = options.top_k.value_or(p.top_k);
  p.top_p = options.top_p.value_or(p.top_p);
  p.min_p = options.min_p.value_or(p.min_p);
  p.repetition_penalty = options.repetition_penalty.value_or(p.repetition_penalty);
  p.presence_penalty = options.presence_penalty.value_or(p.presence_penalty);
  p.frequency_penalty = options.frequency_penalty.value_or(p.frequency_penalty);
  p.logit_bias = options.logit_bias;
  if (options.seed) {
    p.seed = static_cast<uint64_t>(*options.seed);
  } else {
    std::random_device device;
    // 53 bits: the seed is shown in JSON and must survive a reader that keeps numbers as doubles.
    p.seed = ((static_cast<uint64_t>(device()) << 32) | device()) >> 11;
  }
  check_params(p, vocab);
  return p;
}

}  // namespace spk::cli
