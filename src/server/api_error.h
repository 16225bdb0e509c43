// A request that will not be served, with all that the APIs say about it; each writes it in its own
// form.
#pragma once

#include "base/error.h"

#include <stdexcept>
#include <string>
#include <utility>

namespace spk::server {

struct ApiError : std::runtime_error {
  ApiError(int http_status, std::string error_code, std::string field, const std::string& message)
      : std::runtime_error(message),
        status(http_status),
        code(std::move(error_code)),
        param(std::move(field)) {}

  int status;
  std::string code;   // "context_length_exceeded"; empty: none
  std::string param;  // "messages[2].content"; empty: none
  double retry_seconds = 0;
};

// 400 for one field: "temperature: expected a number from 0 to 100, found 'hot'".
template <typename... Args>
[[noreturn]] void bad_field(const std::string& field, Args&&... args) {
  throw ApiError(400, "invalid_value", field, cat(field, ": ", std::forward<Args>(args)...));
}

// 400 for something that would change the answer and is not there yet.
template <typename... Args>
[[noreturn]] void unsupported(const std::string& field, Args&&... args) {
  throw ApiError(400, "unsupported_value", field, cat(field, ": ", std::forward<Args>(args)...));
}

}  // namespace spk::server
