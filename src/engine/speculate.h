// How many tokens to draft in the next cycle, and the account of how drafts fare.
//
// The policy knows two things: how often a draft at position j was accepted when it was reached (a
// running estimate that forgets), and what a cycle of each depth costs on this machine (measured).
// It picks the depth with the most tokens per second; plain decoding is one of the candidates, and
// a rare probe keeps the estimates alive while it is the best.
#pragma once

#include "model/cycle.h"

#include <array>
#include <cstdint>
#include <string>

namespace spk {

inline constexpr int kAutoDepth = -1;

// Counts since the start of an answer. Position j is the j-th draft of a cycle.
struct DraftCounters {
  uint64_t cycles = 0;
  uint64_t drafting_cycles = 0;
  uint64_t committed = 0;  // tokens, by all cycles
  uint64_t committed_drafting = 0;
  std::array<uint64_t, kMaxDrafts> drafted{};
  std::array<uint64_t, kMaxDrafts> accepted{};
  double draft_seconds = 0, verify_seconds = 0, accept_seconds = 0;

  void add(const CycleResult& result);
  // Tokens per cycle, over the cycles that drafted; 0 when none did.
  double accept_length() const;
};

class DepthPolicy {
 public:
  // depth 0..kMaxDrafts is fixed; kAutoDepth adapts, up to `most`.
  DepthPolicy(int depth, int most);

  // Depth for the next cycle, at most `room`.
  int next(int room);
  void observe(const CycleResult& result);
  // Drafts are never right: the last kWatched verify passes committed fewer than kLeastAccepted
  // tokens each. Something is wrong with the draft layer, or the text is noise; no drafts from then
  // on.
  bool gave_up() const { return gave_up_; }

  static constexpr int64_t kWatched = 256;
  static constexpr double kLeastAccepted = 1.05;

 private:
  double tokens_at(int depth) const;   // expected per cycle
  double seconds_at(int depth) const;  // measured, or a guess from the nearest measured depth

  int fixed_;
  int most_;
  std::array<double, kMaxDrafts> accept_;  // running rate of position j, given that it was reached
  std::array<double, kMaxDrafts + 1> seconds_{};  // running cost of a cycle; 0: not measured yet
  int64_t plain_run_ = 0;                         // plain cycles since the last probe
  int64_t watched_passes_ = 0, watched_tokens_ = 0;
  bool gave_up_ = false;
};

}  // namespace spk
