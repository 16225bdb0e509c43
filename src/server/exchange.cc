// Running a call: from the queue to the last byte, whatever the API.
#include "base/log.h"
#include "server/service.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <functional>
#include <random>

namespace spk::server {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

// How often a socket is asked whether its client is still there; a client that left costs at most
// this plus one cycle.
constexpr Milliseconds kPoll{100};
// Until then an error may still become a status; afterwards the header is out.
constexpr Milliseconds kHeader{500};
// For the account of an answer that nobody waits for any more.
constexpr Milliseconds kStop{1000};

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string fixed(double value, int digits) {
  char text[48];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

class Exchange {
 public:
  Exchange(Service& service, Call call)
      : service_(service), call_(std::move(call)), start_(Clock::now()) {
    answer().choices.resize(static_cast<size_t>(call_.job.choices));
    answer().model = service.options.model_name;
    answer().build = service.options.build;
    answer().created = std::time(nullptr);
    answer().prompt_tokens = static_cast<int64_t>(call_.job.prompt.size());
    verbatim_ = call_.job.parser.has_value();
  }
  ~Exchange() {
    if (job_) job_->cancel();  // no-op after the end
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  void submit() {
    try {
      job_ = service_.jobs.submit(std::move(call_.job));
    } catch (const QueueFull& full) {
      ApiError error(
          429, "rate_limit_exceeded", "",
          cat("the queue is full: ", full.waiting, " requests are waiting; try again later"));
      error.retry_seconds = std::clamp(std::ceil(full.retry_seconds), 1.0, 60.0);
      throw error;
    }
  }

  // Waits for the end. False: the client went away.
  bool collect(const HttpRequest& request) {
    while (!over_) {
      absorb(job_->take(kPoll), nullptr);
      if (!over_ && left([&] { return request.client_gone(); })) {
        client_gone();
        return false;
      }
    }
    throw_failure();
    return true;
  }

  // Waits a moment for what can still be answered with a status.
  void settle() {
    const auto until = Clock::now() + kHeader;
    while (pending_.empty() && Clock::now() < until) pending_ = job_->take(Milliseconds(50));
    if (!pending_.empty() && pending_.front().kind == JobEvent::Kind::kFailed) {
      absorb(std::exchange(pending_, {}), nullptr);
      throw_failure();
    }
  }

  void stream(HttpWriter& to) {
    std::string out;
    call_.writer->open(answer(), out);
    absorb(std::exchange(pending_, {}), &out);
    bool good = to.write(out);
    auto last_write = Clock::now();
    const double keep_alive = service_.options.keep_alive_seconds;
    while (good && !over_) {
      out.clear();
      absorb(job_->take(kPoll), &out);
      if (left([&] { return to.client_gone(); })) {
        good = false;
        break;
      }
      if (out.empty() && keep_alive > 0 && since(last_write) >= keep_alive) {
        const size_t position = started_ ? 0 : service_.jobs.position(*job_);
        out = position > 0 ? cat(": waiting, ", position, " before\n\n") : ": working\n\n";
      }
      if (out.empty()) continue;
      good = to.write(out);
      last_write = Clock::now();
    }
    if (!good) {
      client_gone();
      return;
    }
    log(200, failure_ ? failure_->what() : "");
  }

  std::string whole() {
    std::string text = call_.writer->whole(answer());
    log(200, "");
    return text;
  }

 private:
  Answer& answer() { return call_.answer; }

  // Asks a socket whether its client has left, but not for every token.
  template <typename Ask>
  bool left(Ask ask) {
    if (Clock::now() - asked_ < kPoll) return false;
    asked_ = Clock::now();
    return ask();
  }

  // Takes events into the answer and, for a stream, writes them.
  void absorb(std::vector<JobEvent> events, std::string* out) {
    for (JobEvent& event : events) {
      ChoiceText& choice = answer().choices[static_cast<size_t>(event.choice)];
      switch (event.kind) {
        case JobEvent::Kind::kStarted:
          choice.result.timings = event.result.timings;
          if (!started_) {
            started_ = true;
            answer().first_token_seconds = since(start_);
            answer().queue_seconds =
                std::max(0.0, answer().first_token_seconds - event.result.timings.prefill_seconds);
          }
          break;
        case JobEvent::Kind::kReasoning:
          choice.reasoning += event.text;
          break;
        case JobEvent::Kind::kContent:
          choice.content += event.text;
          for (const TokenScore& score : event.scores) choice.scores.push_back(score);
          break;
        case JobEvent::Kind::kToolBegin:
          choice.calls.push_back({new_id(answer().call_prefix), event.text, "", false});
          break;
        case JobEvent::Kind::kArguments:
          choice.calls[event.call].arguments += event.text;
          break;
        case JobEvent::Kind::kToolEnd:
          choice.calls[event.call].complete = true;
          break;
        case JobEvent::Kind::kChoiceEnd:
          choice.result = std::move(event.result);
          finish_choice(choice);
          ++ended_;
          cut_ = cut_ || choice.result.finish == JobFinish::kCancelled;
          break;
        case JobEvent::Kind::kDone:
          over_ = true;
          answer().total_seconds = since(start_);
          // Nobody but the server itself cancels a job whose events are still read.
          if (cut_ || ended_ < answer().choices.size())
            failure_.emplace(503, "shutting_down", "", "the server is shutting down");
          break;
        case JobEvent::Kind::kFailed:
          over_ = true;
          answer().total_seconds = since(start_);
          failure_.emplace(event.bad_input ? 400 : 500,
                           event.bad_input ? "invalid_value" : "internal_error", "", event.text);
          break;
      }
      if (out == nullptr) continue;
      if (failure_)
        call_.writer->failed(answer(), *failure_, *out);
      else if (over_)
        call_.writer->close(answer(), *out);
      else
        call_.writer->event(answer(), event, *out);
    }
  }

  void finish_choice(ChoiceText& choice) {
    service_.metrics.answer(choice.result.timings, choice.result.reasoning_tokens,
                            answer().queue_seconds, answer().first_token_seconds);
    if (!verbatim_ || choice.calls.empty()) return;
    const bool whole = std::all_of(choice.calls.begin(), choice.calls.end(),
                                   [](const ToolCall& call) { return call.complete; });
    if (!whole || choice.result.finish != JobFinish::kToolCalls) return;
    SentTurn turn{choice.content, choice.reasoning, choice.calls, {}};
    turn.verbatim.push_back({call_.thinking_open ? "<think>" : "<think></think>", true});
    const Tokenizer& tokenizer = service_.tokenizer();
    for (const int32_t id : choice.result.tokens) {
      const bool markup = tokenizer.is_added(id);
      if (turn.verbatim.back().is_markup != markup) turn.verbatim.push_back({"", markup});
      turn.verbatim.back().text += tokenizer.token_bytes(id);
    }
    service_.turns.remember(std::move(turn));
  }

  void client_gone() {
    job_->cancel();
    // What had been generated by then belongs into the row and the counters: the engine stops
    // within a cycle or a slice of the prompt. Who still waits in the queue has nothing.
    const auto until = Clock::now() + kStop;
    while (started_ && !over_ && Clock::now() < until) absorb(job_->take(kPoll), nullptr);
    answer().total_seconds = since(start_);
    service_.metrics.client_gone();
    log(499, started_ ? "client gone" : "client gone before the first token");
  }

  void throw_failure() {
    if (failure_) throw ApiError(*failure_);
  }

  void log(int status, const std::string& reason) {
    const Answer& a = answer();
    service_.metrics.request(call_.endpoint, status);
    const ChoiceText& first = a.choices.front();
    std::string row = cat(call_.endpoint, " ", status, call_.stream ? " stream" : "", " prompt ",
                          a.prompt_tokens, " cached ", a.cached_tokens());
    if (started_) row += cat(" first ", fixed(1e3 * a.first_token_seconds, 0), " ms");
    row += cat(" out ", a.completion_tokens());
    const Timings& t = first.result.timings;
    if (t.decode_seconds > 0) row += cat(" at ", fixed(t.decode_tok_s(), 1), " tok/s");
    if (t.drafts.drafting_cycles > 0) row += cat(" accept ", fixed(t.drafts.accept_length(), 2));
    constexpr const char* kFinish[] = {"stop", "length", "tool_calls", "cancelled"};
    if (over_ && !failure_) row += cat(" ", kFinish[static_cast<int>(first.result.finish)]);
    row += cat(" total ", fixed(1e3 * a.total_seconds, 0), " ms");
    if (!reason.empty()) row += cat(" (", reason, ")");
    log_info(row);
  }

  Service& service_;
  Call call_;
  Clock::time_point start_;
  Clock::time_point asked_ = start_;
  std::shared_ptr<Job> job_;
  std::vector<JobEvent> pending_;
  std::optional<ApiError> failure_;
  bool started_ = false;
  bool over_ = false;
  bool cut_ = false;  // a choice was cancelled
  size_t ended_ = 0;
  bool verbatim_ = false;
};

}  // namespace

int64_t Answer::completion_tokens() const {
  int64_t sum = 0;
  for (const ChoiceText& choice : choices) sum += static_cast<int64_t>(choice.result.tokens.size());
  return sum;
}

int64_t Answer::reasoning_tokens() const {
  int64_t sum = 0;
  for (const ChoiceText& choice : choices) sum += choice.result.reasoning_tokens;
  return sum;
}

int64_t Answer::cached_tokens() const {
  return choices.empty() ? 0 : choices.front().result.timings.cached_tokens;
}

void run_call(Service& service, Call call, const HttpRequest& request, HttpReply& reply) {
  const bool stream = call.stream;
  std::string& client = call.job.client;
  if (client.empty()) client = request.peer();
  // The queue remembers some hundred names, which may be as long as a body.
  constexpr size_t kName = 64;
  if (client.size() > kName) client = cat("#", std::hash<std::string>()(client));
  // Owners: this call and, for a stream, the reply's function, which outlives it.
  const auto exchange = std::make_shared<Exchange>(service, std::move(call));
  exchange->submit();
  if (!stream) {
    if (exchange->collect(request)) {
      reply.body = exchange->whole();
    } else {
      reply.close = true;
    }
    return;
  }
  exchange->settle();
  reply.type = "text/event-stream";
  reply.headers.emplace_back("Cache-Control", "no-cache");
  reply.headers.emplace_back("X-Accel-Buffering", "no");
  reply.stream = [exchange](HttpWriter& to) { exchange->stream(to); };
}

std::string new_id(std::string_view prefix) {
  // Nobody may guess the next one from the last: ids of calls bring remembered turns back, and the
  // page's nonce is made here too.
  static thread_local std::random_device random;
  constexpr std::string_view kLetters =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::string id(prefix);
  for (int i = 0; i < 24; ++i) id += kLetters[random() % kLetters.size()];
  return id;
}

}  // namespace spk::server
