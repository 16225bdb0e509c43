// The parser of generated text and the renderer: any cut of the stream gives the same result,
// arguments are always JSON, and what was parsed can be rendered again.
//
// The first bytes choose options and cuts; a zero byte ends the JSON text of a tool, the rest is
// the generated text.
#pragma once

#include "base/error.h"
#include "text/chat.h"
#include "text/chat_parser.h"
#include "text/json_text.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace spk::fuzz {

inline void require(bool condition) {
  if (!condition) std::abort();
}

inline ParsedChat parse(const std::string_view text, const ParserOptions& options, size_t piece) {
  ChatParser parser(options);
  for (size_t at = 0; at < text.size(); at += piece) parser.push(text.substr(at, piece));
  parser.finish();
  return parser.result();
}

inline void run_chat(const uint8_t* data, size_t size) {
  ParserOptions options;
  options.thinking = (data[0] & 1) != 0;
  options.tool_calls = (data[0] & 2) == 0;
  const size_t piece = 1 + (data[0] >> 2) % 20;
  std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t zero = text.find('\0');
  if (zero != std::string_view::npos) {
    options.tools.emplace_back(text.substr(0, zero));
    text.remove_prefix(zero + 1);
  }
  const ParsedChat whole = parse(text, options, text.size() + 1);
  const ParsedChat pieces = parse(text, options, piece);
  require(whole.reasoning == pieces.reasoning && whole.content == pieces.content);
  require(whole.tool_calls.size() == pieces.tool_calls.size());
  for (size_t i = 0; i < whole.tool_calls.size(); ++i) {
    require(whole.tool_calls[i].name == pieces.tool_calls[i].name);
    require(whole.tool_calls[i].arguments == pieces.tool_calls[i].arguments);
    require(whole.tool_calls[i].complete == pieces.tool_calls[i].complete);
    require(is_json(whole.tool_calls[i].arguments));
  }
  RenderOptions render;
  render.tools = options.tools;
  const Message message{"assistant", whole.content, whole.reasoning, whole.tool_calls};
  render_chat({{"user", std::string(text), "", {}}, message, {"tool", whole.content, "", {}}},
              render);
}

// One input; an Error is fine, anything else is a bug.
inline void check_chat(const uint8_t* data, size_t size) {
  if (size == 0) return;
  try {
    run_chat(data, size);
  } catch (const Error&) {
  }
}

}  // namespace spk::fuzz
