#include "measure/bench_run.h"

#include "base/error.h"
#include "measure/statistics.h"
#include "measure/workload.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>

namespace spk {
namespace {

using Clock = std::chrono::steady_clock;

// Sums over the prompts of one repetition.
struct Repetition {
  Timings sum;
  int64_t decoded = 0;  // tokens after the first of each answer
  double ttft_ms = 0;   // of the first prompt
  std::vector<double> pass_ms;
  double first_half = 0, second_half = 0;  // tok/s

  double tok_s() const {
    return sum.decode_seconds > 0 ? static_cast<double>(decoded) / sum.decode_seconds : 0;
  }
  double bytes() const {
    return decoded > 0 ? static_cast<double>(sum.weight_bytes + sum.state_bytes) /
                             static_cast<double>(decoded)
                       : 0;
  }
  double prefill_tok_s() const {
    const auto fresh = static_cast<double>(sum.prompt_tokens - sum.cached_tokens);
    return sum.prefill_seconds > 0 ? fresh / sum.prefill_seconds : 0;
  }
};

void add(Timings& to, const Timings& t) {
  to.prompt_tokens += t.prompt_tokens;
  to.cached_tokens += t.cached_tokens;
  to.output_tokens += t.output_tokens;
  to.prefill_seconds += t.prefill_seconds;
  to.decode_seconds += t.decode_seconds;
  to.weight_bytes += t.weight_bytes;
  to.state_bytes += t.state_bytes;
  to.drafts.add(t.drafts);
}

// Arrival of the tokens after the first: passes (tokens of one pass come together) and halves.
void take_arrivals(const std::vector<double>& at, Repetition& r) {
  if (at.size() < 2) return;
  constexpr double kTogether = 0.1;  // of the mean gap: no pass is so much quicker than the mean
  const double mean_gap = (at.back() - at.front()) / static_cast<double>(at.size() - 1);
  double pass = at.front();
  for (size_t i = 1; i < at.size(); ++i) {
    if (at[i] - at[i - 1] < kTogether * mean_gap) continue;
    r.pass_ms.push_back(1000 * (at[i] - pass));
    pass = at[i];
  }
  const size_t middle = at.size() / 2;
  const auto rate = [&](size_t from, size_t to) {
    const double seconds = at[to] - at[from];
    return seconds > 0 ? static_cast<double>(to - from) / seconds : 0;
  };
  r.first_half = rate(0, middle);
  r.second_half = rate(middle, at.size() - 1);
}

class Runner {
 public:
  Runner(Engine& engine, const BenchWork& work, Trace* trace)
      : engine_(engine), work_(work), trace_(trace) {}

  Repetition once(int64_t index) {
    Repetition r;
    if (!work_.prompts.empty()) {
      for (const std::vector<int32_t>& prompt : work_.prompts) ask(prompt, r);
      return r;
    }
    const std::vector<int32_t> prompt = stream(index);
    if (work_.depth > 0) {
      GenerateRequest before = request_of({prompt.begin(), prompt.begin() + work_.depth});
      before.max_tokens = 1;  // chosen and not run: the session then holds `depth` tokens
      generate(before, {});
    }
    ask(prompt, r);
    if (r.sum.cached_tokens != work_.depth)
      fail_input("bench: expected ", work_.depth, " cached tokens of the prompt, found ",
                 r.sum.cached_tokens);
    return r;
  }

  // Milliseconds to the first token when everything but the last prompt token was there.
  double warm(int64_t index) {
    std::vector<int32_t> prompt = stream(index);
    GenerateRequest request = request_of(prompt);
    request.max_tokens = 1;
    generate(request, {});
    request.prompt.push_back(request.prompt.front());
    const Timings again = generate(request, {}).timings;
    if (again.cached_tokens != static_cast<int64_t>(prompt.size()))
      fail_input("bench: expected ", prompt.size(), " cached tokens, found ", again.cached_tokens);
    return 1000 * again.prefill_seconds;
  }

 private:
  std::vector<int32_t> stream(int64_t index) const {
    return token_stream(work_.depth + work_.in, work_.seed + static_cast<uint64_t>(index),
                        engine_.config().shape.vocab);
  }
  GenerateRequest request_of(std::vector<int32_t> prompt) const {
    GenerateRequest request;
    request.prompt = std::move(prompt);
    request.sampling = work_.sampling;
    request.max_tokens = work_.out;
    request.ignore_eos = work_.prompts.empty();
    request.draft = work_.draft;
    return request;
  }
  GenerateResult generate(const GenerateRequest& request, const std::function<void()>& on_token) {
    return engine_.generate(request, [&](const TokenEvent&) {
      if (on_token) on_token();
      return true;
    });
  }
  void ask(const std::vector<int32_t>& prompt, Repetition& r) {
    std::vector<double> at;
    at.reserve(static_cast<size_t>(work_.out));
    // The trace is to hold the decoding only: it begins when the prompt's own token is there. With
    // no other token to come it holds the prompt.
    const bool tracing = trace_ != nullptr && trace_->on;
    if (tracing) trace_->on = work_.out == 1;
    const Clock::time_point start = Clock::now();
    const GenerateResult result = generate(request_of(prompt), [&] {
      at.push_back(std::chrono::duration<double>(Clock::now() - start).count());
      if (tracing) trace_->on = work_.out > 1;
    });
    if (r.sum.output_tokens == 0) r.ttft_ms = 1000 * result.timings.prefill_seconds;
    add(r.sum, result.timings);
    r.decoded += std::max<int64_t>(result.timings.output_tokens - 1, 0);
    take_arrivals(at, r);
  }

  Engine& engine_;
  const BenchWork& work_;
  Trace* trace_;
};

template <typename Value>
double median_of(const std::vector<Repetition>& all, Value value) {
  std::vector<double> values;
  values.reserve(all.size());
  for (const Repetition& r : all) values.push_back(value(r));
  return median(values);
}

void take_speed(const std::vector<Repetition>& all, BenchRow& row) {
  row.tokens = all.front().sum.output_tokens;
  row.prefill_tok_s = median_of(all, [](const Repetition& r) { return r.prefill_tok_s(); });
  row.cold_ttft_ms = median_of(all, [](const Repetition& r) { return r.ttft_ms; });
  if (all.front().decoded == 0) return;
  const auto speed = [](const Repetition& r) { return r.tok_s(); };
  row.tok_s = median_of(all, speed);
  const auto [low, high] = std::minmax_element(
      all.begin(), all.end(),
      [&](const Repetition& a, const Repetition& b) { return a.tok_s() < b.tok_s(); });
  if (*row.tok_s > 0) row.spread_percent = 100 * (high->tok_s() - low->tok_s()) / *row.tok_s;
  row.bytes_per_token = median_of(all, [](const Repetition& r) { return r.bytes(); });
  row.gb_s = median_of(all, [](const Repetition& r) { return r.bytes() * r.tok_s() / 1e9; });
  row.drop_percent = median_of(all, [](const Repetition& r) {
    return r.first_half > 0 ? 100 * (1 - r.second_half / r.first_half) : 0;
  });
  std::vector<double> passes;
  for (const Repetition& r : all) passes.insert(passes.end(), r.pass_ms.begin(), r.pass_ms.end());
  row.step_p95_ms = quantile(passes, 0.95);
}

void take_drafts(const std::vector<Repetition>& all, BenchRow& row) {
  DraftCounters d;
  for (const Repetition& r : all) d.add(r.sum.drafts);
  if (d.drafting_cycles == 0) return;
  const auto passes = static_cast<double>(d.drafting_cycles);
  row.accept_length = d.accept_length();
  row.verify_ms = 1000 * d.drafting_verify_seconds / passes;
  row.verify_rows = static_cast<double>(d.drafting_verify_rows) / passes;
  row.drafts = row.verify_rows - 1;
  row.verify_weight_bytes = static_cast<double>(d.drafting_verify_weight_bytes) / passes;
}

void take_shares(const Repetition& traced, const Trace& trace, BenchRow& row) {
  const double all = traced.sum.decode_seconds;
  if (all <= 0) return;
  const auto parts = trace.parts();
  const auto share = [&](Part part) {
    return 100 * parts[static_cast<size_t>(part)].seconds / all;
  };
  row.traced = true;
  row.moe_percent = share(Part::kMoe);
  row.attention_percent = share(Part::kAttention);
  row.feed_percent = share(Part::kFeedForward);
  row.head_percent = share(Part::kHead);
  const DraftCounters& d = traced.sum.drafts;
  row.sampling_percent = 100 * (d.accept_seconds + d.draft_sample_seconds) / all;
}

}  // namespace

struct BenchRun::Impl {
  Engine& engine;
  BenchWork work;
  Trace* trace;
  Runner runner;
  int64_t done = 0;
  std::vector<Repetition> all;
  std::optional<Repetition> traced;
  std::optional<double> warm_ms;

  Impl(Engine& e, const BenchWork& w, Trace* t)
      : engine(e), work(w), trace(t), runner(engine, work, trace) {}
};

BenchRun::BenchRun(Engine& engine, const BenchWork& work, Trace* trace)
    : impl_(std::make_unique<Impl>(engine, work, trace)) {
  if (trace != nullptr) trace->on = false;
}
BenchRun::~BenchRun() = default;
BenchRun::BenchRun(BenchRun&&) noexcept = default;

int64_t BenchRun::steps() const {
  return 1 + impl_->work.repeat + (impl_->trace != nullptr ? 1 : 0) + (impl_->work.warm ? 1 : 0);
}

void BenchRun::step() {
  Impl& r = *impl_;
  const int64_t index = r.done++;
  if (index <= r.work.repeat) {
    Repetition repetition = r.runner.once(index);
    if (index > 0) r.all.push_back(std::move(repetition));
  } else if (r.trace != nullptr && !r.traced) {
    r.trace->clear();
    r.trace->on = true;
    r.traced = r.runner.once(index);
    r.trace->on = false;
  } else {
    r.warm_ms = r.runner.warm(index);
  }
}

BenchRow BenchRun::row() const {
  const Impl& r = *impl_;
  SPK_CHECK(!r.all.empty());
  BenchRow row;
  row.repetitions = r.work.repeat;
  row.depth = r.work.depth;
  take_speed(r.all, row);
  take_drafts(r.all, row);
  if (r.traced) take_shares(*r.traced, *r.trace, row);
  row.warm_ttft_ms = r.warm_ms;
  row.roof_gb_s = r.engine.backend().read_bandwidth() / 1e9;
  if (row.roof_gb_s > 0) row.roof_percent = 100 * row.gb_s / row.roof_gb_s;
  return row;
}

}  // namespace spk
