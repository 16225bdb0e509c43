// One mutable timeline: the exact token history and what the model remembers of it.
//
// Callers state the prefix they want (sync) instead of asking for prefill or decode; the session
// decides what to run. The token history is authoritative, text is derived. Moved by nobody, used
// by the engine thread only. A recurrent state cannot be rewound, so going back means running the
// kept tokens again, unless mark() has kept the state of that very place.
#pragma once

#include "engine/cache.h"
#include "model/cycle.h"
#include "model/model.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace spk {

// Tokens to run in one step, with everything a caller may want from it.
struct Advance {
  std::span<const int32_t> tokens;  // at most chunk of them
  StepKind kind = StepKind::kPrefill;
  bool all_hidden = false;  // keep the hidden rows of all tokens, not of the last only
  Ints routes_in;           // tables over the WHOLE sequence, row = position; empty: none
  Ints routes_out;
};

class Session {
 public:
  // Allocates caches and scratch for `context` tokens and steps of up to `chunk` rows. With
  // `drafts` the prompt also goes through the MTP layer, so that cycles can draft.
  // With `marks` there is room for mark().
  Session(const Model& model, Backend& backend, int64_t context, int64_t chunk, bool drafts,
          bool marks = false);

  struct Synced {
    int64_t reused = 0;  // tokens that were already there
    bool complete =
        true;  // false: keep_going stopped it between two chunks; tokens() says how far it came
  };
  // Makes tokens() equal to `tokens`: nothing, extend, back to the mark, or rebuild from the start.
  Synced sync(std::span<const int32_t> tokens, const std::function<bool()>& keep_going);
  // Keeps what the layers remember now, after a sync, until the next mark or until anything before
  // it is lost: a sync to these tokens then runs nothing, and what follows is the same bit for bit.
  void mark();
  void forget_mark() { marked_ = 0; }
  std::span<const int32_t> marked() const { return {tokens_.data(), static_cast<size_t>(marked_)}; }
  // Runs `last` and `depth` drafts after it; returns the committed tokens that follow. tokens()
  // grows by `last` and the accepted drafts. After an answer that a stop rule cut, keep(n) takes
  // back all but the first n of those. On an Error the session is reset: never a half-done state.
  CycleResult cycle(int32_t last, int depth, AcceptRule rule, Sampler& sampler,
                    const SamplerParams& params);
  void keep(int64_t rows);
  // Logits that chose result.tokens[row] of the last cycle.
  std::span<const float> cycle_logits(int row) { return cycle_.row_logits(row); }
  bool can_draft() const { return drafts_; }
  void simulate(const Simulation& simulation) { cycle_.simulate(simulation); }
  void inject(DraftFault fault, void* context) { cycle_.inject(fault, context); }
  // Back to the first `position` tokens, by running them again: a recurrent state cannot be
  // rewound.
  void rewind(int64_t position);
  void reset();

  std::span<const int32_t> tokens() const { return tokens_; }
  std::span<const LayerState> layer_states() const { return cache_.layers(); }
  int64_t context() const { return context_; }
  int64_t chunk() const { return chunk_; }
  // Every step from now on looks at it (Step::abort) and ends in Error(kInterrupted), after which
  // the session is empty. Null: none does.
  void set_abort(const std::atomic<bool>* abort);
  // Shorter prefill steps from now on; 1 up to what the session was made for.
  void limit_chunk(int64_t rows);

  // Logits after the last token of a sync; valid until the next call. There must be a token.
  std::span<const float> logits();

  // ---- for teacher forcing ----
  // Runs the tokens as one step and leaves their hidden rows; carry() afterwards makes the step
  // final.
  void advance(const Advance& a);
  // Logits of hidden rows of the last advance: row i follows token i of it. At most head_rows() at
  // a time.
  std::span<const float> logits_of(const Rows& hidden);
  Rows hidden_rows(int64_t first, int64_t count) const;
  int64_t head_rows() const { return scratch_.logits.rows; }
  // Runs the MTP layer over the pairs that the last advance completed and calls `rows` with its
  // output rows and the position of the first, inside the step; without `rows` only the layer's
  // cache takes them. Needs all_hidden.
  void advance_mtp(const Advance& a, const std::function<void(int64_t, const Rows&)>& rows);
  void carry();
  // What a draft would be sampled from after this row of advance_mtp. Needs can_draft().
  std::span<const float> draft_logits(const Rows& hidden) { return cycle_.draft_logits(hidden); }

 private:
  void run(std::span<const int32_t> tokens);
  void return_to_mark();
  void settle();

  const Model& model_;
  Backend& backend_;
  int64_t context_;
  int64_t chunk_;
  Cache cache_;
  Scratch scratch_;
  Ints step_tokens_;
  bool drafts_;
  Cycle cycle_;
  bool cycling_ = false;     // the cycle holds rows that the states have not taken
  int64_t cycle_start_ = 0;  // tokens() before the last cycle
  Rows marked_hidden_;       // [1, hidden]: the row behind the marked tokens; no buffer: no marks
  int64_t marked_ = 0;       // the first tokens() that the mark stands behind; 0: there is none
  std::vector<int32_t> tokens_;
  int64_t pending_ = 0;  // rows of the last advance, not yet carried
  std::vector<float> logits_;
  const std::atomic<bool>* abort_ = nullptr;
};

// Rows that go through the LM head at a time: about 16 MiB of logits, at least 8.
int64_t head_rows_for(int64_t vocab, int64_t chunk, size_t real_bytes);

}  // namespace spk
