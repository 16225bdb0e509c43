#include "server/anthropic_write.h"

#include "server/json_write.h"
#include "server/openai_text.h"
#include "server/routes.h"

namespace spk::server {

std::string anthropic_error(const ApiError& error) {
  const char* type = "invalid_request_error";
  if (error.status == 401) type = "authentication_error";
  if (error.status == 403) type = "permission_error";
  if (error.status == 404) type = "not_found_error";
  if (error.status == 413) type = "request_too_large";
  if (error.status == 429) type = "rate_limit_error";
  if (error.status == 503) type = "overloaded_error";
  if (error.status == 500) type = "api_error";
  JsonWriter w;
  w.object().field("type", "error").key("error").object();
  w.field("type", type).field("message", error.what());
  return w.end().end().take();
}

namespace {

// Clients send thinking blocks back together with the signature and never look into it.
constexpr const char* kSignature = "sparkling";

std::string_view stop_reason(const ChoiceResult& result) {
  switch (result.finish) {
    case JobFinish::kLength:
      return "max_tokens";
    case JobFinish::kToolCalls:
      return "tool_use";
    default:
      return result.stop_string.empty() ? "end_turn" : "stop_sequence";
  }
}

void write_stop(JsonWriter& w, const ChoiceResult& result) {
  w.field("stop_reason", stop_reason(result)).key("stop_sequence");
  result.stop_string.empty() ? w.null() : w.string(result.stop_string);
}

// input_tokens are those that were read, as that API counts them.
void write_anthropic_usage(JsonWriter& w, const Answer& answer) {
  w.object()
      .field("input_tokens", answer.prompt_tokens - answer.cached_tokens())
      .field("cache_creation_input_tokens", 0)
      .field("cache_read_input_tokens", answer.cached_tokens())
      .field("output_tokens", answer.completion_tokens())
      .key("output_tokens_details")
      .object()
      .field("thinking_tokens", answer.reasoning_tokens())
      .end()
      .end();
}

class MessageWriter : public AnswerWriter {
 public:
  std::string whole(const Answer& answer) override {
    const ChoiceText& choice = answer.choices.front();
    JsonWriter w;
    w.object().field("id", answer.id).field("type", "message").field("role", "assistant");
    w.field("model", answer.model).key("content").array();
    if (!choice.reasoning.empty()) {
      w.object().field("type", "thinking").field("thinking", choice.reasoning);
      w.field("signature", kSignature).end();
    }
    // Every message has a block; one that was cut while it thought has no empty text behind it.
    if (!choice.content.empty() || (choice.calls.empty() && choice.reasoning.empty()))
      w.object().field("type", "text").field("text", choice.content).end();
    for (const ToolCall& call : choice.calls) {
      w.object().field("type", "tool_use").field("id", call.id).field("name", call.name);
      w.key("input").raw(call.arguments.empty() ? "{}" : call.arguments).end();
    }
    w.end();
    write_stop(w, choice.result);
    w.key("usage");
    write_anthropic_usage(w, answer);
    w.key("timings").raw(timings_json(answer));
    return w.end().take();
  }

  void event(const Answer& answer, const JobEvent& event, std::string& out) override {
    using Kind = JobEvent::Kind;
    switch (event.kind) {
      case Kind::kStarted: {
        JsonWriter w;
        w.object().field("type", "message_start").key("message").object();
        w.field("id", answer.id).field("type", "message").field("role", "assistant");
        w.field("model", answer.model).key("content").array().end();
        w.key("stop_reason").null().key("stop_sequence").null().key("usage");
        write_anthropic_usage(w, answer);
        add_event(out, "message_start", w.end().end().take());
        break;
      }
      case Kind::kReasoning:
        need(Block::kThinking, out, [](JsonWriter& w) {
          w.field("type", "thinking").field("thinking", "").field("signature", "");
        });
        delta("thinking_delta", "thinking", event.text, out);
        break;
      case Kind::kContent:
        if (event.text.empty()) break;
        need(Block::kText, out, [](JsonWriter& w) { w.field("type", "text").field("text", ""); });
        delta("text_delta", "text", event.text, out);
        break;
      case Kind::kToolBegin:
        close_block(out);
        need(Block::kTool, out, [&](JsonWriter& w) {
          w.field("type", "tool_use").field("id", answer.choices[0].calls[event.call].id);
          w.field("name", event.text).key("input").object().end();
        });
        break;
      case Kind::kArguments:
        delta("input_json_delta", "partial_json", event.text, out);
        break;
      case Kind::kToolEnd:
        close_block(out);
        break;
      default:
        break;
    }
  }

  void close(const Answer& answer, std::string& out) override {
    if (index_ == 0 && block_ == Block::kNone)  // every message has a block
      need(Block::kText, out, [](JsonWriter& w) { w.field("type", "text").field("text", ""); });
    close_block(out);
    JsonWriter w;
    w.object().field("type", "message_delta").key("delta").object();
    write_stop(w, answer.choices.front().result);
    w.end().key("usage");
    write_anthropic_usage(w, answer);
    w.key("timings").raw(timings_json(answer));
    add_event(out, "message_delta", w.end().take());
    add_event(out, "message_stop", R"({"type":"message_stop"})");
  }

  void failed(const Answer&, const ApiError& error, std::string& out) override {
    add_event(out, "error", anthropic_error(error));
  }

 private:
  enum class Block { kNone, kThinking, kText, kTool };

  template <typename Fill>
  void need(Block block, std::string& out, Fill fill) {
    if (block_ == block) return;
    close_block(out);
    block_ = block;
    JsonWriter w;
    w.object().field("type", "content_block_start").field("index", index_);
    w.key("content_block").object();
    fill(w);
    add_event(out, "content_block_start", w.end().end().take());
  }

  void delta(const char* type, const char* field, std::string_view text, std::string& out) const {
    JsonWriter w;
    w.object().field("type", "content_block_delta").field("index", index_).key("delta").object();
    w.field("type", type).field(field, text);
    add_event(out, "content_block_delta", w.end().end().take());
  }

  void close_block(std::string& out) {
    if (block_ == Block::kNone) return;
    if (block_ == Block::kThinking) delta("signature_delta", "signature", kSignature, out);
    JsonWriter w;
    w.object().field("type", "content_block_stop").field("index", index_);
    add_event(out, "content_block_stop", w.end().take());
    block_ = Block::kNone;
    ++index_;
  }

  Block block_ = Block::kNone;
  int64_t index_ = 0;
};

}  // namespace

std::unique_ptr<AnswerWriter> make_anthropic_writer() { return std::make_unique<MessageWriter>(); }

}  // namespace spk::server
