#include "engine/speculate.h"

#include <algorithm>

namespace spk {
namespace {

constexpr double kForget = 0.05;      // weight of a new observation: about the last 20 cycles count
constexpr double kPriorAccept = 0.6;  // before anything is known: worth a try at small depth
constexpr double kGainNeeded =
    1.02;  // a depth must beat plain decoding by more than the noise of the clock
// A probe costs at most about one plain step more than it brings, so one in 64 stays below 2 %.
constexpr int64_t kProbeEvery = 64;

void blend(double& running, double seen) {
  running = running == 0 ? seen : running + kForget * (seen - running);
}

}  // namespace

void DraftCounters::add(const CycleResult& result) {
  ++cycles;
  committed += static_cast<uint64_t>(result.count);
  if (result.drafted > 0) {
    ++drafting_cycles;
    committed_drafting += static_cast<uint64_t>(result.count);
  }
  for (int j = 0; j < result.drafted; ++j) {
    ++drafted[j];
    if (j + 1 < result.count) ++accepted[j];
  }
  draft_seconds += result.extend_draft_seconds;
  verify_seconds += result.verify_seconds;
  accept_seconds += result.accept_seconds;
}

double DraftCounters::accept_length() const {
  return drafting_cycles
             ? static_cast<double>(committed_drafting) / static_cast<double>(drafting_cycles)
             : 0;
}

DepthPolicy::DepthPolicy(int depth, int most) : fixed_(depth), most_(most) {
  accept_.fill(kPriorAccept);
}

double DepthPolicy::tokens_at(int depth) const {
  double tokens = 1, reach = 1;
  for (int j = 0; j < depth; ++j) tokens += reach *= accept_[j];
  return tokens;
}

double DepthPolicy::seconds_at(int depth) const {
  if (seconds_[depth] > 0) return seconds_[depth];
  // Unmeasured: a quarter of a plain step for each draft more, from the nearest depth below that is
  // known.
  for (int d = depth - 1; d >= 0; --d)
    if (seconds_[d] > 0) return seconds_[d] * (1 + 0.25 * (depth - d));
  return 1 + 0.25 * depth;
}

int DepthPolicy::next(int room) {
  const int limit = gave_up_ ? 0 : std::min(most_, room);
  if (fixed_ != kAutoDepth) return std::min(fixed_, limit);
  if (limit <= 0) return 0;
  if (seconds_[0] == 0) return 0;  // the yardstick first
  int best = 0;
  double rate = kGainNeeded * tokens_at(0) / seconds_at(0);
  for (int depth = 1; depth <= limit; ++depth) {
    const double candidate = tokens_at(depth) / seconds_at(depth);
    if (candidate > rate) {
      rate = candidate;
      best = depth;
    }
  }
  if (best == 0 && ++plain_run_ >= kProbeEvery) {
    plain_run_ = 0;
    best = 1;
  }
  return best;
}

void DepthPolicy::observe(const CycleResult& result) {
  if (result.drafted > 0) {
    watched_tokens_ += result.count;
    if (++watched_passes_ == kWatched) {
      gave_up_ = static_cast<double>(watched_tokens_) < kLeastAccepted * kWatched;
      watched_passes_ = watched_tokens_ = 0;
    }
  }
  const double total = result.extend_draft_seconds + result.verify_seconds + result.accept_seconds;
  blend(seconds_[result.drafted], total);
  for (int j = 0; j < result.drafted && j < result.count;
       ++j)  // beyond a rejected draft nothing is learnt
    accept_[j] += kForget * ((j + 1 < result.count ? 1.0 : 0.0) - accept_[j]);
}

}  // namespace spk
