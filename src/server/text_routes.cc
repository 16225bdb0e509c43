// Routes that need the text layer only: tokenize, detokenize, apply-template; and the list of
// models.
#include "server/fields.h"
#include "server/json_write.h"
#include "server/openai_messages.h"
#include "server/routes.h"

#include <ctime>

namespace spk::server {
namespace {

// As both families of clients read it.
void write_model(JsonWriter& w, Service& service) {
  const int64_t context = service.engine().memory().context;
  w.object().field("id", service.options.model_name).field("object", "model");
  w.field("created", service.options.started).field("owned_by", "sparkling");
  w.field("context_length", context).field("max_model_len", context);
  w.field("type", "model").field("display_name", service.options.model_name);
  const std::time_t started = service.options.started;
  std::tm utc{};
  gmtime_r(&started, &utc);
  char when[32];
  std::strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
  w.field("created_at", when).field("lifecycle", "active").field("max_input_tokens", context);
  w.end();
}

}  // namespace

void tokenize(Service& service, const HttpRequest& request, HttpReply& reply) {
  const JsonDocument document(request.body());
  const JsonValue body = document.root();
  const Tokenizer& tokenizer = service.tokenizer();
  std::vector<int32_t> ids;
  if (body.find("messages")) {
    ChatInput chat = read_openai_chat(body, service.options);
    ids = encode_chat(tokenizer, render(service, chat));
  } else {
    const auto text = body.find("content") ? body.find("content") : body.find("prompt");
    if (!text) body.need("content");
    const bool special = body.boolean_or("special", body.boolean_or("parse_special", false));
    ids = tokenizer.encode(text->string(), special ? Special::kForm : Special::kPlain);
  }
  JsonWriter w;
  w.object().key("tokens").array();
  const bool pieces = body.boolean_or("with_pieces", false);
  for (const int32_t id : ids) {
    if (pieces)
      w.object().field("id", id).field("piece", tokenizer.token_bytes(id)).end();
    else
      w.integer(id);
  }
  w.end().field("count", static_cast<int64_t>(ids.size()));
  reply.body = w.field("max_model_len", service.engine().memory().context).end().take();
}

void detokenize(Service& service, const HttpRequest& request, HttpReply& reply) {
  const JsonDocument document(request.body());
  const Tokenizer& tokenizer = service.tokenizer();
  std::vector<int32_t> ids;
  for (const JsonValue& id : document.root().need("tokens").elements())
    ids.push_back(static_cast<int32_t>(id.integer(0, tokenizer.vocab_size() - 1)));
  const std::string text = tokenizer.decode(ids);
  JsonWriter w;
  reply.body = w.object().field("content", text).field("prompt", text).end().take();
}

void apply_template(Service& service, const HttpRequest& request, HttpReply& reply) {
  const JsonDocument document(request.body());
  ChatInput chat = read_openai_chat(document.root(), service.options);
  JsonWriter w;
  reply.body = w.object().field("prompt", chat_text(render(service, chat))).end().take();
}

void models(Service& service, const HttpRequest&, HttpReply& reply) {
  JsonWriter w;
  w.object().field("object", "list").key("data").array();
  write_model(w, service);
  w.end().field("has_more", false);
  w.field("first_id", service.options.model_name).field("last_id", service.options.model_name);
  reply.body = w.end().take();
}

void one_model(Service& service, const HttpRequest& request, HttpReply& reply) {
  const std::string id = request.path().substr(std::string_view("/v1/models/").size());
  if (id != service.options.model_name)
    throw ApiError(
        404, "model_not_found", "model",
        cat("expected '", service.options.model_name, "', the one model here, found '", id, "'"));
  JsonWriter w;
  write_model(w, service);
  reply.body = w.take();
}

void stop_thinking(Service& service, const HttpRequest& request, HttpReply& reply) {
  constexpr std::string_view kBefore = "/v1/chat/completions/", kAfter = "/stop_thinking";
  const std::string& path = request.path();
  const std::string id = path.substr(kBefore.size(), path.size() - kBefore.size() - kAfter.size());
  if (!service.jobs.answer_now(id))
    throw ApiError(404, "not_found", "id",
                   cat("no answer with the id '", id, "' is being written"));
  JsonWriter w;
  reply.body = w.object().field("id", id).field("stopped", true).end().take();
}

}  // namespace spk::server
