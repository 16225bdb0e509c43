// The kernels' sources inside the executable (src/kernels/*.cuh, embedded by cmake/kernels.cmake),
// and which of them a kernel reaches.
#pragma once

#include "backend/cuda/nvrtc.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spk::cuda {

// A kernel to compile: where it is defined and which instantiation, as C++ spells it.
struct KernelSpec {
  std::string header;      // "kernels/norm.cuh"
  std::string expression;  // "spk::rms_norm<4>"
  bool operator==(const KernelSpec&) const = default;
};

// All embedded sources, names as in #include.
const std::vector<SourceText>& kernel_sources();

// `header` and everything that it includes, directly or not, sorted by name.
// Error(kResource) naming both files when something included is not there.
std::vector<SourceText> reachable_sources(const std::vector<SourceText>& all,
                                          std::string_view header);

// FNV-1a: for keys and checksums against accidents, not against attackers.
uint64_t hash_bytes(std::string_view bytes, uint64_t start = 0xcbf29ce484222325u);

}  // namespace spk::cuda
