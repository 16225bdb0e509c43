// The one exception type of the project and the two assertion macros.
//
// Three kinds of failure, three means: a programmer's mistake is SPK_CHECK (always on) or
// SPK_DCHECK (debug builds); bad input, wrong usage or a missing resource is an Error that says
// what was expected and what was found; the library never prints and never exits. The command line
// maps an Error's kind to the exit status.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace spk {

// Values are the exit statuses of the command line.
enum class ErrorKind : int {
  kInput = 1,     // file, config, data, request
  kUsage = 2,     // unknown option or value
  kResource = 3,  // memory, driver, device, busy port
  kInterrupted = 130,
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& what) : std::runtime_error(what), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// Joins anything printable into one string: cat("row ", 3, " of ", n).
template <typename... Args>
std::string cat(Args&&... args) {
  std::ostringstream out;
  (out << ... << std::forward<Args>(args));
  return out.str();
}

template <typename... Args>
[[noreturn]] void fail_input(Args&&... args) {
  throw Error(ErrorKind::kInput, cat(std::forward<Args>(args)...));
}
template <typename... Args>
[[noreturn]] void fail_usage(Args&&... args) {
  throw Error(ErrorKind::kUsage, cat(std::forward<Args>(args)...));
}
template <typename... Args>
[[noreturn]] void fail_resource(Args&&... args) {
  throw Error(ErrorKind::kResource, cat(std::forward<Args>(args)...));
}

// A broken promise between two parts of the program; the message names file, line and condition.
[[noreturn]] void check_failed(const char* file, int line, const char* condition);

}  // namespace spk

#define SPK_CHECK(condition) \
  (static_cast<bool>(condition) ? void(0) : ::spk::check_failed(__FILE__, __LINE__, #condition))

#ifdef NDEBUG
#define SPK_DCHECK(condition) void(0)
#else
#define SPK_DCHECK(condition) SPK_CHECK(condition)
#endif
