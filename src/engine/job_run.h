// One job on the engine thread: its choices one after the other, tokens to events.
//
// Everything that must act on the very next token lives here: the parser that knows whether the
// model is still thinking, the budget of reasoning tokens, stop strings, the limit of tool calls.
#pragma once

#include "engine/jobs.h"
#include "engine/stop.h"

#include <deque>

namespace spk {

class JobRun {
 public:
  JobRun(Engine& engine, Job& job) : engine_(engine), job_(job) {}
  // Pushes events up to kDone or kFailed. Throws nothing but DeviceLost, after the events.
  void run();

 private:
  struct Choice;
  bool run_choice(int index);  // false: cancelled
  bool token(Choice& choice, const TokenEvent& event);
  void take(Choice& choice, std::vector<ChatEvent> parsed, std::vector<JobEvent>& out);
  void content(Choice& choice, const std::string& text, std::vector<JobEvent>& out);
  void rest_of_content(Choice& choice, std::vector<JobEvent>& out);
  void finish(Choice& choice, const GenerateResult& result);

  Engine& engine_;
  Job& job_;
};

}  // namespace spk
