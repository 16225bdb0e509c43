// From what a person asks to prompt ids, and what a chat has been so far.
//
// Owns the exact token history: the ids the model generated stay as they are, so that each turn
// only appends and the engine goes on from its live session. The markup itself is text/chat.h's.
#pragma once

#include "cli/source.h"
#include "text/chat.h"
#include "text/tokenizer.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace spk::cli {

class Conversation {
 public:
  // `options.tools` and `options.thinking` are fixed until reset.
  Conversation(const Tokenizer& tokenizer, RenderOptions options, std::string system);

  // The whole prompt with `next` as its last turn. Nothing is remembered until answered().
  std::vector<int32_t> prompt(const Message& next) const;
  // The turn took place: `next` was answered by `tokens`, parsed as `answer`; `in_reasoning`: it
  // ended inside <think>.
  void answered(const Message& next, const std::vector<int32_t>& prompt,
                const std::vector<int32_t>& tokens, Message answer, bool in_reasoning);

  // Forgets all turns. The system message and the thinking mode stand in the first turn, so
  // changing them renders the chat anew.
  void clear();
  void set_system(std::string system);
  void set_thinking(bool thinking);
  bool thinking() const { return options_.thinking; }
  const std::string& system() const { return system_; }
  const std::vector<Message>& messages() const { return messages_; }

 private:
  std::vector<Message> with_system() const;

  const Tokenizer& tokenizer_;
  RenderOptions options_;
  std::string system_;
  std::vector<Message> messages_;
  std::vector<int32_t>
      history_;              // ids up to the end of the last answer; empty: render from messages_
  bool open_think_ = false;  // the last answer ended inside <think>
};

// {"type": "function", "function": {"name": ...}} objects of a file that holds a JSON array of
// them, each as its text. Error(kInput) names file, place, expected and found.
std::vector<std::string> read_tools(const std::string& file);

// Whether the checkpoint's template is one that we stand for, and how long three sample chats are
// in its tokens.
struct TemplateReport {
  bool known = false;
  std::string text;
  std::vector<std::pair<std::string, int64_t>> samples;
};
TemplateReport template_report(const OpenedModel& model);

}  // namespace spk::cli
