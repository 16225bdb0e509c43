// Runs every verb on two back ends with the SAME inputs and compares every output.
//
// Back end a is the truth: its values are copied to b before each verb, so errors of different
// verbs never add up and a report names the culprit. Slow; for `compare`, `doctor` and tests.
// Routes that differ are counted apart: with equal inputs a flip means that two scores were closer
// than rounding.
#pragma once

#include "backend/backend.h"

#include <functional>
#include <memory>
#include <string>

namespace spk {

struct VerbReport {
  std::string where;   // "layer.7.kda_mix", "embed", "logits"
  std::string output;  // "o", "state.kda_state"
  // Largest ||a - b|| / ||a|| over the rows; where rows have fewer than 16 columns, ||a|| counts as
  // at least a tenth of the rows' root mean square.
  double error = 0;
  int64_t row = 0;     // where it was
  bool finite = true;  // both sides
  int64_t route_flips = 0;
};

// `report` sees every compared output; false from it ends the run by an Error(kInterrupted) that
// says so.
std::unique_ptr<Backend> make_compare_backend(Backend& a, Backend& b,
                                              std::function<bool(const VerbReport&)> report);

}  // namespace spk
