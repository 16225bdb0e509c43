// OpenAI's requests as native ones: what chat and text completions share, and chat messages and
// tools.
#pragma once

#include "server/fields.h"

#include <initializer_list>

namespace spk::server {

// A call of `endpoint` with everything that chat and text completions have in common: the fields
// that both refuse and those of `refused`, model, stream and stream_options, sampling, whose turn
// it is. `usage`: the stream ends with usage and timings.
Call read_openai_call(const JsonValue& body, const ServerOptions& options, const char* endpoint,
                      std::initializer_list<Refused> refused, bool& usage);
// messages, tools, tool_choice, parallel_tool_calls and the thinking switches of a chat body.
ChatInput read_openai_chat(const JsonValue& body, const ServerOptions& options);

}  // namespace spk::server
