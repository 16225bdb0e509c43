#include "server/responses_write.h"

#include "server/json_write.h"
#include "server/openai_text.h"

#include <optional>
#include <utility>

namespace spk::server {
namespace {

struct Item {
  enum class Kind { kReasoning, kMessage, kCall };
  Kind kind;
  std::string id;
  std::string text;     // or the arguments
  std::string call_id;  // of a call, with its name
  std::string name;
  std::string group;  // empty: none
};

void write_item(JsonWriter& w, const Item& item, const char* status) {
  const bool begun = item.text.empty() && std::string_view(status) == "in_progress";
  w.object().field("id", item.id);
  switch (item.kind) {
    case Item::Kind::kReasoning:
      w.field("type", "reasoning").key("summary").array().end().key("content").array();
      if (!begun) w.object().field("type", "reasoning_text").field("text", item.text).end();
      w.end();
      break;
    case Item::Kind::kMessage:
      w.field("type", "message").field("role", "assistant").key("content").array();
      if (!begun) {
        w.object().field("type", "output_text").field("text", item.text);
        w.key("annotations").array().end().key("logprobs").array().end().end();
      }
      w.end();
      break;
    case Item::Kind::kCall:
      w.field("type", "function_call").field("call_id", item.call_id).field("name", item.name);
      if (!item.group.empty()) w.field("namespace", item.group);
      w.field("arguments", item.text);
      break;
  }
  w.field("status", status).end();
}

class ResponseWriter : public AnswerWriter {
 public:
  ResponseWriter(RequestEcho request, GroupedNames grouped)
      : request_(std::move(request)), grouped_(std::move(grouped)) {}

  std::string whole(const Answer& answer) override {
    const ChoiceText& choice = answer.choices.front();
    items_.clear();
    if (!choice.reasoning.empty())
      items_.push_back({Item::Kind::kReasoning, new_id("rs_"), choice.reasoning, "", "", ""});
    if (!choice.content.empty() || (choice.calls.empty() && choice.reasoning.empty()))
      items_.push_back({Item::Kind::kMessage, new_id("msg_"), choice.content, "", "", ""});
    for (const ToolCall& call : choice.calls) items_.push_back(call_item(call));
    JsonWriter w;
    response(w, answer, final_status(answer), nullptr);
    return w.take();
  }

  void open(const Answer& answer, std::string& out) override {
    for (const char* name : {"response.created", "response.in_progress"}) {
      send(name, out, [&](JsonWriter& w) {
        w.key("response");
        response(w, answer, "in_progress", nullptr);
      });
    }
  }

  void event(const Answer& answer, const JobEvent& event, std::string& out) override {
    using Kind = JobEvent::Kind;
    switch (event.kind) {
      case Kind::kReasoning:
        need(Item::Kind::kReasoning, out);
        delta("response.reasoning_text.delta", event.text, out);
        break;
      case Kind::kContent:
        if (event.text.empty()) break;
        need(Item::Kind::kMessage, out);
        delta("response.output_text.delta", event.text, out);
        break;
      case Kind::kToolBegin:
        close_item(out, "completed");
        begin(call_item({answer.choices[0].calls[event.call].id, event.text, "", true}), out);
        break;
      case Kind::kArguments:
        delta("response.function_call_arguments.delta", event.text, out);
        break;
      case Kind::kToolEnd:
        close_item(out, "completed");
        break;
      default:
        break;
    }
  }

  void close(const Answer& answer, std::string& out) override {
    const char* status = final_status(answer);
    if (items_.empty()) need(Item::Kind::kMessage, out);
    close_item(out, status);
    send(std::string_view(status) == "completed" ? "response.completed" : "response.incomplete",
         out, [&](JsonWriter& w) {
           w.key("response");
           response(w, answer, status, nullptr);
         });
  }

  void failed(const Answer& answer, const ApiError& error, std::string& out) override {
    send("response.failed", out, [&](JsonWriter& w) {
      w.key("response");
      response(w, answer, "failed", &error);
    });
  }

 private:
  Item call_item(const ToolCall& call) const {
    const auto at = grouped_.find(call.name);
    const bool grouped = at != grouped_.end();
    return {Item::Kind::kCall,
            new_id("fc_"),
            call.arguments,
            call.id,
            grouped ? at->second.name : call.name,
            grouped ? at->second.group : ""};
  }

  static const char* final_status(const Answer& answer) {
    return answer.choices.front().result.finish == JobFinish::kLength ? "incomplete" : "completed";
  }

  void response(JsonWriter& w, const Answer& answer, const char* status, const ApiError* error) {
    const bool done = std::string_view(status) != "in_progress" && error == nullptr;
    w.object().field("id", answer.id).field("object", "response");
    w.field("created_at", answer.created).field("status", status).key("error");
    if (error != nullptr)
      w.object().field("code", "server_error").field("message", error->what()).end();
    else
      w.null();
    w.key("incomplete_details");
    if (std::string_view(status) == "incomplete")
      w.object().field("reason", "max_output_tokens").end();
    else
      w.null();
    w.key("instructions").raw(request_.instructions).key("max_output_tokens");
    request_.max_output_tokens > 0 ? w.integer(request_.max_output_tokens) : w.null();
    w.field("model", answer.model).key("output").array();
    for (const Item& item : items_) {
      if (done) write_item(w, item, &item == &items_.back() ? status : "completed");
    }
    w.end().field("parallel_tool_calls", request_.parallel).key("previous_response_id").null();
    w.field("store", false).field("temperature", request_.temperature);
    w.field("top_p", request_.top_p).key("tool_choice").raw(request_.tool_choice);
    w.key("tools").raw(request_.tools).field("truncation", "disabled");
    w.key("metadata").raw(request_.metadata).key("usage");
    done ? usage(w, answer) : static_cast<void>(w.null());
    if (done) w.key("timings").raw(timings_json(answer));
    w.end();
  }

  static void usage(JsonWriter& w, const Answer& answer) {
    const int64_t out = answer.completion_tokens();
    w.object().field("input_tokens", answer.prompt_tokens).key("input_tokens_details").object();
    w.field("cached_tokens", answer.cached_tokens()).field("cache_write_tokens", 0).end();
    w.field("output_tokens", out);
    w.key("output_tokens_details").object().field("reasoning_tokens", answer.reasoning_tokens());
    w.end().field("total_tokens", answer.prompt_tokens + out).end();
  }

  template <typename Fill>
  void send(std::string_view name, std::string& out, Fill fill) {
    JsonWriter w;
    w.object().field("type", name).field("sequence_number", sequence_++);
    fill(w);
    add_event(out, name, w.end().take());
  }

  int64_t index() const { return static_cast<int64_t>(items_.size()) - 1; }

  void need(Item::Kind kind, std::string& out) {
    if (open_ && items_.back().kind == kind) return;
    close_item(out, "completed");
    const bool thought = kind == Item::Kind::kReasoning;
    begin({kind, new_id(thought ? "rs_" : "msg_"), "", "", "", ""}, out);
  }

  void begin(Item item, std::string& out) {
    items_.push_back(std::move(item));
    open_ = true;
    send("response.output_item.added", out, [&](JsonWriter& w) {
      w.field("output_index", index()).key("item");
      write_item(w, items_.back(), "in_progress");
    });
    if (items_.back().kind == Item::Kind::kMessage) part("response.content_part.added", out);
  }

  void part(std::string_view name, std::string& out) {
    send(name, out, [&](JsonWriter& w) {
      where(w);
      w.key("part").object().field("type", "output_text").field("text", items_.back().text);
      w.key("annotations").array().end().key("logprobs").array().end().end();
    });
  }

  void where(JsonWriter& w) const {
    w.field("item_id", items_.back().id).field("output_index", index());
    if (items_.back().kind != Item::Kind::kCall) w.field("content_index", 0);
  }

  void delta(std::string_view name, const std::string& text, std::string& out) {
    items_.back().text += text;
    send(name, out, [&](JsonWriter& w) {
      where(w);
      w.field("delta", text);
      if (items_.back().kind == Item::Kind::kMessage) w.key("logprobs").array().end();
    });
  }

  void close_item(std::string& out, const char* status) {
    if (!open_) return;
    open_ = false;
    const Item& item = items_.back();
    switch (item.kind) {
      case Item::Kind::kReasoning:
        send("response.reasoning_text.done", out, [&](JsonWriter& w) {
          where(w);
          w.field("text", item.text);
        });
        break;
      case Item::Kind::kMessage:
        send("response.output_text.done", out, [&](JsonWriter& w) {
          where(w);
          w.field("text", item.text).key("logprobs").array().end();
        });
        part("response.content_part.done", out);
        break;
      case Item::Kind::kCall:
        send("response.function_call_arguments.done", out, [&](JsonWriter& w) {
          where(w);
          w.field("name", item.name).field("arguments", item.text);
        });
        break;
    }
    send("response.output_item.done", out, [&](JsonWriter& w) {
      w.field("output_index", index()).key("item");
      write_item(w, item, status);
    });
  }

  const RequestEcho request_;
  const GroupedNames grouped_;
  int64_t sequence_ = 0;
  std::vector<Item> items_;
  bool open_ = false;
};

}  // namespace

std::unique_ptr<AnswerWriter> make_responses_writer(RequestEcho request, GroupedNames grouped) {
  return std::make_unique<ResponseWriter>(std::move(request), std::move(grouped));
}

}  // namespace spk::server
