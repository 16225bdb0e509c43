// Random weights of any config in the fp4 layout, made in memory: full size without files.
//
// Every layer and expert has its own bytes (a bandwidth measurement must not hit a cache by sharing
// them); values are sane (activations stay of order one). Deterministic in (config, seed).
#pragma once

#include "formats/checkpoint.h"
#include "model/config.h"

#include <memory>
#include <string>
#include <string_view>

namespace spk {

// config.json text of a known name: "ling-3.0-flash", "ling-3.0-tiny"; Error(kUsage) with a
// did-you-mean otherwise.
std::string_view known_config(std::string_view name);

// kWhenRead: routed experts, nearly all of the bytes, take memory only once recalled; read() makes
// them where they are wanted.
enum class MakeExperts : uint8_t { kNow, kWhenRead };
std::unique_ptr<TensorSource> make_synthetic(const ModelConfig& config, uint64_t seed, int threads,
                                             MakeExperts experts = MakeExperts::kNow);
// The same names, types and shapes with zeros inside, which take no memory: for what counts bytes.
std::unique_ptr<TensorSource> make_synthetic_sizes(const ModelConfig& config);

}  // namespace spk
