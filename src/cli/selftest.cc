#include "cli/selftest.h"

#include "base/error.h"
#include "cli/machine.h"
#include "cli/values.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace spk::cli {
namespace {

constexpr double kTolerance = 1e-4;  // fp32 throughout against double, routes replayed
// 20 tokens cross the sub-block of the chunked recurrence (16); a large model gets two, plain loops
// in double are slow.
constexpr int64_t kTokens = 20;
constexpr int64_t kFewTokens = 2;
constexpr int64_t kLargeBytes = int64_t{2} << 30;

struct Side {
  std::vector<std::vector<float>> rows;
  std::vector<int32_t> routes;
};

std::unique_ptr<Engine> start(const ModelOptions& options, const char* backend, int64_t tokens) {
  OpenedModel model = open_model(options);
  ModelOptions exact = options;
  exact.backend = backend;
  exact.precision = PrecisionMode::kExact;
  exact.moe = exact.lm_head = exact.require = "";
  EngineOptions engine = engine_options(exact);
  engine.context = tokens;
  return std::make_unique<Engine>(std::move(model.source), model.config, std::nullopt, engine);
}

Side run(Engine& engine, std::span<const int32_t> tokens, std::span<const int32_t> routes_in) {
  Side side;
  Engine::LogitsRequest request;
  request.tokens = tokens;
  request.routes_in = routes_in;
  if (routes_in.empty()) request.routes_out = &side.routes;
  engine.logits(request, [&](int64_t, std::span<const float> row) {
    side.rows.emplace_back(row.begin(), row.end());
  });
  return side;
}

double relative_error(const std::vector<float>& truth, const std::vector<float>& other) {
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    const double d = static_cast<double>(truth[i]) - static_cast<double>(other[i]);
    difference += d * d;
    size += static_cast<double>(truth[i]) * static_cast<double>(truth[i]);
  }
  return std::sqrt(difference / std::max(size, 1e-60));
}

// Tokens whose set of experts differs in some layer.
int64_t count_flips(const std::vector<int32_t>& a, const std::vector<int32_t>& b, int64_t top_k) {
  int64_t flips = 0;
  const auto k = static_cast<size_t>(top_k);
  for (size_t i = 0; i + k <= std::min(a.size(), b.size()); i += k) {
    std::vector<int32_t> x(a.begin() + static_cast<int64_t>(i),
                           a.begin() + static_cast<int64_t>(i + k));
    std::vector<int32_t> y(b.begin() + static_cast<int64_t>(i),
                           b.begin() + static_cast<int64_t>(i + k));
    std::sort(x.begin(), x.end());
    std::sort(y.begin(), y.end());
    if (x != y) ++flips;
  }
  return flips;
}

}  // namespace

SelfTest self_test(const ModelOptions& options, int64_t weight_bytes) {
  SelfTest result;
  const int64_t n = weight_bytes > kLargeBytes ? kFewTokens : kTokens;
  std::vector<int32_t> tokens;
  Side truth;
  {  // one after the other: synthetic weights need not fit twice
    const std::unique_ptr<Engine> reference = start(options, "reference", n);
    for (int64_t i = 0; i < n; ++i) {
      tokens.push_back(
          static_cast<int32_t>((i * 2654435761 + 97) % reference->config().shape.vocab));
    }
    truth = run(*reference, tokens, {});
  }
  std::unique_ptr<Engine> tested = start(options, options.backend.c_str(), n);
  result.backend = tested->backend().description();
  result.read_bandwidth = tested->backend().read_bandwidth();
  const Side replayed = run(*tested, tokens, truth.routes);
  const Side free = run(*tested, tokens, {});
  for (size_t i = 0; i < truth.rows.size(); ++i) {
    const double error = relative_error(truth.rows[i], replayed.rows[i]);
    if (std::isnan(error) || error > result.error) result.error = error;  // a NaN stays
  }
  const int64_t top_k = tested->config().shape.top_k;
  result.route_flips = count_flips(truth.routes, free.routes, top_k);
  result.passed = result.error <= kTolerance;
  result.text = cat(n, " tokens, ", tested->backend().name(), " against reference: relative error ",
                    result.error, ", allowed ", kTolerance);
  tested.reset();
  OpenedModel model = open_model(options);
  EngineOptions asked = engine_options(options);
  asked.context = kTokens;
  const std::unique_ptr<Engine> used = start_engine(model, options, asked);
  result.plan = used->plan_text();
  // A recurrent state is read and written.
  result.token_bytes = used->sizes().pass_weight_bytes() + 2 * used->sizes().recurrent_bytes;
  result.proofs = used->proofs();
  return result;
}

}  // namespace spk::cli
