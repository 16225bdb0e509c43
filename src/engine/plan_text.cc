#include "engine/plan_text.h"

#include "base/error.h"
#include "engine/memory_plan.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

namespace spk {
namespace {

// Each kernel once, with the layers that it serves: "layers 1 to 11 and the draft layer".
class Kernels {
 public:
  void add(const std::string& name, const std::string& where) {
    for (auto& [known, places] : lines_) {
      if (known != name) continue;
      places.push_back(where);
      return;
    }
    lines_.push_back({name, {where}});
  }
  std::string text() const {
    std::string out;
    for (const auto& [name, places] : lines_) {
      out += cat(out.empty() ? "" : "; ", name, " (", places.front());
      if (places.size() > 2) out += cat(" to ", places[places.size() - 2]);
      if (places.size() > 1) out += cat(", ", places.back());
      out += ")";
    }
    return out.empty() ? "none" : out;
  }

 private:
  std::vector<std::pair<std::string, std::vector<std::string>>> lines_;
};

std::string experts_text(const Model& model, const Backend& backend) {
  Kernels kernels;
  const auto visit = [&](const Layer& layer, const std::string& where) {
    if (!layer.is_moe || layer.moe.experts.empty()) return;
    const Ffn& first = layer.moe.experts.front();
    std::string name = backend.expert_kernel(first.gate);
    const std::string down = backend.expert_kernel(first.down);
    if (down != name) name += cat(" and ", down);
    if (layer.moe.shared.gate) {
      const std::string shared = backend.expert_kernel(layer.moe.shared.gate);
      if (name.find(shared) == std::string::npos) name += cat(", shared ", shared);
    }
    kernels.add(name, where);
  };
  for (size_t l = 0; l < model.layers.size(); ++l) visit(model.layers[l], cat("layer ", l));
  if (model.mtp) visit(model.mtp->layer, "draft layer");
  return kernels.text();
}

std::string drafts_text(const Model& model, const EngineOptions& options) {
  if (!model.mtp) return "off, the checkpoint has no MTP layer";
  if (options.draft == 0) return "off, by option";
  std::string out = options.draft == kAutoDepth
                        ? cat("0 to ", kMaxDrafts, " by measured gain")
                        : cat(options.draft, " a cycle, one verify pass of ", options.draft + 1);
  const LmHead& head = drafting_head(model);
  if (!model.draft_head) return out + ", from the target's head";
  return out + cat(", from a head of ", head.rows(), " rows in ", format_name(head.format()), ", ",
                   mib(head.bytes()));
}

std::string megabytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f MB", static_cast<double>(bytes) / 1e6);
  return text;
}

}  // namespace

std::string plan_text(const Model& model, const Backend& backend, const EngineOptions& options,
                      const ModelSizes& sizes) {
  std::string out = cat("back end: ", backend.description());
  out += cat("\nexperts: ", experts_text(model, backend));
  out += cat("\nhead: ", format_name(model.head.format()), ", ", mib(model.head.bytes()),
             ", one object for target and drafts");
  out += cat("\ndrafts: ", drafts_text(model, options));
  out += cat("\nsampling: ", backend.sampling());
  out +=
      "\nstates: written in place by plain steps; a verify pass works on a private copy, accepted "
      "rows are folded";
  out += cat("\nfused blocks: ", model.plan.text.empty() ? "none" : model.plan.text);
  // A recurrent state is read and written.
  out += cat("\nbytes per token: ", megabytes(sizes.pass_weight_bytes()), " of weights + ",
             megabytes(2 * sizes.recurrent_bytes), " of recurrent state");
  return out;
}

}  // namespace spk
