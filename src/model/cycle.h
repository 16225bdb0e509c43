// The decode cycle, once: extend the draft layer's cache, draft, verify, accept.
//
//   extend   the MTP layer runs over the pairs (next token, hidden row) of all committed positions
//   it has not seen, from the
//            TARGET's hidden rows, replacing whatever the drafts left there; its last row predicts
//            draft 1
//   draft    the layer chains on its own output: token d_j and its own normed row give d_j+1
//   verify   one pass of the target over [last committed token, d_1 .. d_k]; recurrent states stay,
//   rows leave records accept   row j chooses the token of position p+1+j; while it equals d_j+1
//   the next row counts too
//
// Two rules of acceptance. Coupled (greedy or seeded): every row samples the target with the random
// numbers of that position, the draft uses the very same numbers, so the text is the same at any
// depth, drafts off included. Rejection (no seed): accept d with min(1, p/q), else draw from max(p
// - q, 0): the plain distribution, other random numbers.
#pragma once

#include "backend/backend.h"
#include "backend/sampler.h"
#include "model/model.h"

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace spk {

enum class AcceptRule : uint8_t { kCoupled, kRejection };

inline constexpr int kMaxDrafts = static_cast<int>(kMaxVerify) - 1;

struct CycleResult {
  int drafted = 0;
  int count = 0;                             // committed tokens: accepted drafts + 1
  std::array<int32_t, kMaxVerify> tokens{};  // the committed tokens; the last one has not been run
  double extend_draft_seconds = 0;
  double verify_seconds = 0;
  double accept_seconds = 0;
  double draft_sample_seconds = 0;   // part of extend_draft_seconds: choosing the drafts
  uint64_t verify_weight_bytes = 0;  // read by the verify pass and its head
};

// For weights that nobody trained, whose drafts and routes mean nothing: the work of a cycle is
// done as always, only these decisions are replaced by draws. The text means nothing either.
struct Simulation {
  double accept_length = 0;  // mean tokens of a verify pass; 0: drafts are judged by the target
  int64_t distinct_experts =
      0;  // that the rows of a verify pass choose in each layer; 0: by router
  uint64_t seed = 1;
};
// Chance of each draft, given that it was reached, so that `depth` of them yield `accept_length`
// tokens a pass: 1 + p + ... + p^depth = accept_length.
double chance_for(double accept_length, int depth);

// For tests: replaces draft j (0-based) of a cycle. Null in real use.
using DraftFault = int32_t (*)(void* context, int64_t position, int32_t draft);

class Cycle {
 public:
  // Everything is borrowed from the session. `rows` is the largest step that scratch allows;
  // without `drafts` only depth 0 is possible and the draft layer costs nothing.
  Cycle(const Model& model, Backend& backend, std::span<const LayerState> states,
        const LayerState& mtp_state, const Scratch& scratch, const Ints& step_tokens, int64_t rows,
        bool drafts);

  // The prompt is complete: scratch.hidden row 0 is the hidden row of position `position` - 1, not
  // yet paired.
  void start(int64_t position);

  // One cycle. `last` is the committed token for `position` (not yet run); depth 0 is plain
  // decoding.
  CycleResult run(int32_t last, int64_t position, int depth, AcceptRule rule, Sampler& sampler,
                  const SamplerParams& params);
  // After run: only the first `count` rows of the pass are kept (a stop rule cut the answer).
  // Default: all accepted.
  void keep(int64_t count);
  // Puts the accepted rows into the recurrent states and the draft layer's cache, so that a prefill
  // step may follow; leaves scratch.hidden row 0 = hidden row of the last token that was run.
  void settle();
  void reset();

  // Logits that chose result.tokens[row] of the last pass, for log-probabilities. Until the next
  // call of anything but this.
  std::span<const float> row_logits(int row);
  // Logits over the whole vocabulary that a draft is sampled from, given one row of the draft
  // layer's output; minus infinity for tokens that the draft head does not know. Until the next
  // call.
  std::span<const float> draft_logits(const Rows& hidden);
  // Every step looks at it (Step::abort); null: none does.
  void set_abort(const std::atomic<bool>* abort) { abort_ = abort; }
  // Before the first step. Error(kInput) for experts that the model cannot choose.
  void simulate(const Simulation& simulation);
  void inject(DraftFault fault, void* context) {
    fault_ = fault;
    fault_context_ = context;
  }

 private:
  void absorb(int32_t open_token);
  void extend(int64_t rows, bool run_last);
  void draft(int64_t position, int depth, AcceptRule rule, Sampler& sampler,
             const SamplerParams& params);
  void verify(int32_t last, int64_t position, int depth, const SamplerParams& params);
  int accept(int64_t position, int depth, AcceptRule rule, Sampler& sampler,
             const SamplerParams& params, CycleResult& result);
  int32_t reject_or_take(int64_t position, int index, const SamplerParams& params);
  void draw_routes(int64_t position, int64_t rows);
  int drawn_drafts(int depth);
  Rows target_logits(const Rows& hidden);
  int32_t draft_token(int64_t at, int index, AcceptRule rule, Sampler& sampler,
                      const SamplerParams& params);
  void read_choices(int64_t position, int depth);

  const Model& model_;
  Backend& backend_;
  std::span<const LayerState> states_;
  const LayerState& mtp_state_;
  const Scratch& scratch_;
  Ints step_tokens_;
  int64_t rows_;    // of the largest step
  bool can_draft_;  // the draft layer's cache is kept

  Rows waiting_;  // [kWaiting + kMaxVerify, hidden]: target rows that the draft layer has not seen
  Rows fed_;      // [1, hidden]: the draft layer's own row, between two links of the chain
  std::vector<int32_t>
      waiting_tokens_;  // the token after each waiting row; the newest row's is still open
  int64_t waiting_rows_ = 0;
  int64_t waiting_position_ = 0;  // of the first waiting row
  int64_t accepted_ = 0;          // rows of the last pass that are part of the text
  bool unfolded_ = false;         // and the states have not taken them yet (it was a verify pass)

  // Where the back end chooses tokens itself (Backend::samples), in its memory: the pass's tokens
  // [last, drafts], the token after each of its rows, and for both whether none could be chosen.
  Ints there_tokens_, there_chosen_, there_failed_, there_all_;
  bool there_ = false;         // in this cycle: the target's tokens,
  bool drafts_there_ = false;  // and the drafts
  std::array<int32_t, kMaxVerify> chosen_{}, chosen_failed_{};
  Rows pass_logits_;  // of the last pass, in the back end
  std::array<bool, kMaxVerify> is_read_{};

  std::array<int32_t, kMaxDrafts> drafts_{};
  std::array<std::vector<TokenProbability>, kMaxDrafts> draft_distribution_;
  std::vector<TokenProbability> target_distribution_, residual_;
  std::vector<float> logits_, draft_logits_, draft_rows_;
  Simulation simulation_;
  std::array<double, kMaxDrafts + 1> chances_{};  // chance_for each depth
  uint64_t drawn_ = 0;                            // passes whose drafts it has judged
  Ints routes_;  // [kMaxVerify, (MoE layers + 1) * top_k], when experts are drawn
  std::vector<int32_t> route_table_, pool_;
  double draft_sample_seconds_ = 0;
  DraftFault fault_ = nullptr;
  void* fault_context_ = nullptr;
  const std::atomic<bool>* abort_ = nullptr;
};

}  // namespace spk
