#include "engine/require.h"

#include "backend/sampler.h"
#include "base/error.h"

#include <algorithm>

namespace spk {
namespace {

Format head_format(std::string_view value, Format stored) {
  switch (parse_head_format(value)) {
    case HeadFormat::kStored:
      return stored;
    case HeadFormat::kFp32:
      return Format::kF32;
    case HeadFormat::kBf16:
      return Format::kBf16;
    case HeadFormat::kFp8:
      return Format::kFp8Row;
    case HeadFormat::kMxfp4:
      return Format::kMxfp4;
  }
  return stored;
}

void check_item(const Requirement& r) {
  if (r.key == "moe") {
    if (r.value != "plain" && r.value != "packed")
      fail_usage("expected moe=plain or moe=packed, found moe=", r.value);
  } else if (r.key == "lm-head") {
    parse_head_format(r.value);
  } else if (r.key == "draft") {
    if (r.value.size() != 1 || r.value[0] < '0' || r.value[0] > '7')
      fail_usage("expected draft=0 to draft=7, found draft=", r.value);
  } else {
    fail_usage("expected moe=, lm-head= or draft=, found '", r.key, "'");
  }
}

// Empty when the probe shows it, else what ran.
std::string shortfall(const Requirement& r, const Probe& p, Format stored) {
  if (r.key == "moe") {
    const bool shown =
        r.value == "packed" ? p.packed_experts > 0 : p.plain_experts > 0 && p.packed_experts == 0;
    return shown ? ""
                 : cat(p.packed_experts, " packed and ", p.plain_experts, " plain expert launches");
  }
  if (r.key == "draft") {
    if (p.automatic) return "a depth chosen by measured gain (--draft auto)";
    return p.drafted == r.value[0] - '0' ? "" : cat(p.drafted, " drafts in a cycle");
  }
  const Format wanted = head_format(r.value, stored);
  if (p.heads[static_cast<size_t>(wanted)] > 0) return "";
  std::string ran;
  for (int f = 0; f < kFormats; ++f)
    if (p.heads[f] > 0) ran += cat(ran.empty() ? "" : ", ", format_name(static_cast<Format>(f)));
  return cat("heads in ", ran.empty() ? "no format at all" : ran);
}

}  // namespace

std::vector<Requirement> parse_requirements(std::string_view list) {
  std::vector<Requirement> out;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    const std::string_view item = list.substr(0, comma);
    const size_t equals = std::min(item.find('='), item.size());
    out.push_back({std::string(item.substr(0, equals)),
                   std::string(item.substr(std::min(equals + 1, item.size())))});
    check_item(out.back());
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return out;
}

Probe probe_step(const Model& model, Backend& backend, Session& session, int depth) {
  const int32_t token = static_cast<int32_t>(model.config.shape.vocab / 2);
  session.reset();
  session.sync({&token, 1}, [] { return true; });
  Sampler sampler(model.config.shape.vocab);
  sampler.reset({&token, 1});
  SamplerParams greedy;
  greedy.temperature = 0;
  const Counters before = backend.counters();
  const int room = static_cast<int>(std::min<int64_t>(session.context() - 2, kMaxDrafts));
  const int most = session.can_draft() ? std::max(room, 0) : 0;
  const CycleResult cycle =
      session.cycle(token, std::clamp(depth, 0, most), AcceptRule::kCoupled, sampler, greedy);
  const Counters& after = backend.counters();
  Probe probe;
  probe.packed_experts = after.packed_experts - before.packed_experts;
  probe.plain_experts = after.plain_experts - before.plain_experts;
  for (int f = 0; f < kFormats; ++f) probe.heads[f] = after.heads[f] - before.heads[f];
  probe.drafted = cycle.drafted;
  probe.automatic = depth < 0;
  session.reset();
  return probe;
}

void check_requirements(const std::vector<Requirement>& requirements, const Probe& probe,
                        Format stored_head) {
  std::string missing;
  for (const Requirement& r : requirements) {
    const std::string ran = shortfall(r, probe, stored_head);
    if (!ran.empty())
      missing +=
          cat(missing.empty() ? "" : "; ", "expected ", r.key, "=", r.value, ", found ", ran);
  }
  if (!missing.empty()) fail_resource("--require: in a probe step ", missing);
}

}  // namespace spk
