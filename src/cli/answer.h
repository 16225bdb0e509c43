// An answer on its way to standard output: reasoning, then an empty line, then the answer, then
// tool calls.
#pragma once

#include <string>
#include <string_view>

namespace spk::cli {

// Writes pieces as they come, flushed each time so that a person sees every token. Newlines at the
// end of a part are held back until more of it follows: the parts are separated by exactly one
// empty line whatever the model writes.
class AnswerPrinter {
 public:
  // `dim`: reasoning is dimmed by escape sequences, for a terminal.
  explicit AnswerPrinter(bool dim) : dim_(dim) {}
  // Ends a dimmed part when an error passes by.
  ~AnswerPrinter();
  AnswerPrinter(const AnswerPrinter&) = delete;
  AnswerPrinter& operator=(const AnswerPrinter&) = delete;

  void reasoning(std::string_view text) { part(Part::kReasoning, text); }
  void content(std::string_view text) { part(Part::kContent, text); }
  void tool_call(std::string_view json) { part(Part::kToolCall, json); }
  // As it is, nothing trimmed: --raw.
  void raw(std::string_view text);
  void finish();

 private:
  enum class Part { kNone, kReasoning, kContent, kToolCall };
  void part(Part which, std::string_view text);

  bool dim_;
  Part part_ = Part::kNone;
  std::string held_;        // newlines that may end the part
  bool line_open_ = false;  // something was written since the last newline
};

}  // namespace spk::cli
