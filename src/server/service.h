// What every route of the server may use, and an answer on its way: the API-neutral middle of the
// server.
//
// A translator reads its API's JSON into a Call (what to generate, how to write the answer) and
// that is all it does; exchange.cc runs a Call: queue, events, keep-alive, a client that goes away,
// the log row.
#pragma once

#include "engine/jobs.h"
#include "server/api_error.h"
#include "server/http.h"
#include "server/metrics.h"
#include "server/turn_memory.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace spk::server {

struct ServerOptions {
  HttpOptions http;
  std::string api_key;             // empty: none
  std::vector<std::string> cors;   // origins that pages may come from, "https://example.org"
  size_t queue = 16;               // requests that may wait
  double keep_alive_seconds = 10;  // 0: no comments
  double drain_seconds = 30;
  std::string model_name;
  std::string build;  // of /props and system_fingerprint
  bool log_prompts = false;
  SamplerParams sampling;  // defaults; seed is drawn per request
  bool thinking = true;
  int64_t thinking_budget = -1;
  const LoadProgress* progress = nullptr;  // of the model that is being loaded
  int64_t started = 0;                     // seconds since 1970, `created` of the model
};

struct Service {
  const ServerOptions& options;
  Jobs& jobs;
  TurnMemory& turns;
  Metrics& metrics;

  const Engine& engine() const { return jobs.engine(); }
  const Tokenizer& tokenizer() const { return *engine().tokenizer(); }
};

// One choice as it has been delivered so far.
struct ChoiceText {
  std::string reasoning, content;
  std::vector<ToolCall> calls;
  std::vector<TokenScore> scores;
  ChoiceResult result;
};

struct Answer {
  std::string id;
  std::string model;
  std::string build;
  std::string call_prefix = "call_";
  int64_t created = 0;
  int64_t prompt_tokens = 0;
  std::vector<ChoiceText> choices;
  double queue_seconds = 0, first_token_seconds = 0, total_seconds = 0;

  int64_t completion_tokens() const;
  int64_t reasoning_tokens() const;
  int64_t cached_tokens() const;
};

// The outgoing side of one API, for one answer. Every function appends to `out`.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  // The whole answer at once.
  virtual std::string whole(const Answer& answer) = 0;
  // As a stream of server-sent events. open: the header is out, nothing is known yet. event:
  // `answer` holds it already.
  virtual void open(const Answer&, std::string& out) { (void)out; }
  virtual void event(const Answer& answer, const JobEvent& event, std::string& out) = 0;
  virtual void close(const Answer& answer, std::string& out) = 0;
  virtual void failed(const Answer& answer, const ApiError& error, std::string& out) = 0;
};

struct Call {
  JobRequest job;
  bool stream = false;
  bool thinking_open = false;  // the prompt ends inside <think>: for the memory of turns
  std::string endpoint;        // for log and metrics
  Answer answer;
  std::unique_ptr<AnswerWriter> writer;
};

// Runs a call and fills the reply. Throws ApiError while nothing has been sent.
void run_call(Service& service, Call call, const HttpRequest& request, HttpReply& reply);

// "chatcmpl-" and 24 random characters.
std::string new_id(std::string_view prefix);

// `timings` of an answer as JSON.
std::string timings_json(const Answer& answer);

}  // namespace spk::server
