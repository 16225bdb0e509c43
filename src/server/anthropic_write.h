// Anthropic's answers: content blocks, whole or as the events that build them.
#pragma once

#include "server/service.h"

#include <memory>

namespace spk::server {

std::unique_ptr<AnswerWriter> make_anthropic_writer();

}  // namespace spk::server
