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

std::unique_ptr<AnswerWriter> make_responses_writer(int64_t max_output_tokens,
                                                    GroupedNames grouped);

}  // namespace spk::server
