// Generated text to reasoning, answer and tool calls, while it comes.
//
// A pure state machine over a stream that may be cut at any byte: the events of any cutting join to
// the same result, and nothing is ever taken back or re-labelled. Knows no tokens and no API.
#pragma once

#include "text/chat.h"
#include "text/tool_schema.h"
#include "text/utf8.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace spk {

struct ChatEvent {
  enum class Kind {
    kReasoning,  // text: more of it
    kContent,    // text: more of it
    kToolBegin,  // text: the name of call number `call`
    kArguments,  // text: more of the call's JSON object
    kToolEnd,    // the JSON object is closed
  };
  Kind kind;
  std::string text;
  size_t call = 0;
};

struct ParsedChat {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> tool_calls;
};

struct ParserOptions {
  bool thinking = true;            // the prompt ended inside <think>
  bool tool_calls = true;          // false: their markup is text like any other
  std::vector<std::string> tools;  // JSON text; their schemas give the arguments' types
};

// Rules beyond the plain markup:
//  - Text that ends without </think> is reasoning. <tool_call> ends it too. A <think> that opens
//  the text is dropped.
//  - <tool_call> counts only when a possible function name follows; in prose it stays text.
//  - The line feed that the template puts before a call, and white space around calls with no other
//  text, are dropped; other
//    text around calls is content.
//  - A value ends at </arg_value> only where <arg_key>, </tool_call> or the end follows, so markers
//  inside it stay intact.
//  - Of equal keys the first one counts.
//  - At the end a call without name is dropped, a call without end gets its JSON closed and
//  complete = false, and an
//    unfinished marker of five or more bytes is dropped instead of shown.
// Bytes that are not UTF-8 become U+FFFD; every event holds whole characters. Not thread-safe.
class ChatParser {
 public:
  explicit ChatParser(const ParserOptions& options);

  std::vector<ChatEvent> push(std::string_view bytes);
  std::vector<ChatEvent> finish();  // no push may follow

  const ParsedChat& result() const { return result_; }
  bool in_reasoning() const { return state_ == State::kStart || state_ == State::kReasoning; }
  // Inside the markup of a tool call, or of something that may still become one.
  bool in_call() const { return state_ > State::kContent; }

 private:
  enum class State { kStart, kReasoning, kContent, kName, kBody, kKey, kBetween, kValue };

  void pump(bool end);
  // One step of a state; false when it needs more bytes.
  bool start(bool end);
  bool text(bool end);
  bool name(bool end);
  bool body(bool end);
  bool key(bool end);
  bool value(bool end);

  // Position of the first marker, or of the beginning of one that the buffer's end cuts, in buffer_
  // from `from` on.
  struct Hit {
    size_t at;
    int marker;  // index in the list; -1 when cut; at == size when none
  };
  template <size_t N>
  Hit find(const std::string_view (&markers)[N], size_t from, bool end) const;

  void take(size_t bytes);
  void emit(ChatEvent::Kind kind, std::string text);
  void emit_text(std::string_view text);
  void emit_content(std::string_view text);
  void reject_name();
  void begin_call(std::string name);
  void begin_value();
  void string_piece(std::string_view text);
  void end_value(std::string_view text);
  void end_call(bool complete);

  ToolSchemas schemas_;
  bool tool_calls_;
  State state_;
  State origin_ = State::kContent;  // where <tool_call> was seen
  Utf8Stream utf8_;
  std::string buffer_;  // not yet decided
  size_t scanned_ =
      0;               // part of buffer_ already searched in vain, so that small pushes stay linear
  std::string space_;  // white space that a following call would swallow
  bool bare_ = true;   // no visible content since the start or the last call
  std::string key_;
  TypeSet types_ = 0;
  bool skip_value_ = false;  // a key that was there before
  bool in_string_ = false;   // the value's opening quote is out
  std::unordered_set<std::string> keys_;
  std::vector<ChatEvent> events_;
  ParsedChat result_;
};

}  // namespace spk
