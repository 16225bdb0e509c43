// Request fields that several APIs share, and the way from a chat to a prompt.
#pragma once

#include "server/json_read.h"
#include "server/service.h"

#include <string>
#include <string_view>
#include <vector>

namespace spk::server {

// Whether the model thinks before it answers. One order for every API, the first that is there
// decides:
//   1. enable_thinking (true, false), chat_template_kwargs: enable_thinking, thinking_option ("on",
//   "off")
//   2. thinking: {"type": "enabled" | "adaptive" | "disabled", "budget_tokens": N}
//   3. effort: reasoning_effort, reasoning.effort or output_config.effort
//   4. the default: --thinking; for the Messages API off, since its clients expect no thinking they
//   did not ask for
// The budget of reasoning tokens: thinking_budget, chat_template_kwargs.thinking_budget or
// thinking.budget_tokens, then that of the effort (none 0, minimal 256, low 1024, medium 4096, high
// and above no limit), then --thinking-budget. A budget of 0 is off.
struct Thinking {
  bool on = true;
  int64_t budget = -1;
};
Thinking read_thinking(const JsonValue& body, const std::optional<JsonValue>& effort,
                       const Thinking& otherwise);

// temperature to seed, stop, ignore_eos, n: whatever is absent keeps the server's default.
void read_sampling(const JsonValue& body, const ServerOptions& options, JobRequest& job);
std::vector<std::string> read_stop(const JsonValue& field);

// What every API has: model, stream and sampling. `one_answer`: n may only be 1.
Call begin_call(const JsonValue& body, const ServerOptions& options, const char* endpoint,
                bool one_answer);

// Fields whose absence nobody would notice are ignored; these would be missed. Each is an ApiError
// when it is there (and not null, false, an empty list or the given harmless value).
struct Refused {
  std::string_view field;
  std::string_view harmless;  // JSON text, may be empty
};
void refuse_fields(const JsonValue& body, std::initializer_list<Refused> fields);

// One field that must be text when it is there.
void check_text(const JsonValue& object, std::string_view field);

// The text of a message: a string or a list of text parts. Pictures, sound and files are refused by
// name.
std::string read_text(const JsonValue& content);

// {"type": "function", "function": {...}} as JSON text, from a definition in OpenAI's chat form;
// strict is refused.
std::string read_chat_tool(const JsonValue& tool);
// The same from a flat form: name, description, and the schema under `schema_key`. The model sees
// `prefix` before the name.
std::string read_flat_tool(const JsonValue& tool, std::string_view schema_key,
                           const std::string& prefix = {});
// One JSON object as text, given as a string; refused when it is not one.
std::string read_arguments(const JsonValue& text);

struct ChatInput {
  std::vector<Message> messages;
  std::vector<std::string> tools;
  bool may_call = true;   // false: tool_choice none
  bool one_call = false;  // no parallel calls
  Thinking thinking;
  std::string field = "messages";  // named when the prompt is too long
};
// tool_choice and parallel_tool_calls of OpenAI's APIs.
void read_tool_choice(const JsonValue& body, ChatInput& chat);
// Segments of the prompt, with remembered turns put back.
std::vector<Segment> render(Service& service, ChatInput& chat);
// Prompt and parser of a chat.
void prepare_chat(Service& service, ChatInput chat, Call& call);
// ApiError context_length_exceeded with both numbers.
void check_length(const Service& service, size_t tokens, const std::string& field);

}  // namespace spk::server
