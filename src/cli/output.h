// Standard output and signals: what can end a verb from outside.
//
// Owns every write to stdout. A reader that went away (head, a closed pipe) ends the program
// quietly; a full disk or a file beyond the size limit is an error. What Ctrl-C does is the running
// verb's choice; SIGTERM and SIGHUP end the program. Half-written files go with it.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

namespace spk::cli {

// Thrown when nobody reads standard output any more.
struct OutputClosed {};

void out(std::string_view text);
void out_flush();

enum class Interrupts {
  kEnd,       // Ctrl-C ends the program at once: there is nothing to say or to keep
  kPolled,    // it sets both flags below, for a verb that has something to say; a second one ends
  kSurvived,  // never ends the program: a chat
};
// Starts with kEnd. To be called before anything else.
void install_signals();
void set_interrupts(Interrupts mode);
bool interrupted();
// For the engine: the first is looked at between steps, so that what was read is kept; the second
// also inside a step. In a chat Ctrl-C sets the first, and again the second.
const std::atomic<bool>* interrupt_flag();
const std::atomic<bool>* abort_flag();
void clear_interrupt();

// A file that must not be left behind half-written: a signal that ends the program removes it.
class Leftover {
 public:
  explicit Leftover(const std::string& path);
  ~Leftover();
  Leftover(const Leftover&) = delete;
  Leftover& operator=(const Leftover&) = delete;

 private:
  size_t slot_;
};

}  // namespace spk::cli
