// Counters for people and machines: /metrics in the text form of Prometheus. No text of any prompt
// or answer.
#pragma once

#include "engine/engine.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace spk::server {

class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // All thread-safe.
  void request(std::string_view endpoint, int status);
  void answer(const Timings& timings, int64_t reasoning_tokens, double queue_seconds,
              double first_token_seconds);
  void client_gone();
  std::string text(size_t waiting, bool busy, size_t connections);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spk::server
