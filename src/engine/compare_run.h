// Runs a model over tokens on two back ends at once (backend/compare.h) and reports every compared
// output.
#pragma once

#include "backend/compare.h"
#include "engine/engine.h"

#include <functional>
#include <span>

namespace spk {

// `a` is the truth. `report` as in make_compare_backend; stopping by `false` returns normally. Runs
// the prompt as one prefill step (chunk as in `a`), then the last quarter of the tokens one by one,
// then the MTP layer if there is one.
void compare_backends(const TensorSource& source, const ModelConfig& config, const EngineOptions& a,
                      const EngineOptions& b, std::span<const int32_t> tokens,
                      std::function<bool(const VerbReport&)> report);

// A back end by its command-line name; "auto" is the best that can run here. Error(kResource) for
// one that cannot.
std::unique_ptr<Backend> make_backend(const EngineOptions& options);

}  // namespace spk
