#include "server/fields.h"

#include "base/log.h"
#include "server/json_write.h"
#include "text/json_text.h"

#include <array>
#include <charconv>
#include <limits>
#include <random>
#include <system_error>

namespace spk::server {
namespace {

struct Effort {
  std::string_view name;
  int64_t budget;
};
constexpr std::array<Effort, 7> kEfforts = {{{"none", 0},
                                             {"minimal", 256},
                                             {"low", 1024},
                                             {"medium", 4096},
                                             {"high", -1},
                                             {"xhigh", -1},
                                             {"max", -1}}};

int64_t effort_budget(const JsonValue& effort) {
  const std::string name = effort.string();
  for (const Effort& known : kEfforts) {
    if (known.name == name) return known.budget;
  }
  effort.expected("none, minimal, low, medium, high, xhigh or max");
}

int64_t read_budget(const JsonValue& field) { return field.integer(0, int64_t{1} << 31); }

uint64_t fresh_seed() {
  static thread_local std::random_device device;
  return ((static_cast<uint64_t>(device()) << 32) | device()) >>
         11;  // 53 bits survive JSON readers
}

void read_bias(const JsonValue& field, SamplerParams& p) {
  for (const auto& [key, value] : field.members()) {
    int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0)
      bad_field("logit_bias", "expected token ids as keys, found '", key.substr(0, 40), "'");
    p.logit_bias.emplace_back(id, value.number(-1000, 1000));
  }
}

}  // namespace

Thinking read_thinking(const JsonValue& body, const std::optional<JsonValue>& effort,
                       const Thinking& otherwise) {
  std::optional<bool> on;
  std::optional<int64_t> budget;
  if (const auto field = body.find("thinking_budget")) budget = read_budget(*field);
  if (const auto field = body.find("enable_thinking")) on = field->boolean();
  if (const auto kwargs = body.find("chat_template_kwargs")) {
    for (const auto& [key, value] : kwargs->members()) {
      if (key == "enable_thinking" || key == "thinking") {
        const bool wanted = value.boolean();
        if (!on) on = wanted;
      } else if (key == "thinking_option") {
        const std::string option = value.string();
        if (option != "on" && option != "off") value.expected("on or off");
        if (!on) on = option == "on";
      } else if (key == "thinking_budget") {
        if (!budget) budget = read_budget(value);
      } else {
        // The field's own name is the client's text: it goes into the answer, never into the log.
        unsupported("chat_template_kwargs",
                    "expected enable_thinking, thinking_option or thinking_budget, found '",
                    key.substr(0, 40), "'");
      }
    }
  }
  if (const auto thinking = body.find("thinking")) {
    const JsonValue type = thinking->need("type");
    const std::string name = type.string();
    if (name != "enabled" && name != "adaptive" && name != "disabled")
      type.expected("enabled, adaptive or disabled");
    const auto limit = thinking->find("budget_tokens");
    if (limit && !budget) budget = read_budget(*limit);
    if (!on) on = name != "disabled";
  }
  if (effort) {
    const int64_t limit = effort_budget(*effort);
    if (!budget && (limit > 0 || (limit == 0 && !on))) budget = limit;
    if (!on) on = limit != 0;
    if (!budget && limit < 0) budget = -1;
  }
  Thinking out;
  out.on = on.value_or(otherwise.on);
  out.budget = budget.value_or(otherwise.budget);
  if (out.budget == 0) out.on = false;
  return out;
}

std::vector<std::string> read_stop(const JsonValue& field) {
  std::vector<std::string> stops;
  if (field.is_string()) {
    stops.push_back(field.string());
  } else if (field.is_array()) {
    for (const JsonValue& stop : field.elements()) stops.push_back(stop.string());
  } else {
    field.expected("a string or a list of strings");
  }
  if (stops.size() > 16)
    bad_field(field.path(), "expected at most 16 strings, found ", stops.size());
  for (const std::string& stop : stops) {
    if (stop.empty())
      bad_field(field.path(), "expected strings of at least one byte, found an empty one");
  }
  return stops;
}

void read_sampling(const JsonValue& body, const ServerOptions& options, JobRequest& job) {
  SamplerParams& p = job.sampling = options.sampling;
  p.temperature = body.number_or("temperature", 0, 100, p.temperature);
  p.top_p = body.number_or("top_p", std::numeric_limits<double>::min(), 1, p.top_p);
  p.top_k = body.integer_or("top_k", -1, int64_t{1} << 30, p.top_k);
  p.min_p = body.number_or("min_p", 0, 1, p.min_p);
  for (const char* name : {"repetition_penalty", "repeat_penalty"})
    p.repetition_penalty = body.number_or(name, 0.01, 100, p.repetition_penalty);
  p.presence_penalty = body.number_or("presence_penalty", -100, 100, p.presence_penalty);
  p.frequency_penalty = body.number_or("frequency_penalty", -100, 100, p.frequency_penalty);
  if (const auto bias = body.find("logit_bias")) read_bias(*bias, p);
  const auto seed = body.find("seed");
  job.seeded = seed.has_value();
  p.seed = seed ? static_cast<uint64_t>(seed->integer(0, std::numeric_limits<int64_t>::max()))
                : fresh_seed();
  job.choices = static_cast<int>(body.integer_or("n", 1, 8, 1));
  job.ignore_eos = body.boolean_or("ignore_eos", false);
  if (const auto stop = body.find("stop")) job.stop = read_stop(*stop);
}

Call begin_call(const JsonValue& body, const ServerOptions& options, const char* endpoint,
                bool one_answer) {
  // Constraints, and other texts than the one that would come, by whatever API's name a client
  // knows them.
  refuse_fields(body, {{"response_format", "{\"type\":\"text\"}"},
                       {"structured_outputs", ""},
                       {"guided_json", ""},
                       {"guided_regex", ""},
                       {"guided_choice", ""},
                       {"guided_grammar", ""},
                       {"structural_tag", ""},
                       {"grammar", ""},
                       {"regex", ""},
                       {"ebnf", ""},
                       {"json_schema", ""},
                       {"allowed_token_ids", ""},
                       {"bad_words", ""},
                       {"stop_token_ids", ""},
                       {"min_tokens", "0"},
                       {"chat_template", ""},
                       {"continue_final_message", ""},
                       {"prompt_logprobs", ""}});
  body.string_or("model", "");
  Call call;
  call.endpoint = endpoint;
  call.stream = body.boolean_or("stream", false);
  read_sampling(body, options, call.job);
  if (one_answer && call.job.choices > 1) unsupported("n", "this API has one answer per request");
  return call;
}

void refuse_fields(const JsonValue& body, std::initializer_list<Refused> fields) {
  for (const Refused& refused : fields) {
    const auto value = body.find(refused.field);
    if (!value) continue;
    const std::string text = value->dump();
    if (text == "false" || text == "[]" || text == "{}" || text == refused.harmless) continue;
    unsupported(value->path(),
                "not in this version, and an answer without it would be another one");
  }
}

void check_text(const JsonValue& object, std::string_view field) {
  (void)object.string_or(field, "");
}

std::string read_text(const JsonValue& content) {
  if (content.is_string()) return content.string();
  if (!content.is_array()) content.expected("a string or a list of parts");
  std::string text;
  for (const JsonValue& part : content.elements()) {
    if (part.is_string()) {
      text += part.string();
      continue;
    }
    const std::string type = part.string_or("type", "text");
    if (type == "text" || type == "input_text" || type == "output_text") {
      text += part.need("text").string();
    } else if (type == "refusal") {
      text += part.need("refusal").string();
    } else {
      unsupported(part.path(), "expected a part of type text, found '", type.substr(0, 40),
                  "': this model reads and writes text only");
    }
  }
  return text;
}

namespace {

void refuse_strict(const JsonValue& tool) {
  if (tool.boolean_or("strict", false))
    unsupported(tool.path() + ".strict", "schemas are not enforced in this version; use false");
}

void check_tool_name(const JsonValue& name) {
  const std::string text = name.string();
  if (text.empty() || text.size() > 128) name.expected("a name of 1 to 128 characters");
}

}  // namespace

std::string read_chat_tool(const JsonValue& tool) {
  const std::string type = tool.string_or("type", "function");
  if (type != "function")
    unsupported(tool.path() + ".type", "expected function, found '", type.substr(0, 40), "'");
  const JsonValue function = tool.need("function");
  check_tool_name(function.need("name"));
  check_text(function, "description");
  refuse_strict(function);
  refuse_strict(tool);
  if (const auto parameters = function.find("parameters"); parameters && !parameters->is_object())
    parameters->expected("a JSON schema");
  JsonWriter w;
  w.object();
  for (const auto& [key, value] : tool.members()) {
    if (key == "strict") continue;
    w.key(key);
    if (key != "function") {
      w.raw(value.dump());
      continue;
    }
    w.object();
    for (const auto& [name, part] : value.members()) {
      if (name != "strict") w.key(name).raw(part.dump());
    }
    w.end();
  }
  return w.end().take();
}

std::string read_flat_tool(const JsonValue& tool, std::string_view schema_key,
                           const std::string& prefix) {
  const JsonValue name = tool.need("name");
  check_tool_name(name);
  refuse_strict(tool);
  JsonWriter w;
  w.object()
      .field("type", "function")
      .key("function")
      .object()
      .field("name", prefix + name.string());
  if (const auto text = tool.find("description")) w.field("description", text->string());
  if (const auto schema = tool.find(schema_key)) {
    if (!schema->is_object()) schema->expected("a JSON schema");
    w.key("parameters").raw(schema->dump());
  }
  return w.end().end().take();
}

std::string read_arguments(const JsonValue& text) {
  std::string json = text.string();
  if (json.empty()) return "{}";
  try {
    json_members(json, text.path());
  } catch (const Error& error) {
    throw ApiError(400, "invalid_value", text.path(), error.what());
  }
  return json;
}

void read_tool_choice(const JsonValue& body, ChatInput& chat) {
  if (const auto choice = body.find("tool_choice")) {
    const std::string name = choice->is_string() ? choice->string() : "";
    if (name == "none")
      chat.may_call = false;
    else if (name != "auto")
      unsupported("tool_choice", "expected auto or none, found ", choice->shown(),
                  ": calls cannot be forced in this version");
  }
  chat.one_call = !body.boolean_or("parallel_tool_calls", true);
}

std::vector<Segment> render(Service& service, ChatInput& chat) {
  for (Message& message : chat.messages) {
    if (message.role == "assistant") service.turns.restore(message);
  }
  RenderOptions options;
  options.thinking = chat.thinking.on;
  options.tools = chat.tools;
  return render_chat(chat.messages, options);
}

void check_length(const Service& service, size_t tokens, const std::string& field) {
  const auto context = static_cast<size_t>(service.engine().memory().context);
  if (tokens < context) return;
  throw ApiError(400, "context_length_exceeded", field,
                 cat("context_length_exceeded: the prompt has ", tokens, " tokens, the context is ",
                     context, " tokens for prompt and answer together"));
}

void prepare_chat(Service& service, ChatInput chat, Call& call) {
  const std::vector<Segment> segments = render(service, chat);
  const Tokenizer& tokenizer = service.tokenizer();
  JobRequest& job = call.job;
  job.prompt = encode_chat(tokenizer, segments);
  check_length(service, job.prompt.size(), chat.field);
  ParserOptions parser;
  parser.thinking = chat.thinking.on;
  parser.tool_calls = chat.may_call && !chat.tools.empty();
  parser.tools = chat.tools;
  if (!parser.tool_calls) {
    // No call may come, so the token that opens one must not either.
    if (const auto opener = tokenizer.id_of("<tool_call>"))
      job.sampling.logit_bias.emplace_back(*opener, -1000.0);
  }
  job.parser = std::move(parser);
  if (chat.thinking.on) job.thinking_budget = chat.thinking.budget;
  if (chat.one_call) job.max_calls = 1;
  call.thinking_open = chat.thinking.on;
  check_params(job.sampling, service.engine().config().shape.vocab);
  if (service.options.log_prompts) log_info(cat("prompt of ", job.id, ": ", chat_text(segments)));
}

}  // namespace spk::server
