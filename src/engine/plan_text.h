// What really runs, in words. Private to engine/.
#pragma once

#include "engine/engine.h"

#include <string>

namespace spk {

// One "name: value" a line: back end, experts, head, drafts, states, fused blocks, bytes per token.
std::string plan_text(const Model& model, const Backend& backend, const EngineOptions& options,
                      const ModelSizes& sizes);

}  // namespace spk
