#include "engine/speculate.h"

#include <algorithm>

namespace spk {
namespace {

constexpr double kForget = 0.05;       // least weight of a new observation: the last 20 or so count
constexpr double kPriorAccept = 0.6;   // before anything is known: worth a try at small depth
constexpr int64_t kPriorWeight = 2;    // observations that the prior stands for
constexpr double kUsualWeight = 0.01;  // least weight of an observation in what is usual
constexpr int64_t kKnown = 8;          // observations after which a position's usual rate counts
// The first cycles of all draft so much, whatever it seems to cost: without them a first answer
// would be over before drafts had a chance.
constexpr int64_t kTrials = 3;
constexpr int kTrialDepth = 3;
constexpr double kGuessedCost = 0.25;  // of a draft more, in plain steps, before it is measured
constexpr double kGainNeeded =
    1.02;  // a depth must beat plain decoding by more than the noise of the clock
// While plain decoding is the best, the first draft is tried again after so many cycles, then after
// twice as many, and so on: a probe costs about two plain steps on a small model, since the draft
// layer has to catch up.
constexpr int64_t kFirstProbe = 64, kLastProbe = 512;
// The context grows, the machine gets other work: a cost that nobody has seen for so long is none.
constexpr int64_t kStaleAfter = 2048;
// While drafting is the best, one draft more is tried when that was not seen for so many cycles:
// the first cycles run on cold memory and make it look dearer than it is, for good if nobody looked
// again. Beside the best depth one more costs a few percent of one cycle in so many.
constexpr int64_t kLookAgainAfter = 16;
// A cost that was not seen for so long counts as one observation, so that the next one tells.
constexpr int64_t kOldAfter = 64;
// One interrupted cycle must not decide: an observation counts for at most so many times what was
// expected.
constexpr double kOutlier = 2;

double weight_of_new(int64_t seen) {
  return std::max(kForget, 1.0 / static_cast<double>(seen + 1));
}

}  // namespace

void DraftCounters::add(const CycleResult& result) {
  ++cycles;
  committed += static_cast<uint64_t>(result.count);
  if (result.drafted > 0) {
    ++drafting_cycles;
    committed_drafting += static_cast<uint64_t>(result.count);
    drafting_verify_seconds += result.verify_seconds;
    drafting_verify_rows += static_cast<uint64_t>(result.drafted + 1);
    drafting_verify_weight_bytes += result.verify_weight_bytes;
  }
  for (int j = 0; j < result.drafted; ++j) {
    ++drafted[j];
    if (j + 1 < result.count) ++accepted[j];
  }
  draft_seconds += result.extend_draft_seconds;
  verify_seconds += result.verify_seconds;
  accept_seconds += result.accept_seconds;
  draft_sample_seconds += result.draft_sample_seconds;
}

void DraftCounters::add(const DraftCounters& other) {
  cycles += other.cycles;
  drafting_cycles += other.drafting_cycles;
  committed += other.committed;
  committed_drafting += other.committed_drafting;
  for (size_t j = 0; j < drafted.size(); ++j) {
    drafted[j] += other.drafted[j];
    accepted[j] += other.accepted[j];
  }
  draft_seconds += other.draft_seconds;
  verify_seconds += other.verify_seconds;
  accept_seconds += other.accept_seconds;
  draft_sample_seconds += other.draft_sample_seconds;
  drafting_verify_seconds += other.drafting_verify_seconds;
  drafting_verify_rows += other.drafting_verify_rows;
  drafting_verify_weight_bytes += other.drafting_verify_weight_bytes;
}

double DraftCounters::accept_length() const {
  return drafting_cycles
             ? static_cast<double>(committed_drafting) / static_cast<double>(drafting_cycles)
             : 0;
}

DepthPolicy::DepthPolicy(int depth, int most) : fixed_(depth), most_(most) { begin_answer(); }

void DepthPolicy::begin_answer() {
  for (Acceptance& a : accept_) {
    a.rate = std::max(kPriorAccept, a.usual);  // usual is 0 when nothing was observed
    a.seen = 0;
  }
  plain_run_ = watched_passes_ = watched_tokens_ = 0;
  probe_after_ = kFirstProbe;
  gave_up_ = false;
}

bool DepthPolicy::known(int depth) const {
  return costs_[depth].seen > 0 && cycle_ - costs_[depth].last <= kStaleAfter;
}

// A position that this answer has not reached is expected to fare like the one before it, or as
// usual where that is known and worse.
double DepthPolicy::rate_of(int position) const {
  const Acceptance& a = accept_[position];
  if (position == 0 || a.seen > 0) return a.rate;
  const double before = rate_of(position - 1);
  return a.observed >= kKnown ? std::min(before, a.rate) : before;
}

double DepthPolicy::tokens_at(int depth) const {
  double tokens = 1, reach = 1;
  for (int j = 0; j < depth; ++j) tokens += reach *= rate_of(j);
  return tokens;
}

double DepthPolicy::seconds_at(int depth) const {
  const auto guess = [](int d) { return 1 + kGuessedCost * d; };
  for (int distance = 0; distance <= kMaxDrafts; ++distance)
    for (int d : {depth - distance, depth + distance})
      if (d >= 0 && d <= kMaxDrafts && known(d)) return costs_[d].seconds * guess(depth) / guess(d);
  return guess(depth);
}

int DepthPolicy::next(int room) {
  const int limit = gave_up_ ? 0 : std::min(most_, room);
  if (fixed_ != kAutoDepth) return std::min(fixed_, limit);
  if (limit <= 0) return 0;
  if (!known(0)) return 0;  // the yardstick first
  if (accept_[0].observed < kTrials) return std::min(kTrialDepth, limit);
  int best = 0;
  double rate = kGainNeeded * tokens_at(0) / seconds_at(0);
  for (int depth = 1; depth <= limit; ++depth) {
    const double candidate = tokens_at(depth) / seconds_at(depth);
    if (candidate > rate) {
      rate = candidate;
      best = depth;
    }
  }
  if (best == 0 && ++plain_run_ >= probe_after_) {
    plain_run_ = 0;
    probe_after_ = std::min(2 * probe_after_, kLastProbe);
    return 1;
  }
  if (best > 0 && best < limit && cycle_ - costs_[best + 1].last >= kLookAgainAfter) ++best;
  return best;
}

void DepthPolicy::observe(const CycleResult& result) {
  if (result.drafted > 0) {
    watched_tokens_ += result.count;
    if (++watched_passes_ == kWatched) {
      gave_up_ = static_cast<double>(watched_tokens_) < kLeastAccepted * kWatched;
      watched_passes_ = watched_tokens_ = 0;
    }
    // The text has become easier: try again at once.
    if (result.count > 1) plain_run_ = probe_after_ = kFirstProbe;
  }
  ++cycle_;
  double total = result.extend_draft_seconds + result.verify_seconds + result.accept_seconds;
  Cost& cost = costs_[result.drafted];
  bool any = false;
  for (int d = 0; d <= kMaxDrafts; ++d) any |= known(d);
  if (any) total = std::min(total, kOutlier * seconds_at(result.drafted));
  if (!known(result.drafted)) cost = {};
  if (cycle_ - cost.last > kOldAfter) cost.seen = std::min<int64_t>(cost.seen, 1);
  cost.seconds += weight_of_new(cost.seen) * (total - cost.seconds);
  ++cost.seen;
  cost.last = cycle_;
  for (int j = 0; j < result.drafted && j < result.count;
       ++j) {  // beyond a rejected draft nothing is learnt
    Acceptance& a = accept_[j];
    const double right = j + 1 < result.count ? 1 : 0;
    a.rate = rate_of(j);
    a.rate += weight_of_new(kPriorWeight + a.seen) * (right - a.rate);
    ++a.seen;
    a.usual += std::max(kUsualWeight, 1.0 / static_cast<double>(++a.observed)) * (right - a.usual);
  }
}

}  // namespace spk
