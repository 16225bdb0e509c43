// The states, in the order in which an answer passes through them.
#include "text/chat_parser.h"

#include "base/error.h"
#include "text/json_text.h"

#include <algorithm>
#include <utility>

namespace spk {
namespace {

constexpr std::string_view kThink = "<think>";
constexpr std::string_view kCall = "<tool_call>";
constexpr std::string_view kCallEnd = "</tool_call>";
constexpr std::string_view kKey = "<arg_key>";
constexpr std::string_view kKeyEnd = "</arg_key>";
constexpr std::string_view kValue = "<arg_value>";
constexpr std::string_view kValueEnd = "</arg_value>";
constexpr std::string_view kSpaces = " \t\r\n";

constexpr size_t kMaxName = 256;
// White space between two tags: one line feed in the template. More than this is part of a value's
// text.
constexpr size_t kMaxGap = 32;
// At the end of the stream a shorter beginning of a marker ("<", "</", "</th") is shown, a longer
// one is a cut marker.
constexpr size_t kCutMarker = 5;

bool name_byte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte > 0x20 && byte != 0x7f &&
         std::string_view("<>\"'`{}()[],;=").find(c) == std::string_view::npos;
}

size_t skip_space(std::string_view text, size_t at) {
  return std::min(text.find_first_not_of(kSpaces, at), text.size());
}

bool all_space(std::string_view text) {
  return text.find_first_not_of(kSpaces) == std::string_view::npos;
}

// Whether the rest of `text` from `at` on is a real beginning of the marker.
bool cut_at_end(std::string_view text, size_t at, std::string_view marker) {
  const std::string_view rest = text.substr(at);
  return rest.size() < marker.size() && marker.starts_with(rest);
}

}  // namespace

ChatParser::ChatParser(const ParserOptions& options)
    : schemas_(options.tools),
      tool_calls_(options.tool_calls),
      state_(options.thinking ? State::kStart : State::kContent) {}

std::vector<ChatEvent> ChatParser::push(std::string_view bytes) {
  buffer_ += utf8_.push(bytes);
  pump(false);
  return std::exchange(events_, {});
}

std::vector<ChatEvent> ChatParser::finish() {
  buffer_ += utf8_.finish();
  pump(true);
  if (!space_.empty() && (!bare_ || result_.tool_calls.empty())) {
    emit(ChatEvent::Kind::kContent, std::exchange(space_, {}));
  }
  return std::exchange(events_, {});
}

void ChatParser::pump(bool end) {
  bool more = true;
  while (more) {
    switch (state_) {
      case State::kStart:
        more = start(end);
        break;
      case State::kReasoning:
      case State::kContent:
        more = text(end);
        break;
      case State::kName:
        more = name(end);
        break;
      case State::kBody:
      case State::kBetween:
        more = body(end);
        break;
      case State::kKey:
        more = key(end);
        break;
      case State::kValue:
        more = value(end);
        break;
    }
  }
}

template <size_t N>
ChatParser::Hit ChatParser::find(const std::string_view (&markers)[N], size_t from,
                                 bool end) const {
  const std::string_view all = buffer_;
  for (size_t at = all.find('<', from); at != std::string_view::npos; at = all.find('<', at + 1)) {
    for (size_t m = 0; m < N; ++m) {
      if (all.substr(at).starts_with(markers[m])) return {at, static_cast<int>(m)};
      if (!end && cut_at_end(all, at, markers[m])) return {at, -1};
    }
  }
  return {all.size(), -1};
}

void ChatParser::take(size_t bytes) {
  buffer_.erase(0, bytes);
  scanned_ = 0;
}

void ChatParser::emit(ChatEvent::Kind kind, std::string text) {
  const size_t call = result_.tool_calls.empty() ? 0 : result_.tool_calls.size() - 1;
  if (kind == ChatEvent::Kind::kReasoning) result_.reasoning += text;
  if (kind == ChatEvent::Kind::kContent) result_.content += text;
  if (kind == ChatEvent::Kind::kArguments) result_.tool_calls.back().arguments += text;
  const bool joins = !events_.empty() && events_.back().kind == kind && events_.back().call == call;
  if (joins && kind != ChatEvent::Kind::kToolBegin && kind != ChatEvent::Kind::kToolEnd) {
    events_.back().text += text;
  } else {
    events_.push_back({kind, std::move(text), call});
  }
}

void ChatParser::emit_text(std::string_view text) {
  if (text.empty()) return;
  if (state_ == State::kContent) return emit_content(text);
  emit(ChatEvent::Kind::kReasoning, std::string(text));
}

// Holds back what a following call would swallow: everything while it is only white space, later
// one line feed.
void ChatParser::emit_content(std::string_view text) {
  space_ += text;
  if (bare_ && all_space(space_)) return;
  bare_ = false;
  const bool line = space_.back() == '\n';
  if (line) space_.pop_back();
  if (!space_.empty()) emit(ChatEvent::Kind::kContent, std::move(space_));
  space_ = line ? std::string(1, '\n') : std::string();
}

bool ChatParser::start(bool end) {
  if (!end && buffer_.size() < kThink.size() && kThink.starts_with(buffer_)) return false;
  if (buffer_.starts_with(kThink)) take(kThink.size());
  state_ = State::kReasoning;
  return true;
}

bool ChatParser::text(bool end) {
  static constexpr std::string_view kAll[] = {"</think>", kCall};
  static constexpr std::string_view kOnlyCall[] = {kCall};
  static constexpr std::string_view kOnlyThink[] = {"</think>"};
  const bool reasoning = state_ == State::kReasoning;
  Hit hit{buffer_.size(), -1};
  if (reasoning) {
    hit = tool_calls_ ? find(kAll, 0, end) : find(kOnlyThink, 0, end);
  } else if (tool_calls_) {
    hit = find(kOnlyCall, 0, end);
    if (hit.marker == 0) hit.marker = 1;
  }
  if (end && hit.at == buffer_.size()) {
    // The longest tail that is the beginning of a marker of this state.
    for (size_t n = std::min(buffer_.size(), kCallEnd.size()); n >= kCutMarker; --n) {
      const bool think = reasoning && cut_at_end(buffer_, buffer_.size() - n, kAll[0]);
      const bool call = tool_calls_ && cut_at_end(buffer_, buffer_.size() - n, kCall);
      if (!think && !call) continue;
      buffer_.erase(buffer_.size() - n);
      break;
    }
    hit.at = buffer_.size();
  }
  emit_text(std::string_view(buffer_).substr(0, hit.at));
  if (hit.marker < 0) {
    take(hit.at);
    return false;
  }
  take(hit.at + kAll[hit.marker].size());
  if (hit.marker == 0) {
    state_ = State::kContent;
  } else {
    origin_ = state_;
    state_ = State::kName;
  }
  return true;
}

void ChatParser::reject_name() {
  state_ = origin_;
  emit_text(kCall);
}

bool ChatParser::name(bool end) {
  const std::string_view all = buffer_;
  const size_t first = skip_space(all, 0);
  if (first > kMaxGap) {
    reject_name();
    return true;
  }
  size_t last = first;
  while (last < all.size() && name_byte(all[last])) ++last;
  if (last - first > kMaxName) {
    reject_name();
    return true;
  }
  const size_t stop = std::min(all.find_first_not_of(" \t", last), all.size());
  const std::string_view rest = all.substr(stop);
  const bool line = rest.starts_with('\n') || rest.starts_with('\r');
  const bool tag = rest.starts_with(kKey) || rest.starts_with(kCallEnd);
  if (last > first && stop - last <= kMaxGap && (line || tag)) {
    begin_call(std::string(all.substr(first, last - first)));
    take(stop);
    return true;
  }
  const bool cut = cut_at_end(all, stop, kKey) || cut_at_end(all, stop, kCallEnd);
  if (cut && stop - last <= kMaxGap) {
    if (end) buffer_.clear();
    return false;
  }
  reject_name();
  return true;
}

void ChatParser::begin_call(std::string name) {
  space_.clear();
  bare_ = true;
  keys_.clear();
  result_.tool_calls.push_back({{}, std::move(name), {}, true});
  emit(ChatEvent::Kind::kToolBegin, result_.tool_calls.back().name);
  state_ = State::kBody;
}

// Between the tags of a call: whatever else stands there is skipped.
bool ChatParser::body(bool end) {
  static constexpr std::string_view kInBody[] = {kCallEnd, kCall, kKey};
  static constexpr std::string_view kInBetween[] = {kCallEnd, kCall, kKey, kValue};
  const Hit hit = state_ == State::kBody ? find(kInBody, 0, end) : find(kInBetween, 0, end);
  if (hit.marker < 0) {
    take(hit.at);
    if (end) end_call(false);
    return false;
  }
  take(hit.at + kInBetween[hit.marker].size());
  switch (hit.marker) {
    case 0:
      end_call(true);
      break;
    case 1:  // the end tag was forgotten
      end_call(true);
      origin_ = State::kContent;
      state_ = State::kName;
      break;
    case 2:
      state_ = State::kKey;
      break;
    default:
      begin_value();
      break;
  }
  return true;
}

bool ChatParser::key(bool end) {
  const size_t at = buffer_.find(kKeyEnd, scanned_);
  if (at == std::string::npos) {
    scanned_ = buffer_.size() < kKeyEnd.size() ? 0 : buffer_.size() - kKeyEnd.size() + 1;
    if (end) {
      buffer_.clear();
      end_call(false);
    }
    return false;
  }
  const size_t first = std::min(skip_space(buffer_, 0), at);
  key_ = buffer_.substr(first, at - first);
  key_.erase(key_.find_last_not_of(kSpaces) + 1);
  take(at + kKeyEnd.size());
  state_ = State::kBetween;
  return true;
}

void ChatParser::begin_value() {
  skip_value_ = !keys_.insert(key_).second;
  types_ = schemas_.types(result_.tool_calls.back().name, key_);
  in_string_ = false;
  state_ = State::kValue;
}

// More of a value that can only be a string.
void ChatParser::string_piece(std::string_view text) {
  if (skip_value_) return;
  std::string out;
  if (!in_string_) {
    out = cat(keys_.size() == 1 ? "{" : ", ", json_quote(key_), ": \"");
    in_string_ = true;
  }
  emit(ChatEvent::Kind::kArguments, out + json_quote_inner(text));
}

void ChatParser::end_value(std::string_view text) {
  if (skip_value_) return;
  if (is_raw_string(types_)) {
    string_piece(text);
    return emit(ChatEvent::Kind::kArguments, "\"");
  }
  emit(ChatEvent::Kind::kArguments,
       cat(keys_.size() == 1 ? "{" : ", ", json_quote(key_), ": ", argument_json(types_, text)));
}

void ChatParser::end_call(bool complete) {
  const bool open = !result_.tool_calls.back().arguments.empty();
  emit(ChatEvent::Kind::kArguments, open ? "}" : "{}");
  result_.tool_calls.back().complete = complete;
  emit(ChatEvent::Kind::kToolEnd, {});
  state_ = State::kContent;
}

bool ChatParser::value(bool end) {
  const std::string_view all = buffer_;
  const bool raw = is_raw_string(types_);
  for (size_t at = all.find('<', scanned_); at != std::string_view::npos;
       at = all.find('<', at + 1)) {
    bool undecided = cut_at_end(all, at, kValueEnd);
    if (all.substr(at).starts_with(kValueEnd)) {
      const size_t after = at + kValueEnd.size();
      const size_t next = skip_space(all, after);
      const bool follows =
          all.substr(next).starts_with(kKey) || all.substr(next).starts_with(kCallEnd);
      undecided = next - after <= kMaxGap &&
                  (cut_at_end(all, next, kKey) || cut_at_end(all, next, kCallEnd));
      if (next - after <= kMaxGap && (follows || (end && undecided))) {
        end_value(all.substr(0, at));
        take(after);
        state_ = State::kBody;
        return true;
      }
    }
    if (!undecided) continue;
    if (end) {
      if (all.size() - at >= kCutMarker) buffer_.erase(at);
      break;
    }
    if (raw) {
      string_piece(all.substr(0, at));
      take(at);
    } else {
      scanned_ = at;
    }
    return false;
  }
  if (raw) {
    string_piece(buffer_);
    take(buffer_.size());
  } else {
    scanned_ = buffer_.size();
  }
  if (!end) return false;
  if (raw && !skip_value_) emit(ChatEvent::Kind::kArguments, "\"");
  buffer_.clear();
  end_call(false);
  return false;
}

}  // namespace spk
