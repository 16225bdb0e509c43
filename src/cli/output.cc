#include "cli/output.h"

#include "base/error.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace spk::cli {
namespace {

std::atomic<bool> interrupt{false};
std::atomic<bool> abort_step{false};
std::atomic<Interrupts> mode{Interrupts::kEnd};
constexpr size_t kLeftovers = 4;
std::array<std::atomic<char*>, kLeftovers> leftovers{};
static_assert(std::atomic<bool>::is_always_lock_free &&
                  std::atomic<Interrupts>::is_always_lock_free &&
                  std::atomic<char*>::is_always_lock_free,
              "touched by signal handlers");

void remove_leftovers() {
  for (std::atomic<char*>& slot : leftovers) {
    if (const char* path = slot.load()) ::unlink(path);
  }
}

extern "C" void on_interrupt(int) {
  const bool again = interrupt.exchange(true);
  if (mode == Interrupts::kEnd || (mode == Interrupts::kPolled && again)) {
    remove_leftovers();
    _exit(130);
  }
  if (mode == Interrupts::kPolled || again) abort_step.store(true);
}

// Ends as if the signal had not been caught, so that whoever waits sees what it was.
extern "C" void on_end(int signal) {
  remove_leftovers();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
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
  action.sa_handler = on_end;
  for (const int signal : {SIGTERM, SIGHUP}) {
    struct sigaction old {};
    sigaction(signal, nullptr, &old);
    if (old.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);  // nohup stays in force
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // the write fails, which has a message
}

void set_interrupts(Interrupts new_mode) { mode.store(new_mode); }
bool interrupted() { return interrupt.load(); }
const std::atomic<bool>* interrupt_flag() { return &interrupt; }
const std::atomic<bool>* abort_flag() { return &abort_step; }
void clear_interrupt() {
  interrupt.store(false);
  abort_step.store(false);
}

Leftover::Leftover(const std::string& path) : slot_(0) {
  char* copy = ::strdup(path.c_str());
  SPK_CHECK(copy != nullptr);
  char* empty = nullptr;
  while (slot_ < kLeftovers && !leftovers[slot_].compare_exchange_strong(empty, copy)) {
    empty = nullptr;
    ++slot_;
  }
  SPK_CHECK(slot_ < kLeftovers);
}

Leftover::~Leftover() { std::free(leftovers[slot_].exchange(nullptr)); }

}  // namespace spk::cli
