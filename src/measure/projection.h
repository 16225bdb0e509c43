// From bytes and a device to time: limits, projections with each optimisation, prefill, loading,
// memory.
//
// A limit is bytes over bandwidth and nothing else; a projection multiplies it by the share that
// engines reached on such a device. Both are printed, so that nobody takes one for the other.
#pragma once

#include "measure/device.h"
#include "measure/pass_bytes.h"

#include <optional>
#include <string>
#include <vector>

namespace spk {

struct PlanRequest {
  int64_t depth = 1024;  // position of the decoded token
  HeadFormat head = HeadFormat::kFp8;
  int64_t drafts = 3;
  int64_t draft_head = 0;  // rows of its own head, 0: the target's
  double accept_length = 2.68;
  double distinct = 0;  // experts of a verify pass, 0: estimated at 60 % of independent growth
  bool bf16_latents = false;  // else floats, as the back ends here keep them
  int64_t context = 0;        // for the memory; 0: the config's
};

// One cycle of drafting and verifying, or a plain step (drafts 0, accept length 1).
struct CycleBytes {
  int64_t drafts = 0;
  double accept_length = 1;
  double distinct = 0;           // experts of a layer in the verify pass
  double verify = 0, draft = 0;  // bytes
  double per_token() const { return (verify + draft) / accept_length; }
};

struct PlanRow {
  std::string name;
  CycleBytes cycle;
  double limit_tok_s = 0;
  double practical_tok_s = 0;  // at the bandwidth that somebody measured; 0: unknown
  double projected_tok_s = 0;
};

// A published figure and what share of the limit it is.
struct PublishedRow {
  std::string name;
  double tok_s = 0;
  CycleBytes low, high;  // distinct experts at 60 and at 100 % of independent growth
  double percent_low = 0, percent_high = 0;
};

struct Plan {
  Device device;
  PlanRequest request;
  PassBytes step;  // one plain token with the wanted head
  std::vector<PlanRow> rows;
  double prefill_limit_tok_s = 0, prefill_projected_tok_s = 0;  // 0: compute unknown
  int64_t prefill_chunk = 0;
  double weight_bytes = 0, cache_bytes = 0, state_bytes = 0;
  double load_seconds = 0;  // 0: disk unknown
  std::optional<bool> fits;
  std::vector<PublishedRow> published;
};
Plan make_plan(const ModelConfig& config, const TensorSet& tensors, const Device& device,
               const PlanRequest& request);

}  // namespace spk
