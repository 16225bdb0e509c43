// What a checkpoint holds and costs, without loading it: for `inspect` and the reports of other
// verbs.
#pragma once

#include "cli/source.h"
#include "model/model.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace spk::cli {

struct FormatShare {
  int64_t tensors = 0;
  int64_t bytes = 0;
};

struct Inspection {
  std::string name;
  ModelConfig config;
  ModelSizes sizes;
  bool has_mtp = false;
  // What is stored: by component, by format.
  std::map<std::pair<Component, Format>, FormatShare> stored;
  std::vector<std::string> notes;  // of the config and of the tensors
  int64_t token_bytes() const;     // read per decoded token, no drafts
  int64_t token_bytes(Component component) const;
  int64_t cache_bytes(int64_t context) const;  // exact precision
  // One line a mixer and one a feed-forward: "KKKKKM KKKKKM", "deeeee eeeeee".
  std::string mixer_line() const;
  std::string ffn_line() const;
};

// Binds every tensor (names, shapes, types, scales); Error(kInput) with all mismatches. Applies
// --rope-scaling.
Inspection inspect_model(const OpenedModel& model);

}  // namespace spk::cli
