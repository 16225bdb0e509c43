// Anthropic's Messages: reading the body, counting its tokens.
#include "server/anthropic_write.h"
#include "server/fields.h"
#include "server/json_write.h"
#include "server/routes.h"

namespace spk::server {
namespace {

// Text of a list of blocks that may hold text only: system, tool_result.
std::string read_blocks_text(const JsonValue& content) {
  if (content.is_string()) return content.string();
  std::string text;
  for (const JsonValue& block : content.elements()) {
    const std::string type = block.need("type").string();
    if (type != "text")
      unsupported(block.path(), "expected a block of type text, found '", type.substr(0, 40),
                  "': this model reads and writes text only");
    if (!text.empty()) text += '\n';
    text += block.need("text").string();
  }
  return text;
}

// Assistant messages in a row are one turn, as this API says: a client that sends the blocks of a
// turn one by one gets the turn back.
void read_assistant(const JsonValue& content, std::vector<Message>& out) {
  if (out.empty() || out.back().role != "assistant") out.push_back({"assistant", "", "", {}, {}});
  Message& message = out.back();
  if (content.is_string()) {
    message.content += content.string();
    return;
  }
  for (const JsonValue& block : content.elements()) {
    const std::string type = block.need("type").string();
    if (type == "text") {
      message.content += block.need("text").string();
    } else if (type == "thinking") {
      message.reasoning += block.need("thinking").string();
    } else if (type == "redacted_thinking") {
      continue;  // nothing in it can be read
    } else if (type == "tool_use") {
      const JsonValue input = block.need("input");
      if (!input.is_object()) input.expected("an object");
      message.tool_calls.push_back(
          {block.string_or("id", ""), block.need("name").string(), input.dump(), true});
    } else {
      unsupported(block.path(), "expected text, thinking or tool_use, found '", type.substr(0, 40),
                  "'");
    }
  }
}

// One user message may hold results of calls and then words: results are turns of their own.
void read_user(const JsonValue& content, std::vector<Message>& out) {
  if (content.is_string()) {
    out.push_back({"user", content.string(), "", {}, {}});
    return;
  }
  std::string text;
  bool any = false;
  for (const JsonValue& block : content.elements()) {
    const std::string type = block.need("type").string();
    if (type == "text") {
      if (!text.empty()) text += '\n';
      text += block.need("text").string();
      any = true;
    } else if (type == "tool_result") {
      check_text(block, "tool_use_id");
      const auto result = block.find("content");
      std::string words = result ? read_blocks_text(*result) : "";
      if (block.boolean_or("is_error", false)) words.insert(0, "Error: ");
      out.push_back({"tool", std::move(words), "", {}, {}});
    } else {
      unsupported(block.path(), "expected text or tool_result, found '", type.substr(0, 40),
                  "': this model reads and writes text only");
    }
  }
  if (any || content.size() == 0) out.push_back({"user", std::move(text), "", {}, {}});
}

ChatInput read_chat_input(const JsonValue& body, const ServerOptions& options) {
  refuse_fields(body, {{"mcp_servers", ""}, {"container", ""}, {"output_format", ""}});
  ChatInput chat;
  if (const auto system = body.find("system"))
    chat.messages.push_back({"system", read_blocks_text(*system), "", {}, {}});
  const JsonValue messages = body.need("messages");
  if (messages.is_array() && messages.size() == 0) messages.expected("at least one message");
  for (const JsonValue& item : messages.elements()) {
    const JsonValue role = item.need("role");
    const std::string name = role.string();
    const JsonValue content = item.need("content");
    if (name == "user")
      read_user(content, chat.messages);
    else if (name == "assistant")
      read_assistant(content, chat.messages);
    else if (name == "system")
      chat.messages.push_back({"system", read_blocks_text(content), "", {}, {}});
    else
      role.expected("user, assistant or system");
  }
  if (chat.messages.back().role == "assistant")
    unsupported("messages",
                "expected a last message of role user; an answer cannot be begun by the client");
  if (const auto tools = body.find("tools")) {
    for (const JsonValue& tool : tools->elements()) {
      const std::string type = tool.string_or("type", "custom");
      if (type != "custom")
        unsupported(tool.path() + ".type", "expected custom, found '", type.substr(0, 40),
                    "': tools that the server itself runs are not here");
      chat.tools.push_back(read_flat_tool(tool, "input_schema"));
    }
  }
  if (const auto choice = body.find("tool_choice")) {
    const std::string type = choice->need("type").string();
    if (type == "none")
      chat.may_call = false;
    else if (type != "auto")
      unsupported("tool_choice", "expected type auto or none, found '", type.substr(0, 40),
                  "': calls cannot be forced in this version");
    chat.one_call = choice->boolean_or("disable_parallel_tool_use", false);
  }
  std::optional<JsonValue> effort;
  if (const auto output = body.find("output_config")) {
    refuse_fields(*output, {{"format", ""}});
    effort = output->find("effort");
  }
  chat.thinking = read_thinking(body, effort, {false, options.thinking_budget});
  return chat;
}

}  // namespace

Call read_messages(Service& service, std::string_view text) {
  const JsonDocument document(text);
  const JsonValue body = document.root();
  Call call = begin_call(body, service.options, "messages", true);
  JobRequest& job = call.job;
  job.max_tokens = body.need("max_tokens").integer(1, int64_t{1} << 31);
  if (const auto stop = body.find("stop_sequences")) job.stop = read_stop(*stop);
  ChatInput chat = read_chat_input(body, service.options);
  if (const auto metadata = body.find("metadata")) job.client = metadata->string_or("user_id", "");
  job.id = call.answer.id = new_id("msg_");
  call.answer.call_prefix = "toolu_";
  prepare_chat(service, std::move(chat), call);
  call.writer = make_anthropic_writer();
  return call;
}

void messages(Service& service, const HttpRequest& request, HttpReply& reply) {
  run_call(service, read_messages(service, request.body()), request, reply);
}

void count_tokens(Service& service, const HttpRequest& request, HttpReply& reply) {
  const JsonDocument document(request.body());
  ChatInput chat = read_chat_input(document.root(), service.options);
  const auto tokens = encode_chat(service.tokenizer(), render(service, chat)).size();
  JsonWriter w;
  reply.body = w.object().field("input_tokens", static_cast<int64_t>(tokens)).end().take();
}

}  // namespace spk::server
