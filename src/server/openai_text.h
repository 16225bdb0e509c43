// Pieces of JSON that all of OpenAI's answers share.
#pragma once

#include "server/json_write.h"
#include "server/service.h"

#include <string>
#include <string_view>

namespace spk::server {

// The fields that open each of OpenAI's answers and chunks: id, object, created, model, build.
void write_head(JsonWriter& w, const Answer& answer, std::string_view object);
// "usage" and "timings", which close them.
void write_account(JsonWriter& w, const Answer& answer);
// The end of a stream: with `usage` a chunk that has the account and no choices, then [DONE].
void close_stream(const Answer& answer, std::string_view object, bool usage, std::string& out);
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
