// OpenAI's chat completions: reading the body, writing whole answers and chunks.
#include "server/fields.h"
#include "server/openai_messages.h"
#include "server/openai_text.h"
#include "server/routes.h"

namespace spk::server {
namespace {

class ChatWriter : public AnswerWriter {
 public:
  ChatWriter(const Tokenizer& tokenizer, bool usage, bool logprobs, bool times)
      : tokenizer_(tokenizer), usage_(usage), logprobs_(logprobs), times_(times) {}

  std::string whole(const Answer& answer) override {
    JsonWriter w;
    write_head(w, answer, "chat.completion");
    w.key("choices").array();
    int index = 0;
    for (const ChoiceText& choice : answer.choices) {
      w.object().field("index", index++).key("message").object().field("role", "assistant");
      w.key("content");
      // With calls and no words OpenAI's clients expect null, in every other case a string.
      choice.content.empty() && !choice.calls.empty() ? w.null() : w.string(choice.content);
      w.key("refusal").null();
      if (!choice.reasoning.empty()) w.field("reasoning_content", choice.reasoning);
      if (!choice.calls.empty()) {
        w.key("tool_calls").array();
        for (const ToolCall& call : choice.calls) {
          w.object().field("id", call.id).field("type", "function").key("function").object();
          w.field("name", call.name).field("arguments", call.arguments).end().end();
        }
        w.end();
      }
      w.end().key("logprobs");
      logprobs_ ? write_logprobs(w, tokenizer_, choice.scores) : static_cast<void>(w.null());
      w.field("finish_reason", finish_name(choice.result.finish)).end();
    }
    w.end();
    write_account(w, answer);
    return w.end().take();
  }

  // The role comes at once: it carries the id, which stop_thinking needs.
  void open(const Answer& answer, std::string& out) override {
    for (size_t i = 0; i < answer.choices.size(); ++i) {
      chunk(answer, static_cast<int>(i), out, [](JsonWriter& w) {
        w.key("delta").object().field("role", "assistant").field("content", "").end();
      });
    }
  }

  void event(const Answer& answer, const JobEvent& event, std::string& out) override {
    using Kind = JobEvent::Kind;
    if (event.kind == Kind::kStarted || event.kind == Kind::kToolEnd) return;
    chunk(answer, event.choice, out, [&](JsonWriter& w) {
      w.key("delta").object();
      if (event.kind == Kind::kReasoning) w.field("reasoning_content", event.text);
      if (event.kind == Kind::kContent) w.field("content", event.text);
      if (event.kind == Kind::kToolBegin || event.kind == Kind::kArguments)
        tool_delta(w, answer, event);
      w.end();
      if (logprobs_ && event.kind == Kind::kContent) {
        w.key("logprobs");
        write_logprobs(w, tokenizer_, event.scores);
      }
      if (times_) {
        // On the clock that the client of the same machine reads as CLOCK_MONOTONIC.
        made_us_ =
            std::chrono::duration_cast<std::chrono::microseconds>(event.made.time_since_epoch())
                .count();
      }
      if (event.kind == Kind::kChoiceEnd) finish_ = finish_name(event_result(answer, event).finish);
    });
  }

  void close(const Answer& answer, std::string& out) override {
    close_stream(answer, "chat.completion.chunk", usage_, out);
  }

  void failed(const Answer&, const ApiError& error, std::string& out) override {
    add_event(out, openai_error(error));
  }

 private:
  static const ChoiceResult& event_result(const Answer& answer, const JobEvent& event) {
    return answer.choices[static_cast<size_t>(event.choice)].result;
  }

  static void tool_delta(JsonWriter& w, const Answer& answer, const JobEvent& event) {
    const bool begin = event.kind == JobEvent::Kind::kToolBegin;
    const auto& calls = answer.choices[static_cast<size_t>(event.choice)].calls;
    w.key("tool_calls").array().object().field("index", static_cast<int64_t>(event.call));
    if (begin) w.field("id", calls[event.call].id).field("type", "function");
    w.key("function").object();
    if (begin) w.field("name", event.text);
    w.field("arguments", begin ? std::string_view() : std::string_view(event.text));
    w.end().end().end();
  }

  template <typename Fill>
  void chunk(const Answer& answer, int choice, std::string& out, Fill fill) {
    JsonWriter w;
    write_head(w, answer, "chat.completion.chunk");
    w.key("choices").array().object().field("index", choice);
    fill(w);
    w.key("finish_reason");
    finish_.empty() ? w.null() : w.string(finish_);
    w.end().end();
    if (times_) w.field("engine_us", made_us_);
    if (usage_) w.key("usage").null();
    if (!finish_.empty() && !usage_) w.key("timings").raw(timings_json(answer));
    finish_ = {};
    add_event(out, w.end().take());
  }

  const Tokenizer& tokenizer_;
  const bool usage_;
  const bool logprobs_;
  const bool times_;
  int64_t made_us_ = 0;
  std::string_view finish_;
};

}  // namespace

Call read_chat(Service& service, std::string_view text) {
  const JsonDocument document(text);
  const JsonValue body = document.root();
  bool usage = false;
  Call call = read_openai_call(body, service.options, "chat",
                               {{"functions", ""},
                                {"function_call", "\"none\""},
                                {"audio", ""},
                                {"modalities", "[\"text\"]"},
                                {"web_search_options", ""},
                                {"echo", ""}},
                               usage);
  JobRequest& job = call.job;
  const bool logprobs = body.boolean_or("logprobs", false);
  const auto top = body.find("top_logprobs");
  if (top && !logprobs && top->integer(0, 20) > 0)
    bad_field("top_logprobs", "expected logprobs: true beside it");
  if (logprobs) job.top_logprobs = top ? static_cast<int>(top->integer(0, 20)) : 0;
  constexpr int64_t kMost = int64_t{1} << 31;
  for (const char* name : {"max_tokens", "max_completion_tokens"})
    job.max_tokens = body.integer_or(name, 1, kMost, job.max_tokens);
  ChatInput chat = read_openai_chat(body, service.options);
  job.id = call.answer.id = new_id("chatcmpl-");
  prepare_chat(service, std::move(chat), call);
  call.writer = std::make_unique<ChatWriter>(service.tokenizer(), usage, logprobs,
                                             body.boolean_or("token_times", false));
  return call;
}

void chat_completions(Service& service, const HttpRequest& request, HttpReply& reply) {
  run_call(service, read_chat(service, request.body()), request, reply);
}

}  // namespace spk::server
