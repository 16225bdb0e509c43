// One function per endpoint: reads the request in its API's form, answers or throws ApiError.
#pragma once

#include "server/http.h"
#include "server/service.h"

#include <string>

namespace spk::server {

// OpenAI
void chat_completions(Service&, const HttpRequest&, HttpReply&);
void completions(Service&, const HttpRequest&, HttpReply&);
void responses(Service&, const HttpRequest&, HttpReply&);
void models(Service&, const HttpRequest&, HttpReply&);
void one_model(Service&, const HttpRequest&, HttpReply&);
void stop_thinking(Service&, const HttpRequest&, HttpReply&);  // .../{id}/stop_thinking
// Anthropic
void messages(Service&, const HttpRequest&, HttpReply&);
void count_tokens(Service&, const HttpRequest&, HttpReply&);
// Ours, in the forms that other engines have
void tokenize(Service&, const HttpRequest&, HttpReply&);
void detokenize(Service&, const HttpRequest&, HttpReply&);
void apply_template(Service&, const HttpRequest&, HttpReply&);

// What /props says of the model and of what really runs, without live figures.
std::string props_json(const Service& service, const std::string& live);

// /roof: what the time per token is measured against.
std::string roof_json(Service& service);

// Error bodies.
std::string openai_error(const ApiError& error);
std::string anthropic_error(const ApiError& error);

// For fuzzing: the reading halves alone. Any ApiError or Error is fine, anything else is a bug.
Call read_chat(Service&, std::string_view body);
Call read_completion(Service&, std::string_view body);
Call read_responses(Service&, std::string_view body);
Call read_messages(Service&, std::string_view body);

}  // namespace spk::server
