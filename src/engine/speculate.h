// How many tokens to draft in the next cycle, and the account of how drafts fare.
//
// The policy knows two things: how often a draft at position j was accepted when it was reached (in
// this answer, a running estimate that forgets), and what a cycle of each depth costs on this
// machine (measured, over all answers). It picks the depth with the most tokens per second; plain
// decoding is one of the candidates, and rare probes keep the estimates alive while it is the best.
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
  double draft_sample_seconds = 0;  // part of draft_seconds
  // Of the cycles that drafted.
  double drafting_verify_seconds = 0;
  uint64_t drafting_verify_rows = 0;
  uint64_t drafting_verify_weight_bytes = 0;

  void add(const CycleResult& result);
  void add(const DraftCounters& other);
  // Tokens per cycle, over the cycles that drafted; 0 when none did.
  double accept_length() const;
};

class DepthPolicy {
 public:
  // depth 0..kMaxDrafts is fixed; kAutoDepth adapts, up to `most`.
  DepthPolicy(int depth, int most);

  // An answer starts with what is usual, but not below the prior: it may be of another kind than
  // those before. What cycles cost stays known.
  void begin_answer();
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
  struct Acceptance {  // of position j, given that it was reached
    double rate = 0;
    int64_t seen = 0;  // in this answer
    double usual = 0;  // over all answers so far
    int64_t observed = 0;
  };
  struct Cost {  // of a cycle; seen 0: not measured
    double seconds = 0;
    int64_t seen = 0;
    int64_t last = 0;  // cycle
  };
  double rate_of(int position) const;
  double tokens_at(int depth) const;   // expected per cycle
  double seconds_at(int depth) const;  // measured, or a guess from the nearest measured depth
  bool known(int depth) const;

  int fixed_;
  int most_;
  std::array<Acceptance, kMaxDrafts> accept_{};
  std::array<Cost, kMaxDrafts + 1> costs_{};
  int64_t cycle_ = 0;
  int64_t plain_run_ = 0, probe_after_ = 0;  // plain cycles since the last probe, until the next
  int64_t watched_passes_ = 0, watched_tokens_ = 0;
  bool gave_up_ = false;
};

}  // namespace spk
