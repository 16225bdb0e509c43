// What assistant turns with tool calls looked like when they were generated, by the ids of their
// calls.
//
// APIs carry a call as name and JSON; the model wrote markup, and maybe reasoning that the client
// does not send back. Rendering the turn anew would give other bytes, so all that follows would be
// read again, and the model would see a history that is not its own. With the memory the next
// prompt repeats the turn byte by byte. Bounded; forgets the oldest.
#pragma once

#include "text/chat.h"

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace spk::server {

struct SentTurn {
  std::string content, reasoning;
  std::vector<ToolCall> calls;  // with the ids that the client got
  std::vector<Segment> verbatim;
};

class TurnMemory {
 public:
  explicit TurnMemory(size_t byte_limit) : byte_limit_(byte_limit) {}

  void remember(SentTurn turn);
  // Sets message.verbatim when the message is a turn that was sent and the client changed nothing
  // in it. Reasoning may be missing, and so may content be. Thread-safe.
  void restore(Message& message) const;
  size_t bytes() const;

 private:
  struct Entry {
    // Owners: the list and every restore() that is looking at it.
    std::shared_ptr<const SentTurn> turn;
    size_t bytes;
  };
  const size_t byte_limit_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // newest last
  std::unordered_map<std::string, std::shared_ptr<const SentTurn>> by_call_;
  size_t bytes_ = 0;
};

}  // namespace spk::server
