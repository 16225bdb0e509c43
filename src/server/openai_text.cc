#include "server/openai_text.h"

#include "server/routes.h"

#include <algorithm>

namespace spk::server {

std::string openai_error(const ApiError& error) {
  JsonWriter w;
  w.object().key("error").object().field("message", error.what());
  const char* type = "invalid_request_error";
  if (error.status == 401 || error.status == 403) type = "authentication_error";
  if (error.status == 429) type = "rate_limit_error";
  if (error.status >= 500) type = "server_error";
  w.field("type", type).key("param");
  error.param.empty() ? w.null() : w.string(error.param);
  w.key("code");
  error.code.empty() ? w.null() : w.string(error.code);
  return w.end().end().take();
}

void write_usage(JsonWriter& w, const Answer& answer) {
  const int64_t out = answer.completion_tokens();
  w.object()
      .field("prompt_tokens", answer.prompt_tokens)
      .field("completion_tokens", out)
      .field("total_tokens", answer.prompt_tokens + out)
      .key("prompt_tokens_details")
      .object()
      .field("cached_tokens", answer.cached_tokens())
      .end()
      .key("completion_tokens_details")
      .object()
      .field("reasoning_tokens", answer.reasoning_tokens())
      .end()
      .end();
}

void write_head(JsonWriter& w, const Answer& answer, std::string_view object) {
  w.object().field("id", answer.id).field("object", object).field("created", answer.created);
  w.field("model", answer.model).field("system_fingerprint", answer.build);
}

void write_account(JsonWriter& w, const Answer& answer) {
  w.key("usage");
  write_usage(w, answer);
  w.key("timings").raw(timings_json(answer));
}

void close_stream(const Answer& answer, std::string_view object, bool usage, std::string& out) {
  if (usage) {
    JsonWriter w;
    write_head(w, answer, object);
    w.key("choices").array().end();
    write_account(w, answer);
    add_event(out, w.end().take());
  }
  add_event(out, "[DONE]");
}

namespace {

void write_token(JsonWriter& w, std::string_view text, double logprob) {
  w.field("token", text).field("logprob", logprob).key("bytes").array();
  for (const char c : text) w.integer(static_cast<unsigned char>(c));
  w.end();
}

}  // namespace

void write_logprobs(JsonWriter& w, const Tokenizer& tokenizer,
                    const std::vector<TokenScore>& scores) {
  w.object().key("content").array();
  for (const TokenScore& score : scores) {
    w.object();
    write_token(w, score.text, score.chosen.logprob);
    w.key("top_logprobs").array();
    for (const TokenLogprob& top : score.top) {
      w.object();
      write_token(w, tokenizer.token_bytes(top.id), top.logprob);
      w.end();
    }
    w.end().end();
  }
  w.end().key("refusal").null().end();
}

std::string_view finish_name(JobFinish finish) {
  switch (finish) {
    case JobFinish::kStop:
      return "stop";
    case JobFinish::kLength:
      return "length";
    case JobFinish::kToolCalls:
      return "tool_calls";
    case JobFinish::kCancelled:
      return "cancelled";
  }
  return "";
}

void add_event(std::string& out, std::string_view json) {
  out += "data: ";
  out += json;
  out += "\n\n";
}

void add_event(std::string& out, std::string_view name, std::string_view json) {
  out += "event: ";
  out += name;
  out += '\n';
  add_event(out, json);
}

std::string timings_json(const Answer& answer) {
  Timings sum;
  for (const ChoiceText& choice : answer.choices) {
    const Timings& t = choice.result.timings;
    if (&choice == &answer.choices.front()) sum.cached_tokens = t.cached_tokens;
    sum.prompt_tokens = t.prompt_tokens;
    if (&choice == &answer.choices.front()) sum.read_tokens = t.read_tokens;
    sum.output_tokens +=
        std::max<int64_t>(t.output_tokens, 1) - 1;  // the first one belongs to prefill
    sum.prefill_seconds += t.prefill_seconds;
    sum.decode_seconds += t.decode_seconds;
    sum.weight_bytes += t.weight_bytes;
    sum.state_bytes += t.state_bytes;
    sum.drafts.add(t.drafts);
  }
  const auto read = static_cast<double>(sum.read_tokens);
  const auto per_second = [](double n, double s) { return s > 0 ? n / s : 0; };
  JsonWriter w;
  w.object()
      .field("queue_ms", 1e3 * answer.queue_seconds)
      .field("first_token_ms", 1e3 * answer.first_token_seconds)
      .field("total_ms", 1e3 * answer.total_seconds)
      .field("prompt_tokens", sum.prompt_tokens)
      .field("cached_tokens", sum.cached_tokens)
      .field("prefill_ms", 1e3 * sum.prefill_seconds)
      .field("prefill_tok_s", per_second(read, sum.prefill_seconds))
      .field("decode_ms", 1e3 * sum.decode_seconds)
      .field("decode_tok_s", per_second(static_cast<double>(sum.output_tokens), sum.decode_seconds))
      // Where decoding spent its time; what is missing to decode_ms is neither model nor sampling.
      .field("draft_ms", 1e3 * sum.drafts.draft_seconds)
      .field("verify_ms", 1e3 * sum.drafts.verify_seconds)
      .field("sample_ms", 1e3 * sum.drafts.accept_seconds)
      .field("bytes_per_token", per_second(static_cast<double>(sum.weight_bytes + sum.state_bytes),
                                           static_cast<double>(sum.output_tokens)))
      .field("cycles", static_cast<int64_t>(sum.drafts.cycles))
      .field("accept_length", sum.drafts.accept_length())
      .key("acceptance")  // of position j, given that it was drafted
      .array();
  for (size_t i = 0; i < sum.drafts.drafted.size() && sum.drafts.drafted[i] > 0; ++i) {
    w.number(static_cast<double>(sum.drafts.accepted[i]) /
             static_cast<double>(sum.drafts.drafted[i]));
  }
  return w.end().end().take();
}

}  // namespace spk::server
