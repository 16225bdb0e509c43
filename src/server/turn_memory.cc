#include "server/turn_memory.h"

#include "server/json_read.h"

#include <utility>

namespace spk::server {
namespace {

size_t size_of(const SentTurn& turn) {
  size_t bytes = 512 + turn.content.size() + turn.reasoning.size();
  for (const ToolCall& call : turn.calls)
    bytes += 256 + 2 * call.id.size() + call.name.size() + call.arguments.size();
  for (const Segment& segment : turn.verbatim) bytes += 64 + segment.text.size();
  return bytes;
}

}  // namespace

void TurnMemory::remember(SentTurn turn) {
  if (turn.calls.empty()) return;
  const size_t bytes = size_of(turn);
  const auto shared = std::make_shared<const SentTurn>(std::move(turn));
  const std::lock_guard lock(mutex_);
  for (const ToolCall& call : shared->calls) by_call_[call.id] = shared;
  entries_.push_back({shared, bytes});
  bytes_ += bytes;
  while (bytes_ > byte_limit_ && !entries_.empty()) {
    for (const ToolCall& call : entries_.front().turn->calls) by_call_.erase(call.id);
    bytes_ -= entries_.front().bytes;
    entries_.pop_front();
  }
}

void TurnMemory::restore(Message& message) const {
  if (message.tool_calls.empty()) return;
  std::shared_ptr<const SentTurn> turn;
  {
    const std::lock_guard lock(mutex_);
    const auto at = by_call_.find(message.tool_calls.front().id);
    if (at == by_call_.end()) return;
    turn = at->second;
  }
  if (turn->calls.size() != message.tool_calls.size()) return;
  for (size_t i = 0; i < turn->calls.size(); ++i) {
    const ToolCall &sent = turn->calls[i], &back = message.tool_calls[i];
    if (sent.id != back.id || sent.name != back.name || !same_json(sent.arguments, back.arguments))
      return;
  }
  if (!message.content.empty() && message.content != turn->content) return;
  if (!message.reasoning.empty() && message.reasoning != turn->reasoning) return;
  message.verbatim = turn->verbatim;
}

size_t TurnMemory::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace spk::server
