// `doctor`: what this machine is, what will be used and why, which switches are in effect, and
// whether the numbers are right: the first thing to run, and the first thing to send, when
// something is off.
#include "backend/device_tools.h"
#include "base/error.h"
#include "base/log.h"
#include "cli/inspect.h"
#include "cli/machine.h"
#include "cli/output.h"
#include "cli/prompt.h"
#include "cli/selftest.h"
#include "cli/source.h"
#include "cli/values.h"
#include "cli/verbs.h"
#include "cli/version.h"

#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace spk::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Doctor {
  Machine machine;
  std::string model;
  std::vector<std::string> notes;
  std::string backend;  // description
  std::string why;
  double bandwidth = 0;  // bytes/s
  int64_t weight_bytes = 0;
  std::vector<std::pair<std::string, std::string>> switches;
  TemplateReport chat;
  SelfTest test;
  std::optional<WarmReport> warm;
};

// Compiles what the model needs: names and shapes are enough, no weights.
WarmReport warm(const ModelOptions& options, const std::string& arch) {
  const OpenedModel model = open_model(options, Contents::kSizes);
  const TensorSet tensors = bind_tensors(model.config, *model.source);
  std::vector<WeightUse> weights;
  const EngineOptions wanted = engine_options(options);
  const HeadFormat head = wanted.head;
  for (const BoundTensor& bound : tensors.tensors) {
    const HostTensor& t = bound.tensor;
    weights.push_back({t.name, t.format, t.rows, t.cols, wanted.device.moe == MoeKernel::kPacked});
    if (bound.component != Component::kHead) continue;
    if (head == HeadFormat::kFp8) weights.back().format = Format::kFp8Row;
    if (head == HeadFormat::kMxfp4) weights.back().format = Format::kMxfp4;
    if (head == HeadFormat::kBf16) weights.back().format = Format::kBf16;
    if (head == HeadFormat::kFp32) weights.back().format = Format::kF32;
  }
  return warm_kernels(arch, model.config.shape, weights);
}

std::string warm_text(const WarmReport& w) {
  std::string out = cat("kernels   ", w.kernels.size(), " for ", w.arch, " by ", w.compiler, " in ",
                        show_fixed(w.seconds, 2), " s, kept in ", w.folder, "\n");
  for (const std::string& warning : w.warnings) out += cat("          ", warning, "\n");
  for (const KernelReport& k : w.kernels) {
    out += cat("          ", k.name, ": ", k.cached ? "was there, " : "", show_fixed(k.seconds, 2),
               " s, ", k.registers, " registers, ", k.shared_bytes, " B shared, ", k.stack_bytes,
               " B local, ", k.spill_bytes, " B spilled\n");
  }
  return out;
}

// Variables that change what we do. Values are shown: none of them is a secret.
std::vector<std::pair<std::string, std::string>> switches_in_effect() {
  std::vector<std::pair<std::string, std::string>> found;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view pair(*entry);
    const size_t equals = std::min(pair.find('='), pair.size());
    const std::string_view name = pair.substr(0, equals);
    if (name.rfind("SPARKLING_", 0) != 0 && name != "NO_COLOR") continue;
    found.emplace_back(name, pair.substr(std::min(equals + 1, pair.size())));
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string reason(const ModelOptions& options) {
  if (options.backend != "auto") return "asked for by --backend";
  return "auto: the CPU; --backend cuda uses a GPU";
}

std::string join(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

std::string indented(const std::string& lines) {
  std::string out;
  for (const char c : lines) {
    out += c;
    if (c == '\n') out += "          ";
  }
  return out;
}

std::string report_text(const Doctor& d) {
  const Version v = version();
  std::string out =
      cat("program   sparkling ", v.number, " (", v.commit, "), ", v.build, ", ", v.compiler, "\n");
  out += cat("machine   ", d.machine.text(), "\n");
  out += cat("          has ", join(d.machine.instruction_sets), "; ",
             show_bytes(static_cast<double>(d.machine.memory_available)), " available\n");
  out += cat("model     ", d.model, ", ", show_bytes(static_cast<double>(d.weight_bytes)),
             " of weights\n");
  for (const std::string& note : d.notes) out += cat("          ", note, "\n");
  out += cat("uses      ", d.backend, "\n          ", d.why, "\n");
  out += cat("bandwidth ", show_fixed(d.bandwidth / 1e9, 1), " GB/s read by these threads");
  if (d.test.token_bytes > 0 && d.bandwidth > 0) {
    const auto token_bytes = static_cast<double>(d.test.token_bytes);
    out += cat(": at most ", show_fixed(d.bandwidth / token_bytes, 1), " tok/s at ",
               show_fixed(token_bytes / 1e6, 2), " MB/token");
  }
  out += "\nswitches  ";
  if (d.switches.empty()) out += "none in the environment";
  for (size_t i = 0; i < d.switches.size(); ++i) {
    out += cat(i > 0 ? "\n          " : "", d.switches[i].first, "=", d.switches[i].second);
  }
  out += cat("\ntemplate  ", d.chat.text, "\n");
  for (const auto& [name, tokens] : d.chat.samples)
    out += cat("          ", name, ": ", tokens, " tokens\n");
  if (d.warm) out += warm_text(*d.warm);
  out += cat("self test ", d.test.passed ? "passed" : "FAILED", ": ", d.test.text, "\n");
  if (d.test.route_flips > 0) {
    out += cat("          ", d.test.route_flips, " expert choices differ when not replayed\n");
  }
  out += cat("plan      ", indented(d.test.plan), "\n");
  if (!d.test.proofs.empty()) out += cat("proofs    ", indented(proof_text(d.test.proofs)), "\n");
  return out;
}

std::string report_json(const Doctor& d) {
  const Version v = version();
  Json root;
  root["version"] = v.number;
  root["commit"] = v.commit;
  root["build"] = cat(v.build, ", ", v.compiler);
  root["machine"] = {{"processor", d.machine.processor},
                     {"architecture", d.machine.architecture},
                     {"system", d.machine.system},
                     {"instruction_sets", d.machine.instruction_sets},
                     {"physical_cores", d.machine.physical_cores},
                     {"logical_cores", d.machine.logical_cores},
                     {"memory_bytes", d.machine.memory_total},
                     {"available_bytes", d.machine.memory_available},
                     {"read_bandwidth_gb_s", d.bandwidth / 1e9}};
  root["model"] = {{"name", d.model},
                   {"weight_bytes", d.weight_bytes},
                   {"bytes_per_token", d.test.token_bytes},
                   {"notes", d.notes}};
  root["backend"] = {{"description", d.backend}, {"why", d.why}};
  Json switches = Json::object();
  for (const auto& [name, value] : d.switches) switches[name] = value;
  root["switches"] = switches;
  Json samples = Json::object();
  for (const auto& [name, tokens] : d.chat.samples) samples[name] = tokens;
  root["template"] = {{"match", d.chat.known}, {"text", d.chat.text}, {"sample_tokens", samples}};
  root["self_test"] = {{"passed", d.test.passed},
                       {"relative_error", d.test.error},
                       {"route_flips", d.test.route_flips},
                       {"text", d.test.text}};
  root["plan"] = d.test.plan;
  Json proofs = Json::array();
  for (const Proof& p : d.test.proofs) {
    proofs.push_back({{"name", p.name},
                      {"detail", p.detail},
                      {"error", p.error},
                      {"bound", p.bound},
                      {"passed", p.passed()}});
  }
  root["proofs"] = proofs;
  if (d.warm) {
    Json kernels = Json::array();
    for (const KernelReport& k : d.warm->kernels)
      kernels.push_back({{"name", k.name},
                         {"seconds", k.seconds},
                         {"cached", k.cached},
                         {"registers", k.registers},
                         {"shared_bytes", k.shared_bytes},
                         {"stack_bytes", k.stack_bytes},
                         {"spill_bytes", k.spill_bytes}});
    root["kernels"] = {{"arch", d.warm->arch},
                       {"compiler", d.warm->compiler},
                       {"folder", d.warm->folder},
                       {"seconds", d.warm->seconds},
                       {"kernels", kernels}};
  }
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

int verb_doctor(const Options& options) {
  Doctor d;
  if (options.model.backend == "cuda") {
    const std::string arch = device_architecture(0);
    if (options.warm) d.warm = warm(options.model, arch);
  } else if (options.warm) {
    log_info("nothing to warm: the CPU back end compiles nothing");
  }
  d.machine = this_machine();
  d.switches = switches_in_effect();
  {
    OpenedModel model = open_model(options.model);
    d.chat = template_report(model);
    const Inspection inspection = inspect_model(model);
    d.model = model.name;
    d.notes = inspection.notes;
    d.weight_bytes = inspection.sizes.weight_bytes;
  }
  d.why = reason(options.model);
  d.test = self_test(options.model, d.weight_bytes);
  d.backend = d.test.backend;
  d.bandwidth = d.test.read_bandwidth;
  out(options.json ? report_json(d) : report_text(d));
  if (!d.test.passed) {
    out_flush();
    fail_resource("the self test failed: ", d.test.text);
  }
  return 0;
}

}  // namespace spk::cli
