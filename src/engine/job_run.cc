#include "engine/job_run.h"

#include "base/device_lost.h"
#include "base/error.h"

#include <iterator>
#include <utility>

namespace spk {

using Kind = JobEvent::Kind;

struct JobRun::Choice {
  Choice(const JobRequest& request, int number) : index(number), stops(request.stop) {
    if (request.parser) parser.emplace(*request.parser);
  }

  int index;
  std::optional<ChatParser> parser;
  StopMatcher stops;
  bool stopped =
      false;  // by a stop string or by the limit of calls: the rest of the text is nobody's
  int32_t end_thinking = -1;
  int64_t reasoning_tokens = 0;
  size_t calls = 0;
  // Scores of content tokens whose text is still held back, oldest first, and the bytes of all
  // their texts.
  std::deque<TokenScore> scores;
  std::vector<JobEvent> out;  // of tokens that others of the same pass follow
};

namespace {

JobEvent make(Kind kind, int choice, std::string text = {}, size_t call = 0) {
  JobEvent event;
  event.kind = kind;
  event.choice = choice;
  event.text = std::move(text);
  event.call = call;
  return event;
}

// Texts of the same kind that follow each other become one event.
void join_neighbours(std::vector<JobEvent>& events) {
  size_t kept = 0;
  for (size_t i = 1; i < events.size(); ++i) {
    JobEvent &last = events[kept], &next = events[i];
    const bool text = next.kind == Kind::kReasoning || next.kind == Kind::kContent ||
                      next.kind == Kind::kArguments;
    if (text && next.kind == last.kind && next.call == last.call) {
      last.text += next.text;
      std::move(next.scores.begin(), next.scores.end(), std::back_inserter(last.scores));
    } else if (++kept != i) {
      events[kept] = std::move(next);
    }
  }
  if (!events.empty()) events.resize(kept + 1);
}

}  // namespace

void JobRun::run() {
  try {
    for (int i = 0; i < job_.request().choices && !job_.cancel_.load(); ++i) {
      if (!run_choice(i)) break;
    }
    job_.push({make(Kind::kDone, 0)});
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const Error*>(&error);
    JobEvent event = make(Kind::kFailed, 0, error.what());
    event.bad_input = known != nullptr &&
                      (known->kind() == ErrorKind::kInput || known->kind() == ErrorKind::kUsage);
    job_.push({std::move(event)});
    if (dynamic_cast<const DeviceLost*>(&error) != nullptr) throw;
  }
}

bool JobRun::run_choice(int index) {
  const JobRequest& wanted = job_.request();
  Choice choice(wanted, index);
  const Tokenizer* tokenizer = engine_.tokenizer();
  if (choice.parser && wanted.parser->thinking && tokenizer != nullptr)
    choice.end_thinking = tokenizer->id_of("</think>").value_or(-1);

  GenerateRequest request;
  request.prompt = wanted.prompt;
  request.sampling = wanted.sampling;
  request.sampling.choice = static_cast<uint64_t>(index);
  request.seeded = wanted.seeded;
  request.max_tokens = wanted.max_tokens;
  request.ignore_eos = wanted.ignore_eos;
  request.top_logprobs = wanted.top_logprobs;
  request.cancel = &job_.cancel_;
  request.match_text = true;
  request.shares_prompt = wanted.choices > 1;
  request.force = [&]() -> int32_t {
    if (choice.end_thinking < 0 || !choice.parser->in_reasoning()) return -1;
    const bool spent =
        wanted.thinking_budget >= 0 && choice.reasoning_tokens >= wanted.thinking_budget;
    return spent || job_.answer_now_.load() ? choice.end_thinking : -1;
  };
  request.on_prompt = [&](const Timings& timings) {
    JobEvent event = make(Kind::kStarted, index);
    event.result.timings = timings;
    job_.push({std::move(event)});
  };
  const GenerateResult result =
      engine_.generate(request, [&](const TokenEvent& event) { return token(choice, event); });
  finish(choice, result);
  return result.reason != FinishReason::kCancelled || choice.stopped;
}

// The tokens of one pass leave together: they are microseconds apart, and waking the reader, a
// write and a line of JSON for each cost more than that brings.
bool JobRun::token(Choice& choice, const TokenEvent& event) {
  std::vector<JobEvent>& out = choice.out;
  const bool scored = job_.request().top_logprobs >= 0;
  if (!choice.parser) {
    if (scored && !event.is_end) {
      choice.scores.push_back({std::string(engine_.tokenizer()->token_bytes(event.id)),
                               event.logprob,
                               {event.top.begin(), event.top.end()}});
    }
    content(choice, std::string(event.text), out);
  } else {
    // Reasoning ends once. A model that was cut short by the budget may close it again in its
    // answer: markup that means nothing there.
    std::string_view text = event.text;
    constexpr std::string_view kEnd = "</think>";
    if (event.id == choice.end_thinking && !choice.parser->in_reasoning() &&
        !choice.parser->in_call() && text.size() >= kEnd.size() &&
        text.substr(text.size() - kEnd.size()) == kEnd)
      text.remove_suffix(kEnd.size());
    std::vector<ChatEvent> parsed = choice.parser->push(text);
    const bool thinking = choice.parser->in_reasoning();
    if (thinking && !event.is_end) ++choice.reasoning_tokens;
    // Scores belong to the tokens of the visible answer: not reasoning, not markup, not tool calls.
    if (scored && !thinking && !event.is_end && !event.is_markup && !choice.parser->in_call()) {
      choice.scores.push_back({std::string(engine_.tokenizer()->token_bytes(event.id)),
                               event.logprob,
                               {event.top.begin(), event.top.end()}});
    }
    take(choice, std::move(parsed), out);
  }
  if (!event.more && !out.empty()) {
    join_neighbours(out);
    job_.push(std::exchange(out, {}));
  }
  return !choice.stopped;
}

void JobRun::take(Choice& choice, std::vector<ChatEvent> parsed, std::vector<JobEvent>& out) {
  for (ChatEvent& event : parsed) {
    if (choice.stopped) return;
    switch (event.kind) {
      case ChatEvent::Kind::kReasoning:
        out.push_back(make(Kind::kReasoning, choice.index, std::move(event.text)));
        break;
      case ChatEvent::Kind::kContent:
        content(choice, event.text, out);
        break;
      case ChatEvent::Kind::kToolBegin:
        rest_of_content(choice, out);
        ++choice.calls;
        out.push_back(make(Kind::kToolBegin, choice.index, std::move(event.text), event.call));
        break;
      case ChatEvent::Kind::kArguments:
        out.push_back(make(Kind::kArguments, choice.index, std::move(event.text), event.call));
        break;
      case ChatEvent::Kind::kToolEnd:
        out.push_back(make(Kind::kToolEnd, choice.index, {}, event.call));
        if (const size_t most = job_.request().max_calls; most > 0 && event.call + 1 >= most)
          choice.stopped = true;
        break;
    }
  }
}

// Visible text through the stop strings. A score goes out with the first byte of its token's text;
// those of tokens that a stop string swallowed whole never do.
void JobRun::content(Choice& choice, const std::string& text, std::vector<JobEvent>& out) {
  if (choice.stopped) return;
  const size_t before = choice.stops.held() + text.size();
  JobEvent event = make(Kind::kContent, choice.index, choice.stops.push(text));
  choice.stopped = choice.stops.stopped();
  size_t back = before - event.text.size();  // bytes that are held back, or gone
  size_t whole = choice.scores.size();
  while (whole > 0 && choice.scores[whole - 1].text.size() <= back && back > 0) {
    back -= choice.scores[whole - 1].text.size();
    --whole;
  }
  for (size_t i = 0; i < whole; ++i) {
    event.scores.push_back(std::move(choice.scores.front()));
    choice.scores.pop_front();
  }
  if (choice.stopped) choice.scores.clear();
  if (!event.text.empty() || !event.scores.empty()) out.push_back(std::move(event));
}

// Nothing can become a stop string any more. The scores of what a call swallowed (white space
// before it, its opening tag in pieces) are nobody's.
void JobRun::rest_of_content(Choice& choice, std::vector<JobEvent>& out) {
  JobEvent event = make(Kind::kContent, choice.index, choice.stops.finish());
  for (size_t shown = 0; shown < event.text.size() && !choice.scores.empty();) {
    shown += choice.scores.front().text.size();
    event.scores.push_back(std::move(choice.scores.front()));
    choice.scores.pop_front();
  }
  choice.scores.clear();
  if (!event.text.empty() || !event.scores.empty()) out.push_back(std::move(event));
}

void JobRun::finish(Choice& choice, const GenerateResult& result) {
  std::vector<JobEvent> out = std::exchange(choice.out, {});
  const bool by_us = choice.stopped;
  if (!by_us) {
    if (choice.parser) take(choice, choice.parser->finish(), out);
    if (!choice.stopped) {
      JobEvent last = make(Kind::kContent, choice.index, choice.stops.finish());
      last.scores.assign(std::make_move_iterator(choice.scores.begin()),
                         std::make_move_iterator(choice.scores.end()));
      if (!last.text.empty() || !last.scores.empty()) out.push_back(std::move(last));
    }
  }
  JobEvent end = make(Kind::kChoiceEnd, choice.index);
  end.result.timings = result.timings;
  end.result.tokens = result.tokens;
  end.result.reasoning_tokens = choice.reasoning_tokens;
  end.result.stop_string = choice.stops.matched();
  if (by_us || choice.stops.stopped() || result.reason == FinishReason::kStop)
    end.result.finish =
        choice.calls > 0 && !choice.stops.stopped() ? JobFinish::kToolCalls : JobFinish::kStop;
  else
    end.result.finish =
        result.reason == FinishReason::kLength ? JobFinish::kLength : JobFinish::kCancelled;
  out.push_back(std::move(end));
  job_.push(std::move(out));
}

}  // namespace spk
