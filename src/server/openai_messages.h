// OpenAI's chat messages and tools, as native ones.
#pragma once

#include "server/fields.h"

namespace spk::server {

// messages, tools, tool_choice, parallel_tool_calls and the thinking switches of a chat body.
ChatInput read_openai_chat(const JsonValue& body, const ServerOptions& options);

}  // namespace spk::server
