// OpenAI's text completions. The prompt is plain text: what looks like a control token stays text,
// unless the request says "special": true. A list of token ids is taken as it is.
#include "base/log.h"
#include "server/openai_messages.h"
#include "server/openai_text.h"
#include "server/routes.h"

#include <utility>

namespace spk::server {
namespace {

class TextWriter : public AnswerWriter {
 public:
  TextWriter(const Tokenizer& tokenizer, bool usage, bool logprobs, std::string echo)
      : tokenizer_(tokenizer), usage_(usage), logprobs_(logprobs), echo_(std::move(echo)) {}

  std::string whole(const Answer& answer) override {
    JsonWriter w;
    write_head(w, answer, "text_completion");
    w.key("choices").array();
    int index = 0;
    for (const ChoiceText& choice : answer.choices) {
      w.object().field("index", index++).field("text", echo_ + choice.content).key("logprobs");
      size_t offset = echo_.size();
      logprobs_ ? scores(w, choice.scores, offset) : static_cast<void>(w.null());
      w.field("finish_reason", finish_name(choice.result.finish)).end();
    }
    w.end();
    write_account(w, answer);
    return w.end().take();
  }

  void open(const Answer& answer, std::string& out) override {
    offsets_.assign(answer.choices.size(), echo_.size());
    for (size_t i = 0; i < answer.choices.size() && !echo_.empty(); ++i)
      chunk(answer, static_cast<int>(i), echo_, nullptr, {}, out);
  }

  void event(const Answer& answer, const JobEvent& event, std::string& out) override {
    if (event.kind == JobEvent::Kind::kContent)
      chunk(answer, event.choice, event.text, &event.scores, {}, out);
    if (event.kind == JobEvent::Kind::kChoiceEnd)
      chunk(answer, event.choice, "", nullptr,
            finish_name(answer.choices[static_cast<size_t>(event.choice)].result.finish), out);
  }

  void close(const Answer& answer, std::string& out) override {
    close_stream(answer, "text_completion", usage_, out);
  }

  void failed(const Answer&, const ApiError& error, std::string& out) override {
    add_event(out, openai_error(error));
  }

 private:
  void scores(JsonWriter& w, const std::vector<TokenScore>& list, size_t& offset) const {
    w.object().key("tokens").array();
    for (const TokenScore& score : list) w.string(score.text);
    w.end().key("token_logprobs").array();
    for (const TokenScore& score : list) w.number(score.chosen.logprob);
    w.end().key("top_logprobs").array();
    for (const TokenScore& score : list) {
      w.object();
      for (const TokenLogprob& top : score.top)
        w.field(tokenizer_.token_bytes(top.id), top.logprob);
      w.end();
    }
    w.end().key("text_offset").array();
    for (const TokenScore& score : list) {
      w.integer(static_cast<int64_t>(offset));
      offset += score.text.size();
    }
    w.end().end();
  }

  void chunk(const Answer& answer, int choice, std::string_view text,
             const std::vector<TokenScore>* list, std::string_view finish, std::string& out) {
    JsonWriter w;
    write_head(w, answer, "text_completion");
    w.key("choices").array().object().field("index", choice).field("text", text).key("logprobs");
    if (logprobs_ && list != nullptr)
      scores(w, *list, offsets_[static_cast<size_t>(choice)]);
    else
      w.null();
    w.key("finish_reason");
    finish.empty() ? w.null() : w.string(finish);
    w.end().end();
    if (usage_) w.key("usage").null();
    if (!finish.empty() && !usage_) w.key("timings").raw(timings_json(answer));
    add_event(out, w.end().take());
  }

  const Tokenizer& tokenizer_;
  const bool usage_;
  const bool logprobs_;
  const std::string echo_;
  std::vector<size_t> offsets_;  // of the next token, by choice
};

std::vector<int32_t> read_prompt(const JsonValue& prompt, const JsonValue& body,
                                 const Service& service) {
  const Special special = body.boolean_or("special", false) ? Special::kForm : Special::kPlain;
  if (prompt.is_string()) return service.tokenizer().encode(prompt.string(), special);
  if (!prompt.is_array()) prompt.expected("a string or a list of token ids");
  const size_t count = prompt.size();
  if (count > 0 && (prompt.at(0).is_string() || prompt.at(0).is_array())) {
    if (count > 1)
      unsupported("prompt", "expected one prompt, found ", count, "; send one request each");
    return read_prompt(prompt.at(0), body, service);
  }
  std::vector<int32_t> ids;
  ids.reserve(count);
  const int64_t vocab = service.engine().config().shape.vocab;
  for (const JsonValue& id : prompt.elements())
    ids.push_back(static_cast<int32_t>(id.integer(0, vocab - 1)));
  return ids;
}

}  // namespace

Call read_completion(Service& service, std::string_view text) {
  const JsonDocument document(text);
  const JsonValue body = document.root();
  bool usage = false;
  Call call = read_openai_call(body, service.options, "completions", {{"suffix", "\"\""}}, usage);
  JobRequest& job = call.job;
  const auto logprobs = body.find("logprobs");
  if (logprobs) job.top_logprobs = static_cast<int>(logprobs->integer(0, 20));
  // The other API has always had 16 here; a client that relies on it gets it, the field is never
  // silently endless.
  job.max_tokens = body.integer_or("max_tokens", 1, int64_t{1} << 31, 16);
  job.id = call.answer.id = new_id("cmpl-");
  job.prompt = read_prompt(body.need("prompt"), body, service);
  if (job.prompt.empty()) body.need("prompt").expected("at least one token");
  check_length(service, job.prompt.size(), "prompt");
  check_params(job.sampling, service.engine().config().shape.vocab);
  std::string echo;
  if (body.boolean_or("echo", false)) {
    if (logprobs) unsupported("echo", "not together with logprobs in this version");
    echo = service.tokenizer().decode(job.prompt);
  }
  if (service.options.log_prompts)
    log_info(cat("prompt of ", job.id, ": ", service.tokenizer().decode(job.prompt)));
  call.writer = std::make_unique<TextWriter>(service.tokenizer(), usage, logprobs.has_value(),
                                             std::move(echo));
  return call;
}

void completions(Service& service, const HttpRequest& request, HttpReply& reply) {
  run_call(service, read_completion(service, request.body()), request, reply);
}

}  // namespace spk::server
