// The log: everything a person reads besides the result, on stderr, through spdlog.
//
// Owns levels, colour (a terminal without NO_COLOR) and the one-line progress display (a bar on a
// terminal, plain lines otherwise). Only the command line and the server log; the library reports
// by notes and exceptions. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace spk {

enum class LogLevel : uint8_t { kQuiet, kInfo, kVerbose };  // kQuiet: warnings and errors only

void set_log_level(LogLevel level);
bool log_verbose_on();

void log_error(std::string_view text);  // "sparkling: ..."
void log_warn(std::string_view text);   // "warning: ..."
void log_info(std::string_view text);
void log_verbose(std::string_view text);

// Whether colour may be written to a file descriptor: a terminal, NO_COLOR unset or empty, TERM not
// "dumb".
bool colour_wanted(int fd);

// One line of progress on stderr. On a terminal it is redrawn at most ten times a second and erased
// at the end; elsewhere a plain line is written about every ten seconds, so that a job's log stays
// short.
class Progress {
 public:
  Progress(std::string label, int64_t total, std::string unit);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `note` is asked for only when the line is written: a few words after the count.
  void update(int64_t done, const std::function<std::string()>& note = {});

 private:
  void draw(int64_t done, const std::string& note);

  std::string label_;
  int64_t total_;
  std::string unit_;
  bool terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace spk
