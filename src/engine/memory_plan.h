// Sizes before anything is allocated. Private to engine/.
#pragma once

#include "engine/engine.h"

#include <string>

namespace spk {

// Weights are given, the scratch follows from the chunk, the caches from the context, which is cut
// to what fits when the caller left it open. Error(kResource) with the plan when it does not fit.
MemoryPlan plan_memory(const ModelConfig& config, const TensorSet& tensors,
                       const EngineOptions& options, size_t real_bytes);

// Prefill rows of a step when nobody says: 256, and 384 of a model whose activations are small
// where memory is not limited.
int64_t default_chunk(const ModelConfig& config, bool mtp, const EngineOptions& options,
                      size_t real_bytes);

std::string mib(int64_t bytes);  // "12.5 MiB"

}  // namespace spk
