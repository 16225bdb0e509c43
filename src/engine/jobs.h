// Everybody's way to the one engine: a bounded fair queue, one thread that owns the engine, and a
// ring of events per job.
//
// Who asks never touches the engine and the engine never waits for who asks: a job's events go into
// a buffer that the answer's own length bounds, cancellation is a flag that the engine reads
// between prefill slices and cycles. The queue is fair by `client`: the second job of one client
// stands behind the first job of every other. Thread-safe throughout.
#pragma once

#include "engine/engine.h"
#include "text/chat_parser.h"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace spk {

// What to generate, whatever API asked for it.
struct JobRequest {
  std::string id;      // unique; the client's name for the answer
  std::string client;  // whose turn it is in the queue
  std::vector<int32_t> prompt;
  SamplerParams sampling;  // choice i runs with sampling.choice = i
  bool seeded = false;
  int choices = 1;
  int64_t max_tokens = 0;         // 0: up to the context
  std::vector<std::string> stop;  // looked for in the answer, not in reasoning or tool calls
  bool ignore_eos = false;
  int top_logprobs = -1;                // -1: none
  std::optional<ParserOptions> parser;  // absent: raw text
  int64_t thinking_budget = -1;         // reasoning tokens, then </think> is put; -1: no limit
  size_t max_calls = 0;                 // tool calls, then the answer ends; 0: no limit
};

struct TokenScore {
  std::string text;  // bytes of the token, maybe no whole characters
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;
};

enum class JobFinish : uint8_t { kStop, kLength, kToolCalls, kCancelled };

// One choice's account.
struct ChoiceResult {
  JobFinish finish = JobFinish::kStop;
  std::string stop_string;  // the one that ended it
  int64_t reasoning_tokens = 0;
  Timings timings;
  std::vector<int32_t> tokens;  // as generated, without the end token
};

struct JobEvent {
  enum class Kind : uint8_t {
    kStarted,    // first token of a choice is near: the prompt has been read; `result.timings` has
                 // its counts
    kReasoning,  // text
    kContent,    // text and the scores of the tokens that it completes
    kToolBegin,  // text: the function's name, `call` its number within the choice
    kArguments,  // text
    kToolEnd,
    kChoiceEnd,  // result
    kDone,       // all choices are over; last event
    kFailed,     // text says why; last event
  };
  Kind kind = Kind::kDone;
  int choice = 0;
  size_t call = 0;
  std::string text;
  std::vector<TokenScore> scores;
  ChoiceResult result;
  bool bad_input = false;  // kFailed: the request's fault, not ours
  std::chrono::steady_clock::time_point made;
};

class Job {
 public:
  explicit Job(JobRequest request) : request_(std::move(request)) {}

  const JobRequest& request() const { return request_; }
  // All events since the last call; waits up to `wait` for the first one.
  std::vector<JobEvent> take(std::chrono::milliseconds wait);
  void cancel() { cancel_.store(true); }
  // From now on reasoning is over: </think> is the next token. Nothing happens when it is over
  // already.
  void answer_now() { answer_now_.store(true); }

 private:
  friend class Jobs;
  friend class JobRun;
  void push(std::vector<JobEvent> events);

  JobRequest request_;
  std::atomic<bool> cancel_{false};
  std::atomic<bool> answer_now_{false};
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<JobEvent> events_;
};

struct QueueFull {
  size_t waiting;
  double retry_seconds;
};

class Jobs {
 public:
  enum class State : uint8_t { kLoading, kReady, kFailed, kClosed };
  using Load = std::function<std::unique_ptr<Engine>()>;

  // Starts the engine thread, which calls `load` first. At most `limit` jobs wait.
  Jobs(size_t limit, Load load);
  ~Jobs();
  Jobs(const Jobs&) = delete;
  Jobs& operator=(const Jobs&) = delete;

  State state() const { return state_.load(); }
  // Why loading failed, or with what the device was lost; valid when kFailed.
  const std::exception_ptr& failure() const { return failure_; }
  // Only for what never changes: config(), memory(), tokenizer(), notes(), plan_text(). Valid when
  // not loading.
  const Engine& engine() const { return *engine_; }

  // Throws QueueFull.
  // Owners: the caller, who reads events, and this object until the job is over.
  std::shared_ptr<Job> submit(JobRequest request);
  // Jobs that will be served before it; 0 when it is being served, or over.
  size_t position(const Job& job) const;
  bool answer_now(std::string_view id);

  // Read bandwidth of the engine's memory, bytes/s; 0: there is no figure. Absent until it has been
  // measured, which takes the engine thread about 0.3 s and waits for a moment without work; the
  // first call asks for it.
  std::optional<double> bandwidth();

  size_t waiting() const;  // those whose client is still there
  bool busy() const;
  void cancel_all();
  // No more jobs; returns when the engine has no work or after `limit`. True: it had none.
  bool drain(std::chrono::milliseconds limit);

 private:
  void loop(const Load& load);
  void run(Job& job);
  std::vector<const Job*> order() const;
  uint64_t last_turn(std::string_view client) const;

  const size_t limit_;
  std::atomic<State> state_{State::kLoading};
  std::exception_ptr failure_;
  std::unique_ptr<Engine> engine_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> queue_;
  std::shared_ptr<Job> running_;
  std::deque<std::string> served_;  // clients, the latest last; each once
  double job_seconds_ = 1;          // running mean, for the retry hint
  bool measure_ = false;            // the bandwidth is wanted and not known
  std::optional<double> bandwidth_;
  bool closed_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace spk
