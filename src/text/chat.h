// Chat messages to the family's prompt text, and to token ids.
//
// Owns the markup and the rule which parts of a rendered chat may become control tokens: only what
// this file writes, never what a message contains. The other direction, generated text to
// reasoning, answer and tool calls, is chat_parser.h.
#pragma once

#include "text/tokenizer.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spk {

struct ToolCall {
  std::string id;  // the client's name for the call; not part of the markup
  std::string name;
  std::string arguments;  // one JSON object as text, keys in order; empty is {}
  bool complete = true;   // false when generation ended inside the call
};

struct Segment {
  std::string text;
  bool is_markup;  // written by the template: its special tokens form
};

struct Message {
  std::string role;  // system, developer (= system), user, assistant, tool, function (= tool)
  std::string content;
  std::string reasoning;             // assistant only
  std::vector<ToolCall> tool_calls;  // assistant only
  // Assistant only: the turn from <think> on as it was once generated, to be repeated byte by byte
  // instead of the above. Only for text that came out of the model.
  std::vector<Segment> verbatim = {};
};

struct RenderOptions {
  bool thinking = true;
  std::vector<std::string> tools;  // JSON text of each, {"type": "function", "function": {...}}
  bool generation_prompt = true;
};

// The exact bytes of the family's template. The first message, if it is a system message, is the
// text of the SYSTEM turn that always opens a chat; each later one is a SYSTEM turn where it
// stands, so that no earlier byte changes. Throws Error (kInput) on an unknown role and on tools or
// arguments that are not JSON objects.
std::vector<Segment> render_chat(const std::vector<Message>& messages,
                                 const RenderOptions& options);

std::string chat_text(const std::vector<Segment>& segments);

// The ids of the whole text, special tokens from markup only.
std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, const std::vector<Segment>& segments);

// Whether a checkpoint's chat_template.jinja is one that render_chat stands for. It is compared,
// never executed; line ends and white space at the ends of lines do not count.
struct TemplateMatch {
  bool known;
  std::string name;  // empty when unknown
  std::string hash;  // 16 hexadecimal digits, for the log
};
TemplateMatch known_template(std::string_view jinja);

}  // namespace spk
