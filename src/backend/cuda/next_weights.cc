#include "backend/cuda/next_weights.h"

#include "base/types.h"

#include <algorithm>

namespace spk::cuda {

gpu::NextWeights next_weights(std::span<const Weight* const> weights, int64_t budget) {
  constexpr int64_t kUnit = 16;  // memory is taken in larger pieces: rounding up stays inside
  gpu::NextWeights next{};
  budget = budget / kUnit * kUnit;
  for (const Weight* const w : weights) {
    for (const Buffer* part : {&w->data, &w->scales}) {
      const int64_t bytes = std::min(round_up(static_cast<int64_t>(part->bytes), kUnit), budget);
      if (bytes <= 0 || next.count == gpu::kMaxStretches) continue;
      next.stretch[next.count++] = {static_cast<const unsigned char*>(part->handle), bytes};
      budget -= bytes;
    }
  }
  return next;
}

}  // namespace spk::cuda
