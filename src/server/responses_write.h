// OpenAI's Responses: output items, whole or as the numbered events that build them.
#pragma once

#include "server/service.h"

#include <memory>

namespace spk::server {

std::unique_ptr<AnswerWriter> make_responses_writer(int64_t max_output_tokens);

}  // namespace spk::server
