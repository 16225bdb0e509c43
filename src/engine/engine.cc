#include "engine/engine.h"

#include "backend/device_tools.h"
#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "engine/align.h"
#include "engine/cache.h"
#include "engine/compare_run.h"
#include "engine/memory_plan.h"
#include "engine/plan_text.h"
#include "engine/session.h"
#include "engine/stop.h"
#include "text/detokenizer.h"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <ctime>

namespace spk {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Processor time of the calling thread.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "";
}

double Timings::prefill_tok_s() const {
  return prefill_seconds > 0 ? static_cast<double>(read_tokens) / prefill_seconds : 0;
}
double Timings::decode_tok_s() const {
  return decode_seconds > 0 ? static_cast<double>(output_tokens - 1) / decode_seconds : 0;
}
double Timings::bytes_per_token() const {
  return output_tokens > 1 ? static_cast<double>(weight_bytes + state_bytes) /
                                 static_cast<double>(output_tokens - 1)
                           : 0;
}
double Timings::gigabytes_per_second() const { return bytes_per_token() * decode_tok_s() / 1e9; }

std::unique_ptr<Backend> make_backend(const EngineOptions& options) {
  BackendOptions device = options.device;
  device.precision = options.precision;
  if (options.backend == "reference") return make_reference_backend(device);
  if (options.backend == "cpu" || options.backend == "auto") return make_cpu_backend(device);
  if (options.backend == "cuda") return make_cuda_backend(device);
  fail_usage("--backend: expected auto, reference, cpu or cuda, found ", options.backend);
}

std::string LoadPhase::text() const {
  char line[128];
  if (bytes == 0) {
    std::snprintf(line, sizeof line, "%.*s: %.2f s", static_cast<int>(name.size()), name.data(),
                  seconds);
    return line;
  }
  const auto count = static_cast<double>(bytes);
  std::snprintf(line, sizeof line, "%.*s: %.1f MiB in %.2f s, %.2f GB/s",
                static_cast<int>(name.size()), name.data(), count / (1 << 20), seconds,
                seconds > 0 ? count / seconds / 1e9 : 0);
  return line;
}

struct Engine::Impl {
  Impl(std::unique_ptr<TensorSource> from, const ModelConfig& model_config,
       std::optional<Tokenizer> words, const EngineOptions& opts)
      : source(std::move(from)),
        tokenizer(std::move(words)),
        options(opts),
        config(model_config),
        backend(opts.decorate ? opts.decorate(make_backend(opts)) : make_backend(opts)),
        sampler(config.shape.vocab) {
    Clock::time_point start = Clock::now();
    const auto phase = [&](std::string_view name, int64_t bytes) {
      if (options.on_phase) options.on_phase({name, seconds_since(start), bytes});
      start = Clock::now();
    };
    const TensorSet tensors = bind_tensors(
        config, *source, backend->uploads_late() ? CheckScales::kLater : CheckScales::kNow);
    if (options.draft > 0 && !tensors.has_mtp)
      fail_input("--draft ", options.draft,
                 ": expected a checkpoint with an MTP layer, found none in this one");
    if (options.chunk == 0)
      options.chunk = default_chunk(config, tensors.has_mtp, options, backend->real_bytes());
    options.chunk = std::min(options.chunk, options.context ? options.context : config.context);
    memory = plan_memory(config, tensors, options, backend->real_bytes());
    sizes = model_sizes(config, tensors);
    if (options.progress != nullptr) options.progress->total = sizes.weight_bytes;
    notes = config.warnings;
    notes.insert(notes.end(), tensors.notes.begin(), tensors.notes.end());
    if (memory.context < (options.context ? options.context : config.context))
      notes.push_back(cat("context cut to ", memory.context, " tokens by the memory limit"));
    phase("tensors", 0);
    std::optional<ProofTruth> truth;
    if (options.prove && backend->name() != "reference")
      truth.emplace(config, tensors, options.draft_head, options.draft != 0);
    backend->prepare(config.shape);
    const int threads = options.device.threads > 0 ? options.device.threads : physical_cores();
    model = load_model(config, tensors, *backend, {options.head, options.draft_head, threads},
                       options.progress);
    phase("weights", sizes.weight_bytes);
    // A pass reads what the head has become, not what is stored.
    sizes.component_token_bytes[static_cast<size_t>(Component::kHead)] = model.head.bytes();
    model.plan = backend->plan();
    session = std::make_unique<Session>(model, *backend, memory.context,
                                        std::min(options.chunk, memory.context), options.draft != 0,
                                        options.choices);
    policy.emplace(options.draft, session->can_draft() ? kMaxDrafts : 0);
    phase("state", 0);
    if (truth) {
      proofs = prove(*truth, {model, *backend, *session, fast()});
      check_proofs(proofs);
      phase("first steps", 0);
    }
    if (!options.require.empty()) {
      const Probe probe = probe_step(model, *backend, *session, options.draft);
      check_requirements(options.require, probe, tensors.at("lm_head.weight").tensor.format);
    }
    session->simulate(options.simulation);
    if (options.slice_seconds > 0) limit_slices();
    stops = config.eos;
    if (config.pad >= 0) stops.push_back(config.pad);  // the family's <|endoftext|>
  }

  // Measures one prefill step and cuts the chunk to what fits a slice; half of the slice stays free
  // for attention, which grows with the position. Cutting a prompt at multiples of 64 changes no
  // bit, nor does cutting it into pieces of at most 8 rows, but the two differ: so nothing in
  // between, and processor time decides between them, lest a busy machine answer otherwise than an
  // idle one.
  void limit_slices() {
    constexpr int64_t kGrid = 64, kFew = 8;
    int64_t rows = std::min(session->chunk(), kGrid);
    std::vector<int32_t> probe(static_cast<size_t>(rows));
    for (size_t i = 0; i < probe.size(); ++i)
      probe[i] = static_cast<int32_t>(i * 7919 % static_cast<size_t>(config.shape.vocab));
    double best = 0, best_work = 0;
    for (int round = 0; round < 4; ++round) {  // the first one touches cold memory
      session->reset();
      const Clock::time_point start = Clock::now();
      const double work_start = thread_seconds();
      session->sync(probe, [] { return true; });
      const double seconds = std::max(seconds_since(start), 1e-9);
      const double work =
          backend->on_host() ? std::clamp(thread_seconds() - work_start, 1e-9, seconds) : seconds;
      best = round < 2 ? seconds : std::min(best, seconds);
      best_work = round < 2 ? work : std::min(best_work, work);
      if (round > 0 && best_work > 4 * options.slice_seconds) break;  // slow beyond doubt
    }
    session->reset();
    const auto fit = [&](double step) {
      return std::min(options.slice_seconds / 2 / step * static_cast<double>(rows), 1e6);
    };
    const auto now = static_cast<int64_t>(fit(best));
    rows = 4 * fit(best_work) >= kGrid ? std::max(now / kGrid * kGrid, kGrid)
                                       : std::clamp<int64_t>(now, 1, kFew);
    session->limit_chunk(std::min(rows, session->chunk()));
  }

  bool fast() const { return options.precision == PrecisionMode::kFast; }
  bool is_end(int32_t id) const { return std::find(stops.begin(), stops.end(), id) != stops.end(); }

  std::unique_ptr<TensorSource> source;
  std::optional<Tokenizer> tokenizer;
  EngineOptions options;
  ModelConfig config;
  MemoryPlan memory;
  ModelSizes sizes;
  std::vector<std::string> notes;
  std::unique_ptr<Backend> backend;
  Model model;
  std::unique_ptr<Session> session;
  std::optional<DepthPolicy> policy;  // knows the costs of all answers so far
  Sampler sampler;
  std::vector<int32_t> stops;
  std::vector<TokenLogprob> top;
  std::vector<Proof> proofs;
  bool warned_of_drafts = false;
  Ints routes;  // table of the last teacher forcing, kept because back ends never free
};

Engine::Engine(std::unique_ptr<TensorSource> source, const ModelConfig& config,
               std::optional<Tokenizer> tokenizer, const EngineOptions& options)
    : impl_(std::make_unique<Impl>(std::move(source), config, std::move(tokenizer), options)) {}
Engine::~Engine() = default;

const ModelConfig& Engine::config() const { return impl_->config; }
const MemoryPlan& Engine::memory() const { return impl_->memory; }
const ModelSizes& Engine::sizes() const { return impl_->sizes; }
const std::vector<std::string>& Engine::notes() const { return impl_->notes; }
const Tokenizer* Engine::tokenizer() const {
  return impl_->tokenizer ? &*impl_->tokenizer : nullptr;
}
Backend& Engine::backend() { return *impl_->backend; }

const std::vector<Proof>& Engine::proofs() const { return impl_->proofs; }
std::string Engine::plan_text() const {
  return spk::plan_text(impl_->model, *impl_->backend, impl_->options, impl_->sizes) +
         "\nmemory: " + impl_->memory.text();
}

// The steps of a session look at a flag for the length of one request.
class AbortScope {
 public:
  AbortScope(Session& session, const std::atomic<bool>* abort) : session_(session) {
    session_.set_abort(abort);
  }
  ~AbortScope() { session_.set_abort(nullptr); }
  AbortScope(const AbortScope&) = delete;
  AbortScope& operator=(const AbortScope&) = delete;

 private:
  Session& session_;
};

// The stop rules and the text of one answer, token by token.
class Engine::Answer {
 public:
  Answer(Impl& engine, const GenerateRequest& request, int64_t limit, GenerateResult& result,
         const std::function<bool(const TokenEvent&)>& on_token)
      : e_(engine),
        request_(request),
        limit_(limit),
        result_(result),
        on_token_(on_token),
        matcher_(request.stop) {
    if (e_.tokenizer) detokenizer_.emplace(*e_.tokenizer);
  }

  // Takes the next token and, where log-probabilities are wanted, the logits that chose it; false
  // when the answer is over.
  // `more`: whether the next one is known already.
  bool take(int32_t id, std::span<const float> logits, bool more) {
    ++result_.timings.output_tokens;
    TokenEvent event;
    event.id = id;
    event.more = more;
    if (request_.top_logprobs >= 0) {
      e_.sampler.logprobs(logits, request_.top_logprobs, id, event.logprob, e_.top);
      event.top = e_.top;
    }
    const bool ended = !request_.ignore_eos && e_.is_end(id);
    event.is_end = ended;
    std::string text;
    if (!ended) {
      result_.tokens.push_back(id);
      if (detokenizer_) text = matcher_.push(detokenizer_->push(id));
      event.is_markup = e_.tokenizer && e_.tokenizer->is_added(id);
    }
    const bool full = static_cast<int64_t>(result_.tokens.size()) >= limit_;
    if ((ended || full) && detokenizer_ && !matcher_.stopped()) {
      text += matcher_.push(detokenizer_->finish());
      if (!matcher_.stopped()) text += matcher_.finish();
    }
    event.text = text;
    result_.text += text;
    result_.reason = ended || matcher_.stopped() ? FinishReason::kStop : FinishReason::kLength;
    const bool wanted = on_token_(event);
    if (ended || full || matcher_.stopped()) return false;
    if (!wanted) result_.reason = FinishReason::kCancelled;
    return wanted;
  }

 private:
  Impl& e_;
  const GenerateRequest& request_;
  int64_t limit_;
  GenerateResult& result_;
  const std::function<bool(const TokenEvent&)>& on_token_;
  StopMatcher matcher_;
  std::optional<Detokenizer> detokenizer_;
};

GenerateResult Engine::generate(const GenerateRequest& request,
                                const std::function<bool(const TokenEvent&)>& on_token) {
  Impl& e = *impl_;
  const auto given = static_cast<int64_t>(request.prompt.size());
  for (int64_t i = 0; i < given; ++i) {
    if (request.prompt[i] < 0 || request.prompt[i] >= e.config.shape.vocab)
      fail_input("prompt token ", i, ": expected an id from 0 to ", e.config.shape.vocab - 1,
                 ", found ", request.prompt[i]);
  }
  std::vector<int32_t> aligned;
  if (!request.shares_prompt) e.session->forget_mark();
  if (request.match_text && e.tokenizer) {
    aligned = align_prompt(e.session->tokens(), request.prompt, *e.tokenizer);
    // The choice before may have read the prompt in the session's ids.
    if (!e.session->marked().empty() && aligned == request.prompt)
      aligned = align_prompt(e.session->marked(), request.prompt, *e.tokenizer);
  }
  const std::vector<int32_t>& prompt = aligned.empty() ? request.prompt : aligned;
  const auto prompt_size = static_cast<int64_t>(prompt.size());
  check_params(request.sampling, e.config.shape.vocab);
  if (prompt.empty()) fail_input("prompt: expected at least one token, found none");
  if (prompt_size >= e.memory.context)
    fail_input("prompt: expected at most ", e.memory.context - 1, " tokens (context ",
               e.memory.context, "), found ", prompt_size);
  const int64_t room = e.memory.context - prompt_size;
  const int64_t limit = request.max_tokens > 0 ? std::min(request.max_tokens, room) : room;

  const auto cancelled = [&] { return request.cancel && request.cancel->load(); };
  GenerateResult result;
  Timings& timings = result.timings;
  timings.prompt_tokens = prompt_size;
  // Room for an answer of usual length, so that tokens do not allocate.
  result.tokens.reserve(static_cast<size_t>(std::min<int64_t>(limit, 1 << 16)));
  result.text.reserve(static_cast<size_t>(std::min<int64_t>(4 * limit, 1 << 18)));
  Answer answer(e, request, limit, result, on_token);

  const AbortScope scope(*e.session, request.abort);
  const Clock::time_point start = Clock::now();
  Session::Synced synced;
  try {
    synced = e.session->sync(prompt, [&] { return !cancelled(); });
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInterrupted) throw;
    synced.complete = false;
  }
  timings.cached_tokens = synced.reused;
  timings.read_tokens = static_cast<int64_t>(e.session->tokens().size()) - synced.reused;
  timings.prefill_seconds = seconds_since(start);
  if (!synced.complete) {
    result.reason = FinishReason::kCancelled;
    return result;
  }
  if (request.shares_prompt) e.session->mark();
  e.sampler.reset(prompt);
  std::span<const float> logits = e.session->logits();
  const auto forced_next = [&] { return request.force ? request.force() : -1; };
  int32_t forced = forced_next();
  int32_t last = forced >= 0 ? forced : e.sampler.sample(logits, request.sampling, prompt_size);
  e.sampler.accept(last);
  timings.prefill_seconds = seconds_since(start);
  if (request.on_prompt) request.on_prompt(timings);
  const Clock::time_point first_token = Clock::now();
  const Counters before = e.backend->counters();
  bool open = answer.take(last, logits, false);

  const bool greedy_or_seeded = request.seeded || is_greedy(request.sampling);
  const AcceptRule rule = greedy_or_seeded ? AcceptRule::kCoupled : AcceptRule::kRejection;
  std::optional<DepthPolicy> own;
  if (request.draft) own.emplace(*request.draft, e.session->can_draft() ? kMaxDrafts : 0);
  DepthPolicy& policy = own ? *own : *e.policy;
  policy.begin_answer();
  while (open && !cancelled()) {
    const int64_t left = limit - static_cast<int64_t>(result.tokens.size());
    forced = forced_next();
    const int most = forced >= 0 ? 0 : static_cast<int>(std::min<int64_t>(left - 1, kMaxDrafts));
    const int depth = policy.next(most);
    CycleResult cycle;
    try {
      cycle = e.session->cycle(last, depth, rule, e.sampler, request.sampling);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInterrupted) throw;
      break;  // open: cancelled
    }
    policy.observe(cycle);
    if (policy.gave_up() && !e.warned_of_drafts) {
      e.warned_of_drafts = true;
      log_warn(cat("drafts off for the rest of this answer: ", DepthPolicy::kWatched,
                   " verify passes brought less than ", DepthPolicy::kLeastAccepted,
                   " tokens each; `sparkling doctor` checks the draft layer"));
    }
    timings.drafts.add(cycle);
    for (int i = 0; open && i < cycle.count; ++i) {
      last = cycle.tokens[i];
      if (forced >= 0 && last != forced) {
        e.sampler.retract(last);
        e.sampler.accept(forced);
        last = forced;
      }
      // Reading a row costs more than choosing from it on a device.
      const auto row =
          request.top_logprobs >= 0 ? e.session->cycle_logits(i) : std::span<const float>{};
      open = answer.take(last, row, i + 1 < cycle.count);
      if (!open) e.session->keep(i + 1);
      if (open && i + 1 < cycle.count && forced_next() >= 0) {
        // What follows must be another token than the drafts said; the next pass runs without
        // drafts.
        e.session->keep(i + 1);
        for (int j = cycle.count - 1; j > i; --j) e.sampler.retract(cycle.tokens[j]);
        break;
      }
    }
  }
  if (open) result.reason = FinishReason::kCancelled;
  timings.decode_seconds = seconds_since(first_token);
  const Counters& after = e.backend->counters();
  timings.weight_bytes = after.weight_bytes - before.weight_bytes;
  timings.state_bytes = after.state_bytes - before.state_bytes;
  return result;
}

void Engine::logits(const LogitsRequest& request,
                    const std::function<void(int64_t, std::span<const float>)>& row) {
  Impl& e = *impl_;
  const auto n = static_cast<int64_t>(request.tokens.size());
  const int64_t vocab = e.config.shape.vocab;
  for (int64_t i = 0; i < n; ++i) {
    if (request.tokens[i] < 0 || request.tokens[i] >= vocab)
      fail_input("token ", i, ": expected an id from 0 to ", vocab - 1, ", found ",
                 request.tokens[i]);
  }
  if (n == 0) fail_input("tokens: expected at least one, found none");
  if (n > e.memory.context)
    fail_input("tokens: expected at most ", e.memory.context, " (the context), found ", n);
  if (request.mtp && !e.model.mtp)
    fail_input("mtp: expected a checkpoint with an MTP layer, found none in this one");
  const int64_t moe = e.config.moe_layers(), top_k = e.config.shape.top_k;
  const int64_t columns = (moe + 1) * top_k;
  const bool forced = !request.routes_in.empty();
  if (forced && static_cast<int64_t>(request.routes_in.size()) != n * columns)
    fail_input("routes: expected ", n, " x ", columns, " ids, found ", request.routes_in.size());
  for (int64_t i = 0; forced && i < n; ++i) {
    // The MTP layer's column is used only for pairs, which end one row early.
    const int64_t used = e.model.mtp && request.mtp && i + 1 < n ? columns : moe * top_k;
    for (int64_t c = 0; c < used; ++c) {
      const int32_t id = request.routes_in[i * columns + c];
      if (id < 0 || id >= e.config.shape.experts)
        fail_input("routes: row ", i, ", layer column ", c / top_k,
                   ": expected an expert from 0 to ", e.config.shape.experts - 1, ", found ", id);
    }
  }
  if ((forced || request.routes_out) && e.routes.rows < n) {
    e.routes = {e.backend->alloc(static_cast<size_t>(n * columns) * sizeof(int32_t), "routes"), 0,
                n, columns, columns};
  }
  std::vector<int32_t> table(static_cast<size_t>(n * columns), -1);
  if (forced) table.assign(request.routes_in.begin(), request.routes_in.end());
  if (forced || request.routes_out) e.backend->write(table.data(), e.routes.slice_rows(0, n));

  Session& session = *e.session;
  const int64_t chunk = request.chunk ? std::min(request.chunk, session.chunk()) : session.chunk();
  const auto emit = [&](int64_t first, const Rows& hidden) {
    for (int64_t at = 0; at < hidden.rows; at += session.head_rows()) {
      const int64_t count = std::min(session.head_rows(), hidden.rows - at);
      const std::span<const float> out = session.logits_of(hidden.slice_rows(at, count));
      for (int64_t i = 0; i < count; ++i)
        row(first + at + i,
            out.subspan(static_cast<size_t>(i * vocab), static_cast<size_t>(vocab)));
    }
  };
  session.reset();
  for (int64_t at = 0; at < n; at += chunk) {
    const int64_t count = std::min(chunk, n - at);
    Advance step{request.tokens.subspan(static_cast<size_t>(at), static_cast<size_t>(count)),
                 count == 1 ? StepKind::kDecode : StepKind::kPrefill,
                 true,
                 {},
                 {}};
    if (forced) step.routes_in = e.routes;
    if (!forced && request.routes_out) step.routes_out = e.routes;
    session.advance(step);
    if (!request.mtp) emit(at, session.hidden_rows(0, count));
    if (e.model.mtp && (request.mtp || (request.routes_out && !forced))) {
      session.advance_mtp(step, [&](int64_t first, const Rows& rows) {
        if (request.mtp) emit(first, rows);
      });
    }
    session.carry();
  }
  if (request.routes_out) {
    e.backend->read(e.routes.slice_rows(0, n), table.data());
    *request.routes_out = std::move(table);
  }
}

}  // namespace spk
