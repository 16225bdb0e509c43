// `compare`: two back ends on the same inputs, verb by verb; the first difference beyond tolerance
// names the culprit.
#include "base/error.h"
#include "base/log.h"
#include "cli/output.h"
#include "cli/source.h"
#include "cli/values.h"
#include "cli/verbs.h"
#include "engine/compare_run.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace spk::cli {
namespace {

// With equal inputs a verb differs by its own rounding only: sums of at most some 10^4 products in
// fp32 stay below this.
constexpr double kTolerance = 1e-5;

// An expert with int8 activations differs by 1 to 2 %.
constexpr double kFastTolerance = 5e-2;

bool is_fast(std::string_view spec) {
  return spec.size() > 5 && spec.substr(spec.size() - 5) == ":fast";
}

EngineOptions side(const Options& options, const std::string& spec) {
  const size_t colon = std::min(spec.find(':'), spec.size());
  ModelOptions model = options.model;
  model.backend = spec.substr(0, colon);
  model.precision = is_fast(spec) ? PrecisionMode::kFast : PrecisionMode::kExact;
  if (!is_fast(spec) && model.moe == "packed") model.moe = "";  // it is the fast side's
  return engine_options(model);
}

// "layer.7.kda_mix" -> "kda_mix": errors are summed up by verb.
std::string verb_of(const std::string& where) {
  const size_t dot = where.rfind('.');
  return dot == std::string::npos ? where : where.substr(dot + 1);
}

std::string describe(const VerbReport& r) {
  std::string text = cat(r.where, " ", r.output, ": relative error ", r.error, " at row ", r.row);
  if (!r.finite) text += ", not finite";
  if (r.route_flips > 0) text += cat(", ", r.route_flips, " experts chosen differently");
  return text;
}

// Without --tokens: a fixed stream that crosses the sub-block of 16 and the chunk of 64.
std::vector<int32_t> default_tokens(int64_t vocab) {
  std::vector<int32_t> tokens;
  uint64_t x = 1;
  for (int i = 0; i < 83; ++i) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    tokens.push_back(static_cast<int32_t>((x >> 33) % static_cast<uint64_t>(vocab)));
  }
  return tokens;
}

}  // namespace

int verb_compare(const Options& options) {
  const OpenedModel model = open_model(options.model);
  const int64_t vocab = model.config.shape.vocab;
  std::vector<int32_t> tokens = parse_ids(options.tokens);
  if (tokens.empty()) tokens = default_tokens(vocab);
  check_ids(tokens, vocab);

  std::map<std::string, VerbReport> worst;  // by verb
  bool different = false;
  bool stopped = false;
  int64_t flips = 0;
  const std::string& stop = options.compare.stop_after;
  const double tolerance =
      is_fast(options.compare.a) || is_fast(options.compare.b) ? kFastTolerance : kTolerance;
  const auto report = [&](const VerbReport& r) {
    if (stopped && r.where != stop) return false;
    flips += r.route_flips;
    VerbReport& slot = worst[verb_of(r.where)];
    if (slot.where.empty() || r.error > slot.error || !r.finite) slot = r;
    if (!r.finite || !(r.error <= tolerance)) {
      different = true;
      out(cat("first difference beyond ", tolerance, "\n  ", describe(r), "\n"));
      return false;
    }
    if (!stop.empty() && r.where == stop) {
      stopped = true;
      out(cat(describe(r), "\n"));
    }
    return true;
  };
  compare_backends(*model.source, model.config, side(options, options.compare.a),
                   side(options, options.compare.b), tokens, report);
  if (!stop.empty() && !stopped && !different) {
    std::vector<std::string_view> names;
    names.reserve(worst.size());
    for (const auto& [verb, r] : worst) names.push_back(verb);
    fail_usage("--stop-after: expected layer.N.VERB with one of ", join_choices(names), ", found '",
               stop, "', which never ran");
  }
  out(cat("a = ", options.compare.a, ", b = ", options.compare.b, ", ", tokens.size(),
          " tokens of ", model.name, "\nworst relative error by verb\n"));
  for (const auto& [verb, r] : worst) {
    out(cat("  ", verb, std::string(std::max<size_t>(18, verb.size() + 1) - verb.size(), ' '),
            r.error, "  ", r.where, " ", r.output, " row ", r.row, "\n"));
  }
  if (flips > 0) out(cat(flips, " expert choices differ (scores closer than rounding)\n"));
  if (!different && !stopped) out("all equal\n");
  return different ? 1 : 0;
}

}  // namespace spk::cli
