#include "server/openai_messages.h"

namespace spk::server {
namespace {

std::vector<ToolCall> read_calls(const JsonValue& list) {
  std::vector<ToolCall> calls;
  for (const JsonValue& item : list.elements()) {
    const std::string type = item.string_or("type", "function");
    if (type != "function")
      unsupported(item.path() + ".type", "expected function, found '", type.substr(0, 40), "'");
    const JsonValue function = item.need("function");
    ToolCall call;
    call.id = item.string_or("id", "");
    call.name = function.need("name").string();
    if (const auto arguments = function.find("arguments"))
      call.arguments = read_arguments(*arguments);
    calls.push_back(std::move(call));
  }
  return calls;
}

Message read_message(const JsonValue& item) {
  Message message;
  const JsonValue role = item.need("role");
  message.role = role.string();
  const auto content = item.find("content");
  if (content) message.content = read_text(*content);
  if (message.role == "assistant") {
    for (const char* name : {"reasoning_content", "reasoning"}) {
      const std::string text = item.string_or(name, "");
      if (message.reasoning.empty()) message.reasoning = text;
    }
    if (const auto calls = item.find("tool_calls")) message.tool_calls = read_calls(*calls);
    if (const auto call = item.find("function_call")) {
      ToolCall old{"", call->need("name").string(), "", true};
      if (const auto arguments = call->find("arguments"))
        old.arguments = read_arguments(*arguments);
      message.tool_calls.push_back(std::move(old));
    }
    if (item.find("audio"))
      unsupported(item.path() + ".audio", "this model reads and writes text only");
  } else if (message.role == "system" || message.role == "developer" || message.role == "user" ||
             message.role == "tool" || message.role == "function") {
    if (!content) item.need("content");
    check_text(item, "tool_call_id");
  } else {
    role.expected("system, developer, user, assistant, tool or function");
  }
  check_text(item, "name");
  return message;
}

}  // namespace

Call read_openai_call(const JsonValue& body, const ServerOptions& options, const char* endpoint,
                      std::initializer_list<Refused> refused, bool& usage) {
  refuse_fields(body, {{"best_of", "1"}});
  refuse_fields(body, refused);
  Call call = begin_call(body, options, endpoint, false);
  usage = false;
  if (const auto stream_options = body.find("stream_options")) {
    usage = stream_options->boolean_or("include_usage", false);
    if (!call.stream) bad_field("stream_options", "expected stream: true beside it");
  }
  call.job.client = body.string_or("prompt_cache_key", body.string_or("user", ""));
  return call;
}

ChatInput read_openai_chat(const JsonValue& body, const ServerOptions& options) {
  ChatInput chat;
  const JsonValue messages = body.need("messages");
  for (const JsonValue& item : messages.elements()) chat.messages.push_back(read_message(item));
  if (chat.messages.empty()) messages.expected("at least one message");
  if (const auto tools = body.find("tools")) {
    for (const JsonValue& tool : tools->elements()) chat.tools.push_back(read_chat_tool(tool));
  }
  read_tool_choice(body, chat);
  std::optional<JsonValue> effort = body.find("reasoning_effort");
  if (const auto reasoning = body.find("reasoning")) {
    const auto nested = reasoning->find("effort");
    if (!effort) effort = nested;
  }
  chat.thinking = read_thinking(body, effort, {options.thinking, options.thinking_budget});
  return chat;
}

}  // namespace spk::server
