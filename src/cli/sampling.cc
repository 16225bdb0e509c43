#include "cli/sampling.h"

#include "base/error.h"

#include <nlohmann/json.hpp>

#include <random>

namespace spk::cli {
namespace {

constexpr const char* kFile = "generation_config.json";

double number(const nlohmann::json& config, const char* key, double otherwise) {
  const auto at = config.find(key);
  if (at == config.end() || at->is_null()) return otherwise;
  if (!at->is_number()) {
    fail_input(kFile, ": ", key, ": expected a number, found ",
               at->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  return at->get<double>();
}

}  // namespace

SamplerParams model_defaults(const std::optional<std::string>& generation_config, int64_t vocab) {
  SamplerParams p;
  p.temperature = 0.6;
  p.top_p = 0.95;
  if (!generation_config) return p;
  const auto config = nlohmann::json::parse(*generation_config, nullptr, false);
  if (!config.is_object()) fail_input(kFile, ": expected a JSON object");
  p.temperature = number(config, "temperature", p.temperature);
  p.top_p = number(config, "top_p", p.top_p);
  p.min_p = number(config, "min_p", p.min_p);
  const double top_k = number(config, "top_k", 0);
  if (!(top_k >= -1 && top_k <= 1e9))
    fail_input(kFile, ": top_k: expected -1 to 1e9, found ", top_k);
  p.top_k = static_cast<int64_t>(top_k);
  p.repetition_penalty = number(config, "repetition_penalty", p.repetition_penalty);
  const auto sample = config.find("do_sample");
  if (sample != config.end() && sample->is_boolean() && !sample->get<bool>()) p.temperature = 0;
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
