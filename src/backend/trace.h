// Times every verb of a back end and takes the bytes that it counted meanwhile.
//
// A decorator: switched off it costs one call more a verb, so that the same engine gives speeds
// without it and the shares of its parts with it. Verbs must have done their work when they return,
// as those of the CPU have.
#pragma once

#include "backend/backend.h"

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace spk {

// What a verb belongs to in a report.
enum class Part : uint8_t { kMoe, kAttention, kFeedForward, kHead, kOther };
inline constexpr int kParts = 5;
std::string_view part_name(Part part);

struct TraceEntry {
  Part part = Part::kOther;
  uint64_t calls = 0;
  double seconds = 0;
  uint64_t bytes = 0;  // weights, state and latents
};

struct Trace {
  bool on = false;
  std::map<std::string, TraceEntry, std::less<>> entries;  // by verb, products by their weight too
  void clear();                                            // counts only: entries stay
  TraceEntry sum() const;
  std::array<TraceEntry, kParts> parts() const;
};

// `trace` must outlive the result.
std::unique_ptr<Backend> make_trace_backend(std::unique_ptr<Backend> inner, Trace& trace);

}  // namespace spk
