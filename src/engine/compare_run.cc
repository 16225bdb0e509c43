#include "engine/compare_run.h"

#include "base/error.h"
#include "engine/memory_plan.h"
#include "engine/session.h"

#include <algorithm>

namespace spk {

void compare_backends(const TensorSource& source, const ModelConfig& config, const EngineOptions& a,
                      const EngineOptions& b, std::span<const int32_t> tokens,
                      std::function<bool(const VerbReport&)> report) {
  const std::unique_ptr<Backend> first = make_backend(a), second = make_backend(b);
  const std::unique_ptr<Backend> pair = make_compare_backend(*first, *second, std::move(report));
  pair->prepare(config.shape);
  const TensorSet set = bind_tensors(config, source);
  const Model model = load_model(config, set, *pair);
  const auto n = static_cast<int64_t>(tokens.size());
  const int64_t chunk =
      a.chunk > 0 ? a.chunk : default_chunk(config, set.has_mtp, a, pair->real_bytes());
  Session session(model, *pair, n, std::min(n, chunk), false);
  try {
    const int64_t alone = n - n / 4;  // from here on token by token
    for (int64_t at = 0; at < n;) {
      const int64_t count = at < alone ? std::min(alone - at, session.chunk()) : 1;
      const Advance step{tokens.subspan(static_cast<size_t>(at), static_cast<size_t>(count)),
                         count == 1 ? StepKind::kDecode : StepKind::kPrefill,
                         true,
                         {},
                         {}};
      session.advance(step);
      session.logits_of(session.hidden_rows(count - 1, 1));
      if (model.mtp) {
        session.advance_mtp(step, [&](int64_t, const Rows& rows) {
          session.logits_of(rows.slice_rows(rows.rows - 1, 1));
        });
      }
      session.carry();
      at += count;
    }
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kInterrupted) throw;
  }
}

}  // namespace spk
