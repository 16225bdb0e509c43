// One answer: engine events through the chat parser to a printer, and the numbers that describe it.
#pragma once

#include "cli/answer.h"
#include "engine/engine.h"
#include "text/chat_parser.h"

#include <optional>
#include <string>
#include <vector>

namespace spk::cli {

struct Answer {
  GenerateResult result;
  ParsedChat parsed;          // --raw: everything is content
  bool in_reasoning = false;  // ended inside <think>
  int64_t reasoning_tokens = 0;
};

// `parser` absent: raw text. `printer` null: nothing is shown. Ctrl-C ends it with what is there
// (kCancelled).
Answer generate_answer(Engine& engine, const GenerateRequest& request,
                       const std::optional<ParserOptions>& parser, AnswerPrinter* printer);

// "prompt 63 tokens, 0 cached, 812.0 tok/s; decode 512.3 tok/s, 6.90 MB/token, 3.5 GB/s, 14.0 %
// of 25.1 GB/s". Of an interrupted answer only what was done; the bandwidth is not measured for it,
// since that takes longer than who pressed Ctrl-C wants to wait.
std::string speed_line(Engine& engine, const GenerateResult& result);

// {"name": "add", "arguments": {"a": 1}} on one line.
std::string tool_call_json(const ToolCall& call);

}  // namespace spk::cli
