#include "engine/session.h"

#include "base/error.h"

#include <algorithm>

namespace spk {

int64_t head_rows_for(int64_t vocab, int64_t chunk, size_t real_bytes) {
  const int64_t fit = (int64_t{16} << 20) / (vocab * static_cast<int64_t>(real_bytes));
  constexpr int64_t kMost = 256;  // more rows a pass over the head gain nothing
  return std::min({chunk, kMost, std::max<int64_t>(8, fit)});
}

Session::Session(const Model& model, Backend& backend, int64_t context, int64_t chunk, bool drafts,
                 bool marks)
    : model_(model),
      backend_(backend),
      context_(context),
      chunk_(chunk),
      cache_(model, context, marks, backend),
      scratch_(make_scratch(model.config.shape, model.mtp.has_value(), chunk,
                            head_rows_for(model.config.shape.vocab, chunk, backend.real_bytes()),
                            backend)),
      step_tokens_{backend.alloc(static_cast<size_t>(chunk) * sizeof(int32_t), "step tokens"), 0,
                   chunk, 1, 1},
      drafts_(drafts && model.mtp && chunk > 1),  // a verify pass has two rows or more
      cycle_(model, backend, cache_.layers(), cache_.mtp(), scratch_, step_tokens_, chunk,
             drafts_) {
  if (marks) {
    const int64_t n = model.config.shape.hidden;
    const size_t bytes = static_cast<size_t>(n) * backend.real_bytes();
    marked_hidden_ = {backend.alloc(bytes, "caches"), 0, 1, n, n};
  }
  tokens_.reserve(static_cast<size_t>(context));
  logits_.resize(static_cast<size_t>(scratch_.logits.rows * scratch_.logits.cols));
}

void Session::limit_chunk(int64_t rows) {
  SPK_CHECK(rows >= 1 && rows <= chunk_);
  chunk_ = rows;
}

void Session::set_abort(const std::atomic<bool>* abort) {
  abort_ = abort;
  cycle_.set_abort(abort);
}

void Session::reset() {
  tokens_.clear();
  marked_ = 0;
  pending_ = 0;
  cycling_ = false;
  cycle_.reset();
  cache_.reset();
}

void Session::advance(const Advance& a) {
  const auto n = static_cast<int64_t>(a.tokens.size());
  const auto first = static_cast<int64_t>(tokens_.size());
  SPK_CHECK(pending_ == 0 && n > 0 && n <= chunk_ && first + n <= context_);
  Step step;
  step.kind = a.kind;
  step.abort = abort_;
  step.rows = n;
  step.first_position = first;
  step.tokens = step_tokens_.slice_rows(0, n);
  step.hidden_first = a.all_hidden ? 0 : n - 1;
  if (a.routes_in) step.routes_in = a.routes_in.slice_rows(first, n);
  if (a.routes_out) step.routes_out = a.routes_out.slice_rows(first, n);
  backend_.write(a.tokens.data(), step.tokens);
  backend_.begin(step);
  forward(model_, step, cache_.layers(), scratch_, backend_);
  backend_.end();
  tokens_.insert(tokens_.end(), a.tokens.begin(), a.tokens.end());
  pending_ = n;
}

void Session::advance_mtp(const Advance& a, const std::function<void(int64_t, const Rows&)>& rows) {
  SPK_CHECK(model_.mtp && a.all_hidden && pending_ == static_cast<int64_t>(a.tokens.size()));
  const int64_t start = static_cast<int64_t>(tokens_.size()) - pending_;
  // Pair j joins this step's token j with the hidden row before it; row 0 of `hidden` is the
  // carried one.
  const int64_t skip = start == 0 ? 1 : 0;  // nothing comes before the first token
  const int64_t n = pending_ - skip;
  if (n == 0) return;
  Step step;
  step.kind = StepKind::kPrefill;
  step.abort = abort_;
  step.rows = n;
  step.first_position = start - 1 + skip;
  step.tokens = step_tokens_.slice_rows(skip, n);
  if (a.routes_in) step.routes_in = a.routes_in.slice_rows(step.first_position, n);
  if (a.routes_out) step.routes_out = a.routes_out.slice_rows(step.first_position, n);
  const Rows hidden = scratch_.hidden.slice_rows(skip, n);
  backend_.begin(step);
  if (rows) {
    rows(step.first_position, forward_mtp(model_, step, hidden, cache_.mtp(), scratch_, backend_));
  } else {
    extend_mtp(model_, step, hidden, cache_.mtp(), scratch_, backend_);
  }
  backend_.end();
}

void Session::carry() {
  if (pending_ > 0)
    backend_.copy(scratch_.hidden.slice_rows(pending_, 1), scratch_.hidden.slice_rows(0, 1));
  pending_ = 0;
}

Rows Session::hidden_rows(int64_t first, int64_t count) const {
  return scratch_.hidden.slice_rows(1 + first, count);
}

std::span<const float> Session::logits_of(const Rows& hidden) {
  const Rows out = scratch_.logits.slice_rows(0, hidden.rows);
  backend_.logits(hidden, model_.head, out);
  backend_.read(out, logits_.data());
  return {logits_.data(), static_cast<size_t>(out.rows * out.cols)};
}

std::span<const float> Session::logits() {
  SPK_CHECK(!tokens_.empty());
  return logits_of(scratch_.hidden.slice_rows(pending_, 1));
}

void Session::run(std::span<const int32_t> tokens) {
  const Advance step{tokens, StepKind::kPrefill, drafts_, {}, {}};
  try {
    advance(step);
    if (drafts_) advance_mtp(step, nullptr);
    carry();
  } catch (...) {
    reset();
    throw;
  }
}

CycleResult Session::cycle(int32_t last, int depth, AcceptRule rule, Sampler& sampler,
                           const SamplerParams& params) {
  const auto position = static_cast<int64_t>(tokens_.size());
  SPK_CHECK(position + depth + 1 <= context_ && (depth == 0 || can_draft()));
  try {
    if (!cycling_) cycle_.start(position);
    cycling_ = true;
    const CycleResult result = cycle_.run(last, position, depth, rule, sampler, params);
    cycle_start_ = position;
    tokens_.push_back(last);
    tokens_.insert(tokens_.end(), result.tokens.begin(), result.tokens.begin() + result.count - 1);
    return result;
  } catch (...) {
    reset();
    throw;
  }
}

void Session::settle() {
  try {
    cycle_.settle();
  } catch (...) {
    reset();
    throw;
  }
  cycling_ = false;
}

void Session::mark() {
  SPK_CHECK(pending_ == 0 && !cycling_ && !tokens_.empty());
  const auto here = static_cast<int64_t>(tokens_.size());
  if (!marked_hidden_.buffer || marked_ == here) return;
  cache_.save();
  backend_.copy(scratch_.hidden.slice_rows(0, 1), marked_hidden_);
  marked_ = here;
}

// Latents of the marked tokens, the draft layer's too, lie before all that was run since.
void Session::return_to_mark() {
  pending_ = 0;
  cycling_ = false;
  cycle_.reset();
  cache_.restore();
  backend_.copy(marked_hidden_, scratch_.hidden.slice_rows(0, 1));
  tokens_.resize(static_cast<size_t>(marked_));
}

void Session::keep(int64_t rows) {
  cycle_.keep(rows);
  tokens_.resize(static_cast<size_t>(cycle_start_ + rows));
}

Session::Synced Session::sync(std::span<const int32_t> tokens,
                              const std::function<bool()>& keep_going) {
  const bool extends = tokens.size() >= tokens_.size() && !tokens_.empty() &&
                       std::equal(tokens_.begin(), tokens_.end(), tokens.begin());
  if (!extends) {
    const bool at_mark =
        marked_ > 0 && std::equal(tokens.begin(), tokens.end(), marked().begin(), marked().end());
    at_mark ? return_to_mark() : reset();
  }
  if (cycling_) settle();
  Synced result;
  result.reused = static_cast<int64_t>(tokens_.size());
  while (tokens_.size() < tokens.size()) {
    if (!keep_going()) {
      result.complete = false;
      break;
    }
    const auto at = static_cast<int64_t>(tokens_.size());
    // Steps end on a grid of absolute positions, so that the same prompt always runs in the same
    // steps.
    const int64_t n = std::min(static_cast<int64_t>(tokens.size()) - at, chunk_ - at % chunk_);
    run(tokens.subspan(static_cast<size_t>(at), static_cast<size_t>(n)));
  }
  return result;
}

void Session::rewind(int64_t position) {
  SPK_CHECK(position >= 0 && position <= static_cast<int64_t>(tokens_.size()));
  if (position == static_cast<int64_t>(tokens_.size())) return;
  const std::vector<int32_t> keep(tokens_.begin(), tokens_.begin() + position);
  reset();
  sync(keep, [] { return true; });
}

}  // namespace spk
