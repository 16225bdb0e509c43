// One message from a terminal: line editing, history, pasted text of several lines. The only user
// of libedit.
#pragma once

#include <memory>
#include <string>

namespace spk::cli {

enum class LineStatus { kText, kInterrupted, kEnd };

class LineEditor {
 public:
  // `history_file` "": no history is kept.
  explicit LineEditor(const std::string& history_file);
  ~LineEditor();

  // Lines that arrive together (a paste) are one message, joined by newlines; a line that ends in a
  // backslash is continued by the next. kInterrupted: Ctrl-C, what was typed is dropped; kEnd:
  // Ctrl-D on an empty line.
  LineStatus read(const std::string& prompt, std::string& text);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// $XDG_STATE_HOME/sparkling/history, else ~/.local/state/sparkling/history; makes the folder; ""
// when it cannot.
std::string history_path();

}  // namespace spk::cli
