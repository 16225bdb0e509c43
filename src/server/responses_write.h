// OpenAI's Responses: output items, whole or as the numbered events that build them.
#pragma once

#include "server/service.h"

#include <memory>
#include <string>
#include <unordered_map>

namespace spk::server {

// Functions that a request has grouped: the name that the model sees -> group and name in it.
struct GroupedName {
  std::string group, name;
};
using GroupedNames = std::unordered_map<std::string, GroupedName>;

// What a response says of its request: JSON texts.
struct RequestEcho {
  int64_t max_output_tokens = 0;  // 0: none
  std::string instructions = "null", metadata = "{}", tool_choice = "\"auto\"", tools = "[]";
  bool parallel = true;
  double temperature = 0, top_p = 1;
};

std::unique_ptr<AnswerWriter> make_responses_writer(RequestEcho request, GroupedNames grouped);

}  // namespace spk::server
