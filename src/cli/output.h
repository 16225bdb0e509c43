// Standard output and interruption: the two things that can end a verb from outside.
//
// Owns every write to stdout. A reader that went away (head, a closed pipe) ends the program
// quietly; a full disk is an error. Ctrl-C sets a flag that verbs poll; a second one ends the
// program at once, since a long step cannot be left.
#pragma once

#include <atomic>
#include <string_view>

namespace spk::cli {

// Thrown when nobody reads standard output any more.
struct OutputClosed {};

void out(std::string_view text);
void out_flush();

// SIGINT sets the flag, SIGPIPE is ignored. `patient`: the program itself survives any number of
// SIGINT (a chat).
void install_signals();
void set_patient(bool patient);
bool interrupted();
const std::atomic<bool>*
interrupt_flag();  // the same, for the engine to look at inside a long prompt
void clear_interrupt();

}  // namespace spk::cli
