// `plan`: what a device allows before anything is run there.
#include "base/bandwidth.h"
#include "base/error.h"
#include "cli/machine.h"
#include "cli/output.h"
#include "cli/source.h"
#include "cli/values.h"
#include "cli/verbs.h"
#include "measure/projection.h"
#include "measure/show.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>

namespace spk::cli {
namespace {

using Json = nlohmann::ordered_json;

Device this_device(int threads) {
  const Machine machine = this_machine();
  const int team = threads > 0 ? threads : machine.physical_cores;
  Device d;
  d.name = "this machine: " + machine.text();
  d.bandwidth = measure_read_bandwidth(team);
  if (d.bandwidth == 0)
    fail_resource("the bandwidth of this machine could not be measured: expected room for ",
                  show_bytes(static_cast<double>(kLeastBandwidthBuffer)), ", found less");
  d.memory = static_cast<double>(machine.memory_total);
  d.source = cat("read bandwidth of ", team, " threads, measured now");
  return d;
}

PlanRequest request_of(const Options& options, const ModelConfig& config, bool has_mtp) {
  const PlanArguments& p = options.plan;
  PlanRequest r;
  r.depth = p.depth;
  r.head = parse_head_format(p.head);
  r.drafts = has_mtp ? p.draft : 0;
  r.draft_head = p.draft_head;
  constexpr double kPublished = 2.68, kPublishedOfOne = 1.68;  // one draft cannot yield the former
  r.accept_length = p.accept_length.value_or(r.drafts == 1 ? kPublishedOfOne : kPublished);
  r.distinct = p.distinct;
  r.bf16_latents = p.bf16_latents;
  r.context = options.model.context;
  if (const int64_t context = std::max(r.context, config.context); r.depth >= context)
    fail_usage("--depth: expected a position below the context of ", context, ", found ", r.depth);
  if (r.drafts > 0 && r.accept_length > static_cast<double>(r.drafts + 1))
    fail_usage("--accept-length: expected at most ", r.drafts + 1, " with --draft ", r.drafts,
               ", found ", r.accept_length);
  // A verify pass has at least the experts of one row, at most those of all rows.
  const int64_t least = config.shape.top_k;
  const int64_t most = std::min(config.shape.experts, (r.drafts + 1) * least);
  if (r.distinct > 0 && r.drafts > 0 &&
      (r.distinct < static_cast<double>(least) || r.distinct > static_cast<double>(most)))
    fail_usage("--distinct: expected ", least, " to ", most, " experts with --draft ", r.drafts,
               ", found ", r.distinct);
  if (r.draft_head > config.shape.vocab)
    fail_usage("--draft-head: expected at most ", config.shape.vocab, " rows, found ",
               r.draft_head);
  return r;
}

Json number(double value) { return value > 0 ? Json(value) : Json(nullptr); }

std::string plan_json(const Plan& p, const std::string& model) {
  Json j;
  j["model"] = model;
  j["device"] = {{"name", p.device.name},
                 {"bandwidth_gb_s", p.device.bandwidth / 1e9},
                 {"practical_gb_s", number(p.device.practical / 1e9)},
                 {"source", p.device.source}};
  j["depth"] = p.request.depth;
  Json components = Json::array();
  const double total = p.step.total();
  for (int i = 0; i < kTraffics; ++i) {
    const auto traffic = static_cast<Traffic>(i);
    if (p.step[traffic] == 0) continue;
    components.push_back({{"name", traffic_name(traffic)},
                          {"bytes", p.step[traffic]},
                          {"percent", 100 * p.step[traffic] / total}});
  }
  j["components"] = components;
  j["bytes_per_token"] = total;
  j["rows"] = Json::array();
  for (const PlanRow& r : p.rows) {
    j["rows"].push_back({{"name", r.name},
                         {"drafts", r.cycle.drafts},
                         {"accept_length", r.cycle.accept_length},
                         {"distinct_experts", r.cycle.distinct},
                         {"verify_bytes", r.cycle.verify},
                         {"draft_bytes", r.cycle.draft},
                         {"bytes_per_token", r.cycle.per_token()},
                         {"limit_tok_s", r.limit_tok_s},
                         {"practical_limit_tok_s", number(r.practical_tok_s)},
                         {"projected_tok_s", r.projected_tok_s}});
  }
  j["prefill"] = {{"chunk", p.prefill_chunk},
                  {"limit_tok_s", number(p.prefill_limit_tok_s)},
                  {"projected_tok_s", number(p.prefill_projected_tok_s)}};
  j["load_seconds"] = number(p.load_seconds);
  j["memory"] = {{"weights", p.weight_bytes},
                 {"caches", p.cache_bytes},
                 {"state", p.state_bytes},
                 {"context", p.request.context},
                 {"fits", p.fits ? Json(*p.fits) : Json(nullptr)}};
  j["published"] = Json::array();
  for (const PublishedRow& r : p.published) {
    j["published"].push_back({{"name", r.name},
                              {"tok_s", r.tok_s},
                              {"percent_of_limit", r.percent_low},
                              {"percent_if_independent", r.percent_high}});
  }
  return j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string components_text(const Plan& p) {
  const double total = p.step.total();
  const std::string head = cat("one plain token at position ", p.request.depth);
  std::string out =
      cat("\n", left_aligned(head, 36), right_aligned("MB", 2), right_aligned("share", 9), "\n");
  for (int i = 0; i < kTraffics; ++i) {
    const auto traffic = static_cast<Traffic>(i);
    const double bytes = p.step[traffic];
    if (bytes == 0) continue;
    out += cat("  ", left_aligned(std::string(traffic_name(traffic)), 22),
               right_aligned(fixed(bytes / 1e6, 2), 14),
               right_aligned(fixed(100 * bytes / total, 1), 7), " %\n");
  }
  return out + cat("  ", left_aligned("sum", 22), right_aligned(fixed(total / 1e6, 2), 14), "\n");
}

std::string rows_text(const Plan& p) {
  std::string out = cat("\n", left_aligned("projection", 28), right_aligned("MB/token", 10),
                        right_aligned("limit tok/s", 13));
  if (p.device.practical > 0)
    out += right_aligned(cat("at ", fixed(p.device.practical / 1e9, 0), " GB/s"), 14);
  out += right_aligned("projected", 11) + right_aligned("gain", 9) + "\n";
  double before = 0;
  for (const PlanRow& r : p.rows) {
    out += left_aligned(r.name, 28) + right_aligned(fixed(r.cycle.per_token() / 1e6, 2), 10) +
           right_aligned(fixed(r.limit_tok_s, 1), 13);
    if (p.device.practical > 0) out += right_aligned(fixed(r.practical_tok_s, 1), 14);
    out += right_aligned(fixed(r.projected_tok_s, 1), 11);
    out += right_aligned(
        before > 0 ? cat(fixed(100 * (r.projected_tok_s / before - 1), 1), " %") : "", 9);
    before = r.projected_tok_s;
    out += "\n";
  }
  out += cat("projected = ", fixed(100 * p.device.reached, 0), " % of the limit (",
             fixed(100 * p.device.reached_plain, 0), " % with plain experts): ", p.device.source,
             "\n");
  const CycleBytes& last = p.rows.back().cycle;
  if (last.drafts > 0) {
    out += cat("MTP: ", last.drafts, " drafts, accept length ", fixed(last.accept_length, 2),
               "; a cycle reads ", fixed(last.verify / 1e6, 1), " MB to verify (",
               fixed(last.distinct, 1), " distinct experts a layer) and ",
               fixed(last.draft / 1e6, 1), " MB to draft\n");
  }
  return out;
}

std::string rest_text(const Plan& p) {
  std::string out = "\n";
  out += p.prefill_limit_tok_s > 0
             ? cat("prefill   limit ", fixed(p.prefill_limit_tok_s, 0), " tok/s in chunks of ",
                   p.prefill_chunk, ", projected ", fixed(p.prefill_projected_tok_s, 0), " (",
                   fixed(100 * p.device.reached_prefill, 0), " %)\n")
             : "prefill   not projected: the device's compute is unknown\n";
  out += p.load_seconds > 0
             ? cat("load      ", fixed(p.load_seconds, 1), " s for ", show_bytes(p.weight_bytes),
                   " at ", fixed(p.device.disk / 1e9, 1), " GB/s\n")
             : cat("load      ", show_bytes(p.weight_bytes), "; the disk's speed is unknown\n");
  out += cat("memory    weights ", show_bytes(p.weight_bytes), " + latents ",
             show_bytes(p.cache_bytes), " for ", p.request.context, " tokens + state ",
             show_bytes(p.state_bytes));
  if (p.fits)
    out += cat(" of ", show_bytes(p.device.memory), *p.fits ? ": fits" : ": does not fit");
  out += "\n";
  if (p.published.empty()) return out;
  out += cat("\n", left_aligned("published on this device", 40), "  tok/s   of the limit\n");
  for (const PublishedRow& r : p.published) {
    const std::string low = fixed(r.percent_low, 0), high = fixed(r.percent_high, 0);
    out += cat(left_aligned(r.name, 40), right_aligned(fixed(r.tok_s, 2), 7), "   ", low,
               low == high ? "" : " to " + high, " %\n");
  }
  return out;
}

std::string plan_text(const Plan& p, const std::string& model) {
  return cat("model     ", model, "\ndevice    ", p.device.name, ", ",
             fixed(p.device.bandwidth / 1e9, 1), " GB/s\n") +
         components_text(p) + rows_text(p) + rest_text(p);
}

}  // namespace

int verb_plan(const Options& options) {
  // A device that cannot be is refused before any work.
  const bool here = options.plan.device.empty();
  Device device;
  if (!here) device = find_device(options.plan.device);
  const OpenedModel model = open_model(options.model, Contents::kSizes);
  const TensorSet tensors = bind_tensors(model.config, *model.source);
  const PlanRequest request = request_of(options, model.config, tensors.has_mtp);
  if (here) device = this_device(options.model.threads);
  const Plan plan = make_plan(model.config, tensors, device, request);
  out(options.json ? plan_json(plan, model.name) : plan_text(plan, model.name));
  return 0;
}

}  // namespace spk::cli
