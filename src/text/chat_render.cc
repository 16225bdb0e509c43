// Rendering: a list of turns, each a few fixed pieces around the message's own text.
#include "base/error.h"
#include "text/chat.h"
#include "text/json_text.h"

namespace spk {
namespace {

constexpr std::string_view kThinkingOn = "detailed thinking on";
constexpr std::string_view kThinkingOff = "detailed thinking off";

constexpr std::string_view kToolsBefore =
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>";
constexpr std::string_view kToolsAfter =
    "\n</tools>\n\nIf none of the functions can be used, point it out. If the given question lacks "
    "the "
    "parameters required by the function, also point it out.\nIf you need to use a function, for "
    "each "
    "function call, output the function name and arguments within the following XML format:\n"
    "<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n<arg_value>{arg-value-1}</"
    "arg_value>\n"
    "<arg_key>{arg-key-2}</arg_key>\n<arg_value>{arg-value-2}</arg_value>\n...\n</tool_call>\n";

enum class Role { kSystem, kUser, kAssistant, kTool };

Role role_of(const Message& message, size_t index) {
  const std::string& role = message.role;
  if (role == "system" || role == "developer") return Role::kSystem;
  if (role == "user") return Role::kUser;
  if (role == "assistant") return Role::kAssistant;
  if (role == "tool" || role == "function") return Role::kTool;
  fail_input("messages[", index,
             "].role: expected system, developer, user, assistant, tool or function, found '", role,
             "'");
}

class Renderer {
 public:
  explicit Renderer(const RenderOptions& options) : options_(options) {}

  // The SYSTEM turn that is always there; `text` is the first message's, or empty.
  void opening(const std::string& text) {
    const bool marked =
        text.find(kThinkingOn) != std::string::npos || text.find(kThinkingOff) != std::string::npos;
    markup("<role>SYSTEM</role>");
    plain(text);
    if (!text.empty() && (!options_.tools.empty() || !marked)) markup("\n");
    if (!options_.tools.empty()) tools();
    if (!marked) markup(options_.thinking ? kThinkingOn : kThinkingOff);
    markup("<|role_end|>");
  }

  void turn(std::string_view name, const std::string& text) {
    markup("<role>");
    markup(name);
    markup("</role>");
    plain(text);
    markup("<|role_end|>");
  }

  void assistant(const Message& message, size_t index) {
    if (!message.verbatim.empty()) {
      markup("<role>ASSISTANT</role>\n");
      for (const Segment& segment : message.verbatim) add(segment.text, segment.is_markup);
      markup("<|role_end|>");
      return;
    }
    markup("<role>ASSISTANT</role>\n<think>");
    plain(message.reasoning);
    markup("</think>");
    plain(message.content);
    bool separate = !message.content.empty();
    for (const ToolCall& call : message.tool_calls) {
      if (separate) markup("\n");
      separate = true;
      tool_call(call, index);
    }
    markup("<|role_end|>");
  }

  void tool_result(const std::string& text, bool first, bool last) {
    if (first) markup("<role>OBSERVATION</role>");
    markup("\n<tool_response>\n");
    plain(text);
    markup("\n</tool_response>");
    if (last) markup("<|role_end|>");
  }

  void generation_prompt() {
    markup("<role>ASSISTANT</role>\n<think>");
    if (!options_.thinking) markup("</think>");
  }

  std::vector<Segment> segments;

 private:
  void add(std::string_view text, bool is_markup) {
    if (text.empty()) return;
    if (segments.empty() || segments.back().is_markup != is_markup)
      segments.push_back({{}, is_markup});
    segments.back().text += text;
  }
  void markup(std::string_view text) { add(text, true); }
  void plain(std::string_view text) { add(text, false); }

  void tools() {
    markup(kToolsBefore);
    for (size_t i = 0; i < options_.tools.size(); ++i) {
      const std::string what = cat("tools[", i, "]");
      const std::string text = python_json(options_.tools[i], what);
      if (text[0] != '{') fail_input(what, ": expected a JSON object, found ", text.substr(0, 40));
      markup("\n");
      plain(text);
    }
    markup(kToolsAfter);
  }

  void tool_call(const ToolCall& call, size_t index) {
    markup("<tool_call>");
    plain(call.name);
    const std::string what = cat("messages[", index, "].tool_calls '", call.name, "' arguments");
    const std::string_view arguments =
        call.arguments.empty() ? "{}" : std::string_view(call.arguments);
    for (const JsonMember& member : json_members(arguments, what)) {
      markup("<arg_key>");
      plain(member.key);
      markup("</arg_key>\n<arg_value>");
      plain(member.text);
      markup("</arg_value>");
    }
    markup("\n</tool_call>");
  }

  const RenderOptions& options_;
};

}  // namespace

std::vector<Segment> render_chat(const std::vector<Message>& messages,
                                 const RenderOptions& options) {
  std::vector<Role> roles;
  for (size_t i = 0; i < messages.size(); ++i) roles.push_back(role_of(messages[i], i));
  const auto is_tool = [&](size_t i) { return i < roles.size() && roles[i] == Role::kTool; };
  const bool own_system = !roles.empty() && roles[0] == Role::kSystem;
  Renderer out(options);
  out.opening(own_system ? messages[0].content : std::string());
  for (size_t i = own_system ? 1 : 0; i < messages.size(); ++i) {
    switch (roles[i]) {
      case Role::kSystem:
        out.turn("SYSTEM", messages[i].content);
        break;
      case Role::kUser:
        out.turn("HUMAN", messages[i].content);
        break;
      case Role::kAssistant:
        out.assistant(messages[i], i);
        break;
      case Role::kTool:
        out.tool_result(messages[i].content, i == 0 || !is_tool(i - 1), !is_tool(i + 1));
        break;
    }
  }
  if (options.generation_prompt) out.generation_prompt();
  return std::move(out.segments);
}

std::string chat_text(const std::vector<Segment>& segments) {
  std::string out;
  for (const Segment& segment : segments) out += segment.text;
  return out;
}

std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, const std::vector<Segment>& segments) {
  std::vector<TextPiece> pieces;
  pieces.reserve(segments.size());
  for (const Segment& segment : segments) {
    pieces.push_back({segment.text, segment.is_markup ? Special::kForm : Special::kPlain});
  }
  return tokenizer.encode(pieces);
}

}  // namespace spk
