// The sampler's parameters from three sources: command line, the model's generation_config.json,
// ours.
#pragma once

#include "backend/sampler.h"
#include "cli/options.h"

#include <optional>
#include <string>

namespace spk::cli {

// generation_config.json over our defaults (temperature 0.6, top_p 0.95: the published examples of
// the family). "do_sample": false is temperature 0; the end token is config.json's affair.
// Error(kInput) names key and value.
SamplerParams model_defaults(const std::optional<std::string>& generation_config, int64_t vocab);

// The above under the command line's values. Without --seed a new one is drawn from the operating
// system.
SamplerParams sampler_params(const SamplingOptions& options,
                             const std::optional<std::string>& generation_config, int64_t vocab);

}  // namespace spk::cli
