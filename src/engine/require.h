// --require: proof by launch counters that what was asked for is what runs.
#pragma once

#include "engine/session.h"
#include "model/model.h"

#include <string>
#include <string_view>
#include <vector>

namespace spk {

// One item of the list: moe=plain|packed, lm-head=stored|fp32|bf16|fp8|mxfp4, draft=0..7.
struct Requirement {
  std::string key, value;
};
// "moe=packed,lm-head=fp8,draft=3". Error(kUsage) names the item that is not one of those.
std::vector<Requirement> parse_requirements(std::string_view list);

// What one probe cycle really did.
struct Probe {
  uint64_t packed_experts = 0, plain_experts = 0;
  uint64_t heads[kFormats] = {};
  int drafted = 0;
  bool automatic = false;  // the depth is the policy's affair
};
// Runs a prompt of one token and one cycle at `depth` (kAutoDepth: plain); the session is reset
// afterwards.
Probe probe_step(const Model& model, Backend& backend, Session& session, int depth);

// Error(kResource) naming every requirement that the probe does not show, with what ran instead.
void check_requirements(const std::vector<Requirement>& requirements, const Probe& probe,
                        Format stored_head);

}  // namespace spk
