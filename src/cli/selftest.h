// A known-answer test of the loaded model: the plain reference back end against the fast one, on a
// few tokens.
#pragma once

#include "cli/source.h"

#include <cstdint>
#include <string>

namespace spk::cli {

struct SelfTest {
  bool passed = false;
  std::string text;           // what was compared
  double error = 0;           // largest relative error of a logits row
  int64_t route_flips = 0;    // experts that the back end under test chose differently by itself
  std::string backend;        // description of the back end under test
  double read_bandwidth = 0;  // bytes/s of its threads
};
SelfTest self_test(const ModelOptions& options, int64_t weight_bytes);

}  // namespace spk::cli
