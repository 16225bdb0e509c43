#include "model/cycle.h"

#include "base/error.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>

namespace spk {
namespace {

// While drafting is off, rows wait for the draft layer and pass through it together: a batch reads
// its weights once, so that plain decoding pays almost nothing for keeping the draft cache whole.
constexpr int64_t kWaiting = 64;

using Clock = std::chrono::steady_clock;
double seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

double probability_of(std::span<const TokenProbability> distribution, int32_t id) {
  const auto at = std::lower_bound(distribution.begin(), distribution.end(), id,
                                   [](const TokenProbability& t, int32_t x) { return t.id < x; });
  return at != distribution.end() && at->id == id ? at->probability : 0.0;
}

}  // namespace

Cycle::Cycle(const Model& model, Backend& backend, std::span<const LayerState> states,
             const LayerState& mtp_state, const Scratch& scratch, const Ints& step_tokens,
             int64_t rows, bool drafts)
    : model_(model),
      backend_(backend),
      states_(states),
      mtp_state_(mtp_state),
      scratch_(scratch),
      step_tokens_(step_tokens),
      rows_(rows),
      can_draft_(drafts && model.mtp) {
  const ModelShape& s = model.config.shape;
  const auto make = [&](int64_t n) {
    const size_t bytes = static_cast<size_t>(n * s.hidden) * backend.real_bytes();
    return Rows{backend.alloc(bytes, "draft rows"), 0, n, s.hidden, s.hidden};
  };
  logits_.resize(static_cast<size_t>(kMaxVerify * s.vocab));
  SamplerParams greedy;
  greedy.temperature = 0;
  if (backend.samples(greedy)) {
    constexpr int64_t kLists = 4;
    const Buffer all = backend.alloc(kLists * kMaxVerify * sizeof(int32_t), "chosen tokens");
    const auto part = [&](int64_t list, int64_t lists) {
      return Ints{all, list * kMaxVerify, lists * kMaxVerify, 1, 1};
    };
    there_tokens_ = part(0, 1);
    there_chosen_ = part(1, 1);
    there_failed_ = part(2, 2);  // of the tokens, of the chosen
    there_all_ = part(0, kLists);
  }
  if (!can_draft_) return;
  waiting_ = make(kWaiting + kMaxVerify);
  fed_ = make(1);
  waiting_tokens_.reserve(static_cast<size_t>(waiting_.rows));
  draft_logits_.assign(static_cast<size_t>(s.vocab), -std::numeric_limits<float>::infinity());
}

double chance_for(double accept_length, int depth) {
  if (depth == 0) return 0;
  const auto tokens = [depth](double p) {
    double sum = 1, reach = 1;
    for (int j = 0; j < depth; ++j) sum += reach *= p;
    return sum;
  };
  double low = 0, high = 1;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (tokens(middle) < accept_length ? low : high) = middle;
  }
  return high;
}

void Cycle::simulate(const Simulation& simulation) {
  simulation_ = simulation;
  for (int depth = 1; depth <= kMaxDrafts; ++depth)
    chances_[depth] = chance_for(simulation.accept_length, depth);
  const int64_t n = simulation.distinct_experts;
  if (n == 0) return;
  const ModelConfig& config = model_.config;
  if (n < config.shape.top_k || n > config.shape.experts)
    fail_input("distinct experts: expected ", config.shape.top_k, " (those of one row) to ",
               config.shape.experts, ", found ", n);
  const int64_t columns = (config.moe_layers() + 1) * config.shape.top_k;
  routes_ = {backend_.alloc(static_cast<size_t>(kMaxVerify * columns) * sizeof(int32_t), "routes"),
             0, kMaxVerify, columns, columns};
  route_table_.resize(static_cast<size_t>(kMaxVerify * columns));
  pool_.resize(static_cast<size_t>(config.shape.experts));
}

// For each layer other experts: a row takes the next top_k of a shuffled pool of the wanted size,
// so that the rows together use all of it as far as they can.
void Cycle::draw_routes(int64_t position, int64_t rows) {
  const ModelConfig& config = model_.config;
  const int64_t top_k = config.shape.top_k, layers = config.moe_layers() + 1;
  const int64_t pool = std::min(simulation_.distinct_experts, rows * top_k);
  for (int64_t layer = 0; layer < layers; ++layer) {
    std::iota(pool_.begin(), pool_.end(), 0);
    for (int64_t i = 0; i < pool; ++i) {
      const double u = uniform_at(simulation_.seed, static_cast<uint64_t>(layer),
                                  static_cast<uint64_t>(position), static_cast<uint32_t>(i));
      const auto rest = static_cast<double>(config.shape.experts - i);
      std::swap(pool_[static_cast<size_t>(i)],
                pool_[static_cast<size_t>(i + static_cast<int64_t>(u * rest))]);
    }
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t k = 0; k < top_k; ++k)
        route_table_[static_cast<size_t>((row * layers + layer) * top_k + k)] =
            pool_[static_cast<size_t>((row * top_k + k) % pool)];
  }
  backend_.write(route_table_.data(), routes_.slice_rows(0, rows));
}

void Cycle::reset() {
  waiting_rows_ = waiting_position_ = accepted_ = 0;
  unfolded_ = false;
  waiting_tokens_.clear();
}

void Cycle::start(int64_t position) {
  reset();
  if (!can_draft_ || position == 0) return;
  backend_.copy(scratch_.hidden.slice_rows(0, 1), waiting_.slice_rows(0, 1));
  waiting_rows_ = 1;
  waiting_position_ = position - 1;
  waiting_tokens_.assign(1, -1);
}

// The accepted rows of the last pass start to wait; `open_token` is what follows the newest row.
void Cycle::absorb(int32_t open_token) {
  if (!can_draft_) return;
  if (accepted_ > 0) {
    backend_.copy(scratch_.hidden.slice_rows(1, accepted_),
                  waiting_.slice_rows(waiting_rows_, accepted_));
    waiting_tokens_.insert(waiting_tokens_.end(), drafts_.begin(), drafts_.begin() + accepted_ - 1);
    waiting_tokens_.push_back(open_token);
    waiting_rows_ += accepted_;
  } else if (waiting_rows_ > 0) {
    waiting_tokens_.back() = open_token;
  }
}

// The first `rows` waiting pairs enter the draft layer's cache; the last of them is run to the end
// when it is to be drafted from, and leaves its row in fed_.
void Cycle::extend(int64_t rows, bool run_last) {
  for (int64_t at = 0; at < rows;) {
    const bool last = run_last && at == rows - 1;
    const int64_t n = last ? 1 : std::min(rows - at - (run_last ? 1 : 0), rows_);
    Step step;
    step.abort = abort_;
    // The draft layer has no recurrent state: its few rows are as good a verify pass.
    step.kind = n <= kMaxVerify ? StepKind::kVerify : StepKind::kPrefill;
    step.rows = n;
    step.first_position = waiting_position_ + at;
    step.tokens = step_tokens_.slice_rows(0, n);
    backend_.write(waiting_tokens_.data() + at, step.tokens);
    const Rows hidden = waiting_.slice_rows(at, n);
    backend_.begin(step);
    if (last) {
      backend_.copy(forward_mtp(model_, step, hidden, mtp_state_, scratch_, backend_), fed_);
    } else {
      extend_mtp(model_, step, hidden, mtp_state_, scratch_, backend_);
    }
    backend_.end();
    at += n;
  }
  waiting_position_ += rows;
  waiting_rows_ -= rows;
  waiting_tokens_.erase(waiting_tokens_.begin(), waiting_tokens_.begin() + rows);
}

Rows Cycle::target_logits(const Rows& hidden) {
  const Rows out = scratch_.logits.slice_rows(0, hidden.rows);
  backend_.logits(hidden, model_.head, out);
  return out;
}

// A draft head knows only some tokens: the others cannot be drafted, which costs acceptance and
// nothing else.
std::span<const float> Cycle::draft_logits(const Rows& hidden) {
  const LmHead& head = drafting_head(model_);
  const Rows out = scratch_.logits.slice_rows(0, 1).slice_cols(0, head.rows());
  backend_.logits(hidden, head, out);
  const std::span<const int32_t> ids = head.ids();
  if (ids.empty()) {
    backend_.read(out, draft_logits_.data());
    return draft_logits_;
  }
  // The same ids each time: the others stay what they were made.
  draft_rows_.resize(ids.size());
  backend_.read(out, draft_rows_.data());
  for (size_t i = 0; i < ids.size(); ++i)
    draft_logits_[static_cast<size_t>(ids[i])] = draft_rows_[i];
  return draft_logits_;
}

std::span<const float> Cycle::row_logits(int row) {
  const auto vocab = static_cast<size_t>(model_.config.shape.vocab);
  const auto r = static_cast<size_t>(row);
  if (!is_read_[r]) backend_.read(pass_logits_.slice_rows(row, 1), logits_.data() + r * vocab);
  is_read_[r] = true;
  return {logits_.data() + r * vocab, vocab};
}

int32_t Cycle::draft_token(int64_t at, int index, AcceptRule rule, Sampler& sampler,
                           const SamplerParams& params) {
  const std::span<const float> logits = draft_logits(fed_);
  const Clock::time_point begin = Clock::now();
  int32_t token;
  if (rule == AcceptRule::kCoupled) {
    token = sampler.sample(logits, params, at);
  } else {
    sampler.distribution(logits, params, at, draft_distribution_[index]);
    token = draw_from(draft_distribution_[index],
                      uniform_at(params.seed, params.choice, static_cast<uint64_t>(at),
                                 static_cast<uint32_t>(Draw::kDraft)));
  }
  draft_sample_seconds_ += seconds(begin, Clock::now());
  return token;
}

void Cycle::draft(int64_t position, int depth, AcceptRule rule, Sampler& sampler,
                  const SamplerParams& params) {
  SPK_CHECK(waiting_rows_ > 0 && waiting_position_ + waiting_rows_ == position);
  for (int j = 0; j < depth; ++j) {
    if (j == 0) {
      extend(waiting_rows_, true);
    } else {
      Step step;
      step.abort = abort_;
      step.kind = StepKind::kDecode;
      step.rows = 1;
      step.first_position = position - 1 + j;
      if (drafts_there_) {
        step.tokens = there_tokens_.slice_rows(j, 1);
      } else {
        step.tokens = step_tokens_.slice_rows(0, 1);
        backend_.write(&drafts_[j - 1], step.tokens);
      }
      backend_.begin(step);
      backend_.copy(forward_mtp(model_, step, fed_, mtp_state_, scratch_, backend_), fed_);
      backend_.end();
    }
    if (drafts_there_) {  // where the draft would stand: two behind the row that it comes from
      const LmHead& head = drafting_head(model_);
      const Rows out = scratch_.logits.slice_rows(0, 1).slice_cols(0, head.rows());
      backend_.logits(fed_, head, out);
      backend_.sample(out, params, 2, there_tokens_.slice_rows(j + 1, 1),
                      there_failed_.slice_rows(j + 1, 1));
      continue;
    }
    const int64_t at = position + 1 + j;  // where the draft would stand
    drafts_[j] = draft_token(at, j, rule, sampler, params);
    if (fault_) drafts_[j] = fault_(fault_context_, at, drafts_[j]);
    sampler.accept(drafts_[j]);
  }
  if (drafts_there_) return;  // no penalties, so nobody looks at counts meanwhile
  for (int j = 0; j < depth; ++j) sampler.retract(drafts_[j]);
}

void Cycle::verify(int32_t last, int64_t position, int depth, const SamplerParams& params) {
  Step step;
  step.abort = abort_;
  step.kind = depth > 0 ? StepKind::kVerify : StepKind::kDecode;
  step.rows = depth + 1;
  step.first_position = position;
  step.fold = unfolded_ ? accepted_ : 0;
  if (drafts_there_) {
    step.tokens = there_tokens_.slice_rows(0, step.rows);
    backend_.write(&last, step.tokens.slice_rows(0, 1));
  } else {
    std::array<int32_t, kMaxVerify> tokens{last};
    std::copy_n(drafts_.begin(), depth, tokens.begin() + 1);
    step.tokens = step_tokens_.slice_rows(0, step.rows);
    backend_.write(tokens.data(), step.tokens);
  }
  if (depth > 0 && simulation_.distinct_experts > 0) {
    draw_routes(position, step.rows);
    step.routes_in = routes_.slice_rows(0, step.rows);
  }
  backend_.begin(step);
  forward(model_, step, states_, scratch_, backend_);
  pass_logits_ = target_logits(scratch_.hidden.slice_rows(1, step.rows));
  is_read_.fill(!there_);
  if (there_) {
    backend_.sample(pass_logits_, params, 1, there_chosen_,
                    there_failed_.slice_rows(kMaxVerify, kMaxVerify));
  } else {
    backend_.read(pass_logits_, logits_.data());
  }
  backend_.end();
  unfolded_ = depth > 0;
  if (there_) read_choices(position, depth);
}

// The one thing that a cycle reads.
void Cycle::read_choices(int64_t position, int depth) {
  std::array<int32_t, 4 * kMaxVerify> all;
  backend_.read(there_all_, all.data());
  std::copy_n(all.begin() + kMaxVerify, kMaxVerify, chosen_.begin());
  std::copy_n(all.begin() + 3 * kMaxVerify, kMaxVerify, chosen_failed_.begin());
  if (!drafts_there_) return;
  for (int j = 0; j < depth; ++j) {
    drafts_[j] = all[j + 1];
    if (all[2 * kMaxVerify + j + 1] != 0)
      throw Error(ErrorKind::kResource,
                  cat("the draft layer gave no logits to choose a token from at position ",
                      position + 1 + j, ", expected numbers"));
  }
}

// Rejection rule for draft `index`; returns the draft itself when it is taken.
int32_t Cycle::reject_or_take(int64_t position, int index, const SamplerParams& params) {
  const auto at = static_cast<uint64_t>(position);
  const int32_t d = drafts_[index];
  const std::vector<TokenProbability>& q = draft_distribution_[index];
  const std::vector<TokenProbability>& p = target_distribution_;
  const double p_d = probability_of(p, d), q_d = probability_of(q, d);
  const double u = uniform_at(params.seed, params.choice, at, static_cast<uint32_t>(Draw::kAccept));
  if (u * q_d < p_d) return d;
  residual_.clear();
  for (const TokenProbability& t : p) {
    const double rest = t.probability - probability_of(q, t.id);
    if (rest > 0) residual_.push_back({t.id, rest});
  }
  // p == q leaves nothing; then the draft was taken above except for rounding, and p itself is
  // right.
  return draw_from(
      residual_.empty() ? p : residual_,
      uniform_at(params.seed, params.choice, at, static_cast<uint32_t>(Draw::kResidual)));
}

// Steps of the golden ratio: passes have the wanted mean to within 20 / their number, where
// independent draws would need hundreds of them to come within a tenth of a token.
int Cycle::drawn_drafts(int depth) {
  constexpr double kGolden = 0.6180339887498949;
  const double start = uniform_at(simulation_.seed, 0, 0, static_cast<uint32_t>(Draw::kAccept));
  const double at = start + kGolden * static_cast<double>(drawn_++);
  const double u = at - std::floor(at), p = chances_[depth];
  int taken = 0;
  for (double reach = p; taken < depth && u < reach; reach *= p) ++taken;
  return taken;
}

int Cycle::accept(int64_t position, int depth, AcceptRule rule, Sampler& sampler,
                  const SamplerParams& params, CycleResult& result) {
  const bool simulated = simulation_.accept_length > 0;
  const int drawn = simulated ? drawn_drafts(depth) : 0;
  for (int j = 0;; ++j) {
    const int64_t at = position + 1 + j;
    int32_t token;
    if (there_ && chosen_failed_[j] == 0) {
      token = chosen_[j];
    } else if (rule == AcceptRule::kCoupled || j == depth) {  // says what is wrong where it failed
      token = sampler.sample(row_logits(j), params, at);
    } else {
      sampler.distribution(row_logits(j), params, at, target_distribution_);
      token = reject_or_take(at, j, params);
    }
    bool taken = j < depth && token == drafts_[j];
    if (j < depth && simulated) {
      taken = j < drawn;
      if (taken) token = drafts_[j];
    }
    sampler.accept(token);
    result.tokens[j] = token;
    if (!taken) return j + 1;
  }
}

CycleResult Cycle::run(int32_t last, int64_t position, int depth, AcceptRule rule, Sampler& sampler,
                       const SamplerParams& params) {
  SPK_CHECK(depth == 0 || can_draft_);
  SPK_CHECK(depth <= kMaxDrafts && depth < rows_);
  CycleResult result;
  draft_sample_seconds_ = 0;
  // Without drafts the two rules are one.
  there_ = there_all_ && (depth == 0 || rule == AcceptRule::kCoupled) && backend_.samples(params);
  drafts_there_ = there_ && depth > 0 && !fault_ && drafting_head(model_).ids().empty();
  const Clock::time_point start = Clock::now();
  absorb(last);
  if (depth > 0) {
    draft(position, depth, rule, sampler, params);
  } else if (waiting_rows_ > kWaiting) {
    extend(waiting_rows_, false);
  }
  const Clock::time_point drafted = Clock::now();
  const uint64_t weights_before = backend_.counters().weight_bytes;
  verify(last, position, depth, params);
  result.verify_weight_bytes = backend_.counters().weight_bytes - weights_before;
  const Clock::time_point verified = Clock::now();
  result.drafted = depth;
  result.count = accept(position, depth, rule, sampler, params, result);
  accepted_ = result.count;
  result.extend_draft_seconds = seconds(start, drafted);
  result.verify_seconds = seconds(drafted, verified);
  result.accept_seconds = seconds(verified, Clock::now());
  result.draft_sample_seconds = draft_sample_seconds_;
  return result;
}

void Cycle::keep(int64_t count) {
  SPK_CHECK(count >= 1 && count <= accepted_);
  accepted_ = count;
}

void Cycle::settle() {
  if (unfolded_) {
    for (const LayerState& state : states_) backend_.commit(state, accepted_);
  }
  absorb(-1);
  if (waiting_rows_ > 1) extend(waiting_rows_ - 1, false);
  if (accepted_ > 0)
    backend_.copy(scratch_.hidden.slice_rows(accepted_, 1), scratch_.hidden.slice_rows(0, 1));
  reset();
}

}  // namespace spk
