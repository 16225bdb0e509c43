// Pieces of JSON that all of OpenAI's answers share.
#pragma once

#include "server/json_write.h"
#include "server/service.h"

#include <string>
#include <string_view>

namespace spk::server {

void write_usage(JsonWriter& w, const Answer& answer);
// {"content": [{token, logprob, bytes, top_logprobs}]}
void write_logprobs(JsonWriter& w, const Tokenizer& tokenizer,
                    const std::vector<TokenScore>& scores);
std::string_view finish_name(JobFinish finish);
// "data: {...}\n\n"
void add_event(std::string& out, std::string_view json);
// "event: NAME\ndata: {...}\n\n"
void add_event(std::string& out, std::string_view name, std::string_view json);

}  // namespace spk::server
