// Standard output and interruption: the two things that can end a verb from outside.
//
// Owns every write to stdout. A reader that went away (head, a closed pipe) ends the program
// quietly; a full disk is an error. What Ctrl-C does is the running verb's choice.
#pragma once

#include <atomic>
#include <string_view>

namespace spk::cli {

// Thrown when nobody reads standard output any more.
struct OutputClosed {};

void out(std::string_view text);
void out_flush();

enum class Interrupts {
  kEnd,       // Ctrl-C ends the program at once: while loading there is nothing to tidy up
  kPolled,    // it sets a flag that the verb looks at; a second one ends the program
  kSurvived,  // it sets the flag, always: a chat
};
// Starts with kEnd; SIGPIPE is ignored from here on.
void install_signals();
void set_interrupts(Interrupts mode);
bool interrupted();
const std::atomic<bool>*
interrupt_flag();  // the same, for the engine to look at inside a long prompt
void clear_interrupt();

}  // namespace spk::cli
