#include "engine/memory_plan.h"

#include "base/error.h"
#include "base/threads.h"
#include "engine/cache.h"
#include "engine/session.h"

#include <algorithm>
#include <cstdio>

namespace spk {

std::string mib(int64_t bytes) {
  char text[48];
  std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

// More rows read and unpack the weights less often and bring each expert more rows: 5 % of
// ling-nano's prompts; 512 gain nothing over 384. Those take 14 MiB of the 64 MiB that a model may
// use beside 15 % of its weights, 8 MiB of which its tiles take (backend.h); those of flash would
// take 120 MiB.
int64_t default_chunk(const ModelConfig& config, bool mtp, const EngineOptions& options,
                      size_t real_bytes) {
  constexpr int64_t kRows = 256, kMany = 384, kSmall = int64_t{16} << 20;
  const int64_t bytes = scratch_bytes(
      config.shape, mtp, kMany, head_rows_for(config.shape.vocab, kMany, real_bytes), real_bytes);
  return bytes <= kSmall && options.device.memory == 0 ? kMany : kRows;
}

// Decides sizes before anything is allocated: weights are given, the scratch follows from the
// chunk, the caches from the context, which is cut to what fits when the caller left it open.
MemoryPlan plan_memory(const ModelConfig& config, const TensorSet& tensors,
                       const EngineOptions& options, size_t real_bytes) {
  MemoryPlan plan;
  plan.weights = model_sizes(config, tensors).weight_bytes;
  plan.scratch =
      scratch_bytes(config.shape, tensors.has_mtp, options.chunk,
                    head_rows_for(config.shape.vocab, options.chunk, real_bytes), real_bytes);
  // FP8 block scales as floats are 1/4096 of the codes, expert pointers less; a worker's blocks fit
  // its L2.
  const int threads = options.device.threads > 0 ? options.device.threads : physical_cores();
  plan.working = plan.weights / 64 + (4 + 2 * int64_t{threads}) * (1 << 20);
  plan.limit = static_cast<int64_t>(options.device.memory);
  plan.context = options.context ? options.context : config.context;
  const auto caches = [&](int64_t context) {
    return Cache::bytes(config, tensors.has_mtp, context, options.choices, real_bytes);
  };
  plan.caches = caches(plan.context);
  if (plan.limit == 0 || plan.total() <= plan.limit) return plan;
  const int64_t room = plan.limit - (plan.total() - plan.caches);
  const int64_t fixed = caches(0), per_token = caches(4096) - fixed;  // rounding is per piece
  const int64_t fits =
      room > fixed ? std::min((room - fixed) * 4096 / std::max<int64_t>(per_token, 1), plan.context)
                   : 0;
  constexpr int64_t kUseful = 64;            // below one prefill chunk a session is of no use
  if (!options.context && fits < kUseful) {  // what would do, not what was not asked for
    plan.context = std::min(kUseful, plan.context);
    plan.caches = caches(plan.context);
  }
  if (options.context || fits < kUseful)
    fail_resource("memory limit: expected at most ", plan.limit, " bytes, found a need of ",
                  plan.total(), " (", plan.text(), ")");
  plan.context = fits;
  plan.caches = caches(fits);
  return plan;
}

std::string MemoryPlan::text() const {
  std::string out = cat("weights ", mib(weights), " + caches ", mib(caches), " for ", context,
                        " tokens + activations ", mib(scratch), " + working memory ", mib(working));
  if (limit) out += cat(", limit ", mib(limit));
  return out;
}

}  // namespace spk
