#include "cli/identity.h"

#include "base/error.h"
#include "cli/machine.h"
#include "cli/version.h"
#include "model/model.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <string_view>

namespace spk::cli {

std::string weights_identity(const OpenedModel& model) {
  constexpr size_t kSample = 64;  // bytes of a tensor
  uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&](std::string_view bytes) {
    for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  };
  const TensorSet set = bind_tensors(model.config, *model.source, CheckScales::kLater);
  for (const BoundTensor& bound : set.tensors) {
    if (bound.expert > 0) continue;
    const HostTensor& t = bound.tensor;
    add(cat(bound.name, " ", format_name(t.format), " ", t.rows, " ", t.cols, "\n"));
    const auto size = static_cast<size_t>(code_bytes(t.format, t.rows, t.cols));
    model.source->recall(t.data, size);
    add({reinterpret_cast<const char*>(t.data), std::min(size, kSample)});
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, hash);
  return text;
}

std::vector<std::pair<std::string, std::string>> run_settings(const ModelOptions& o) {
  const Version v = version();
  const EngineOptions e = engine_options(o);  // what the precision chose where nothing was said
  return {
      {"commit", std::string(v.commit)},
      {"build", cat(v.build, ", ", v.compiler)},
      {"machine", this_machine().text()},
      {"backend", o.backend},
      {"precision", o.precision == PrecisionMode::kFast ? "fast" : "exact"},
      {"threads", o.threads > 0 ? cat(o.threads) : "all"},
      {"moe", e.device.moe == MoeKernel::kPacked ? "packed" : "plain"},
      {"lm_head", std::string(head_format_name(e.head))},
      {"draft", o.draft},
      {"draft_head", o.draft_head == kAutoDraftHead ? "auto" : cat(o.draft_head)},
      {"require", o.require},
      {"context", cat(o.context)},
      {"rope_scaling", o.rope_scaling},
  };
}

}  // namespace spk::cli
