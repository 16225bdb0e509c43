#include "cli/output.h"

#include "base/error.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

namespace spk::cli {
namespace {

std::atomic<bool> interrupt{false};
std::atomic<Interrupts> mode{Interrupts::kEnd};
static_assert(std::atomic<bool>::is_always_lock_free &&
                  std::atomic<Interrupts>::is_always_lock_free,
              "touched by a signal handler");

extern "C" void on_interrupt(int) {
  const bool again = interrupt.exchange(true);
  if (mode == Interrupts::kEnd || (mode == Interrupts::kPolled && again)) _exit(130);
}

[[noreturn]] void fail_write() {
  if (errno == EPIPE) throw OutputClosed{};
  fail_input("cannot write to standard output: ", std::strerror(errno));
}

}  // namespace

void out(std::string_view text) {
  if (!text.empty() && std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
    fail_write();
}

void out_flush() {
  if (std::fflush(stdout) != 0) fail_write();
}

void install_signals() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;  // without SA_RESTART: a read of the terminal returns
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

void set_interrupts(Interrupts new_mode) { mode.store(new_mode); }
bool interrupted() { return interrupt.load(); }
const std::atomic<bool>* interrupt_flag() { return &interrupt; }
void clear_interrupt() { interrupt.store(false); }

}  // namespace spk::cli
