// Known-answer tests of the loaded model: whole tokens of the reference back end against the exact
// form of the one that is used, then each optimisation as the options ask for it.
#pragma once

#include "cli/source.h"

#include <cstdint>
#include <string>
#include <vector>

namespace spk::cli {

struct SelfTest {
  bool passed = false;
  std::string text;           // what was compared
  double error = 0;           // largest relative error of a logits row
  int64_t route_flips = 0;    // experts that the back end under test chose differently by itself
  std::string backend;        // description of the back end under test
  double read_bandwidth = 0;  // bytes/s of its threads
  std::string plan;           // of the engine as the options ask for it
  int64_t token_bytes = 0;    // of it, for a decoded token without drafts: weights and states
  std::vector<Proof> proofs;  // its known-answer tests, all passed
};
// Error(kResource) when an optimisation fails its proof or a --require.
SelfTest self_test(const ModelOptions& options, int64_t weight_bytes);

}  // namespace spk::cli
