// OpenAI's Responses, without a store: the whole input comes with every request.
#include "server/fields.h"
#include "server/json_write.h"
#include "server/responses_write.h"
#include "server/routes.h"

namespace spk::server {
namespace {

// Items of one assistant turn come one after the other; they belong into one message.
class Turns {
 public:
  void assistant_text(const std::string& text) {
    Message& turn = assistant();
    turn.content += text;
  }
  void reasoning(const std::string& text) {
    // Reasoning opens a turn: after an answer or a call the next thought is of a new one.
    if (!messages.empty() && messages.back().role == "assistant" &&
        (!messages.back().content.empty() || !messages.back().tool_calls.empty()))
      messages.push_back({"assistant", "", "", {}, {}});
    assistant().reasoning += text;
  }
  void call(ToolCall call) { assistant().tool_calls.push_back(std::move(call)); }
  void other(std::string role, std::string text) {
    messages.push_back({std::move(role), std::move(text), "", {}, {}});
  }
  std::vector<Message> messages;

 private:
  Message& assistant() {
    if (messages.empty() || messages.back().role != "assistant")
      messages.push_back({"assistant", "", "", {}, {}});
    return messages.back();
  }
};

void read_reasoning(const JsonValue& item, Turns& turns) {
  std::string text;
  for (const char* list : {"content", "summary"}) {
    const auto parts = item.find(list);
    if (!parts || !text.empty()) continue;
    for (const JsonValue& part : parts->elements()) text += part.string_or("text", "");
  }
  turns.reasoning(text);
}

// What stands before the name of a function of a group (Codex: one per MCP server), so that the
// model sees one flat list.
std::string group_prefix(const std::string& group) {
  if (group.empty() || group.ends_with('_')) return group;
  return group + "__";
}

void read_item(const JsonValue& item, Turns& turns) {
  const std::string type = item.string_or("type", "message");
  if (type == "message") {
    const JsonValue role = item.need("role");
    const std::string name = role.string();
    const std::string text = read_text(item.need("content"));
    if (name == "assistant")
      turns.assistant_text(text);
    else if (name == "system" || name == "developer" || name == "user")
      turns.other(name, text);
    else
      role.expected("system, developer, user or assistant");
  } else if (type == "function_call") {
    const std::string prefix = group_prefix(item.string_or("namespace", ""));
    turns.call({item.need("call_id").string(), prefix + item.need("name").string(),
                read_arguments(item.need("arguments")), true});
  } else if (type == "function_call_output") {
    item.need("call_id").string();
    turns.other("tool", read_text(item.need("output")));
  } else if (type == "reasoning") {
    read_reasoning(item, turns);
  } else {
    unsupported(item.path(),
                "expected message, function_call, function_call_output or reasoning, found '",
                type.substr(0, 40), "'");
  }
}

std::vector<std::string> read_tools(const JsonValue& list, GroupedNames& grouped) {
  std::vector<std::string> tools;
  const auto function = [&](const JsonValue& tool, const std::string& group) {
    const std::string type = tool.need("type").string();
    if (type != "function")
      unsupported(tool.path() + ".type", "expected function, found '", type.substr(0, 40),
                  "': tools that the server itself runs, and free-form ones, are not here");
    const std::string prefix = group_prefix(group);
    tools.push_back(read_flat_tool(tool, "parameters", prefix));
    if (group.empty()) return;
    const std::string name = tool.need("name").string();
    grouped[prefix + name] = {group, name};
  };
  for (const JsonValue& tool : list.elements()) {
    if (tool.need("type").string() != "namespace") {
      function(tool, "");
      continue;
    }
    const JsonValue name = tool.need("name");
    if (name.string().empty()) name.expected("a name");
    for (const JsonValue& inner : tool.need("tools").elements()) function(inner, name.string());
  }
  return tools;
}

RequestEcho echo_of(const JsonValue& body, const Call& call, const ChatInput& chat) {
  RequestEcho echo;
  echo.max_output_tokens = call.job.max_tokens;
  if (const auto words = body.find("instructions")) echo.instructions = words->dump();
  if (const auto metadata = body.find("metadata")) {
    if (!metadata->is_object()) metadata->expected("an object");
    echo.metadata = metadata->dump();
  }
  if (!chat.may_call) echo.tool_choice = "\"none\"";
  if (const auto tools = body.find("tools")) echo.tools = tools->dump();
  echo.parallel = !chat.one_call;
  echo.temperature = call.job.sampling.temperature;
  echo.top_p = call.job.sampling.top_p;
  return echo;
}

}  // namespace

Call read_responses(Service& service, std::string_view text) {
  const JsonDocument document(text);
  const JsonValue body = document.root();
  if (body.find("previous_response_id"))
    unsupported("previous_response_id",
                "this server keeps no responses; send the full list of input items");
  refuse_fields(body,
                {{"conversation", ""}, {"background", ""}, {"prompt", ""}, {"top_logprobs", "0"}});
  if (const auto include = body.find("include")) {
    for (const JsonValue& part : include->elements()) {
      if (part.string() == "message.output_text.logprobs")
        unsupported(part.path(),
                    "log-probabilities are not in this API yet; chat completions have them");
    }
  }
  if (const auto format = body.find("text"))
    refuse_fields(*format, {{"format", "{\"type\":\"text\"}"}});
  Call call = begin_call(body, service.options, "responses", true);
  JobRequest& job = call.job;
  job.max_tokens = body.integer_or("max_output_tokens", 1, int64_t{1} << 31, 0);

  GroupedNames grouped;
  ChatInput chat;
  chat.field = "input";
  Turns turns;
  if (const auto words = body.find("instructions")) turns.other("system", words->string());
  const JsonValue input = body.need("input");
  if (input.is_string()) {
    turns.other("user", input.string());
  } else {
    for (const JsonValue& item : input.elements()) read_item(item, turns);
  }
  chat.messages = std::move(turns.messages);
  if (chat.messages.empty()) input.expected("at least one item");
  if (const auto tools = body.find("tools")) chat.tools = read_tools(*tools, grouped);
  read_tool_choice(body, chat);
  std::optional<JsonValue> effort;
  if (const auto reasoning = body.find("reasoning")) effort = reasoning->find("effort");
  chat.thinking =
      read_thinking(body, effort, {service.options.thinking, service.options.thinking_budget});
  job.client = body.string_or("prompt_cache_key", body.string_or("user", ""));
  job.id = call.answer.id = new_id("resp_");
  RequestEcho echo = echo_of(body, call, chat);
  prepare_chat(service, std::move(chat), call);
  call.writer = make_responses_writer(std::move(echo), std::move(grouped));
  return call;
}

void responses(Service& service, const HttpRequest& request, HttpReply& reply) {
  run_call(service, read_responses(service, request.body()), request, reply);
}

}  // namespace spk::server
