#include "base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/ansicolor_sink.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

namespace spk {
namespace {

spdlog::logger& logger() {
  static spdlog::logger* instance = [] {
    auto sink = std::make_shared<spdlog::sinks::ansicolor_stderr_sink_mt>(
        colour_wanted(STDERR_FILENO) ? spdlog::color_mode::always : spdlog::color_mode::never);
    sink->set_color(spdlog::level::info, "");  // plain text is not coloured
    sink->set_color(spdlog::level::debug, "\033[2m");
    auto* made = new spdlog::logger("sparkling", std::move(sink));
    made->set_pattern("%^%v%$");
    made->set_level(spdlog::level::info);
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *instance;
}

// The logger formats nothing itself: braces in a message (JSON, templates) must come out as they
// are.
void write(spdlog::level::level_enum level, std::string_view text) {
  logger().log(level, spdlog::string_view_t(text.data(), text.size()));
}

}  // namespace

void set_log_level(LogLevel level) {
  logger().set_level(level == LogLevel::kQuiet  ? spdlog::level::warn
                     : level == LogLevel::kInfo ? spdlog::level::info
                                                : spdlog::level::debug);
}
bool log_verbose_on() { return logger().should_log(spdlog::level::debug); }

void log_error(std::string_view text) {
  write(spdlog::level::err, std::string("sparkling: ").append(text));
}
void log_warn(std::string_view text) {
  write(spdlog::level::warn, std::string("warning: ").append(text));
}
void log_info(std::string_view text) { write(spdlog::level::info, text); }
void log_verbose(std::string_view text) { write(spdlog::level::debug, text); }

bool colour_wanted(int fd) {
  const char* no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') return false;
  const char* term = std::getenv("TERM");
  if (term == nullptr || std::string_view(term) == "dumb") return false;
  return isatty(fd) == 1;
}

Progress::Progress(std::string label, int64_t total, std::string unit)
    : label_(std::move(label)),
      total_(total),
      unit_(std::move(unit)),
      terminal_(isatty(STDERR_FILENO) == 1),
      last_(std::chrono::steady_clock::now()) {}

Progress::~Progress() {
  if (drawn_ && terminal_) {
    std::fputs("\r\033[K", stderr);
    std::fflush(stderr);
  }
}

void Progress::update(int64_t done, const std::function<std::string()>& note) {
  if (!logger().should_log(spdlog::level::info)) return;
  const auto now = std::chrono::steady_clock::now();
  const auto wait = terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(10000);
  if (now - last_ < wait) return;
  last_ = now;
  draw(done, note ? ", " + note() : "");
}

void Progress::draw(int64_t done, const std::string& note) {
  const int64_t percent = total_ > 0 ? std::clamp<int64_t>(100 * done / total_, 0, 100) : 0;
  const std::string numbers =
      std::to_string(done) + " of " + std::to_string(total_) + " " + unit_ + note;
  if (!terminal_) {
    log_info(label_ + ": " + numbers);
    return;
  }
  constexpr int64_t kWidth = 24;
  const int64_t filled = kWidth * percent / 100;
  const std::string bar = std::string(static_cast<size_t>(filled), '#') +
                          std::string(static_cast<size_t>(kWidth - filled), '.');
  std::fprintf(stderr, "\r\033[K%s [%s] %s", label_.c_str(), bar.c_str(), numbers.c_str());
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace spk
