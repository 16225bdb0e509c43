#include "cli/generate.h"

#include "base/error.h"
#include "cli/output.h"
#include "cli/values.h"
#include "text/json_text.h"

namespace spk::cli {
namespace {

void show(const std::vector<ChatEvent>& events, const ChatParser& parser, AnswerPrinter* printer) {
  if (printer == nullptr) return;
  for (const ChatEvent& event : events) {
    switch (event.kind) {
      case ChatEvent::Kind::kReasoning:
        printer->reasoning(event.text);
        break;
      case ChatEvent::Kind::kContent:
        printer->content(event.text);
        break;
      case ChatEvent::Kind::kToolEnd:
        printer->tool_call(tool_call_json(parser.result().tool_calls[event.call]));
        break;
      case ChatEvent::Kind::kToolBegin:
      case ChatEvent::Kind::kArguments:
        break;  // a call is shown whole
    }
  }
}

}  // namespace

Answer generate_answer(Engine& engine, const GenerateRequest& request,
                       const std::optional<ParserOptions>& options, AnswerPrinter* printer) {
  Answer answer;
  std::optional<ChatParser> parser;
  if (options) parser.emplace(*options);
  answer.result = engine.generate(request, [&](const TokenEvent& event) {
    if (parser) {
      if (parser->in_reasoning()) ++answer.reasoning_tokens;
      show(parser->push(event.text), *parser, printer);
    } else if (printer != nullptr) {
      printer->raw(event.text);
    }
    return !interrupted();
  });
  if (parser) {
    answer.in_reasoning = parser->in_reasoning();
    show(parser->finish(), *parser, printer);
    answer.parsed = parser->result();
  } else {
    answer.parsed.content = answer.result.text;
  }
  if (printer != nullptr) printer->finish();
  return answer;
}

std::string speed_line(Engine& engine, const GenerateResult& result) {
  const Timings& t = result.timings;
  if (t.output_tokens == 0)
    return cat("interrupted after ", t.cached_tokens + t.read_tokens, " of ", t.prompt_tokens,
               " prompt tokens");
  std::string line = cat("prompt ", t.prompt_tokens, " tokens, ", t.cached_tokens, " cached, ",
                         show_fixed(t.prefill_tok_s(), 1), " tok/s");
  if (t.output_tokens < 2) return line;  // the first token belongs to the prompt
  const double used = t.gigabytes_per_second();
  line +=
      cat("; decode ", show_fixed(t.decode_tok_s(), 1), " tok/s, ",
          show_fixed(t.bytes_per_token() / 1e6, 2), " MB/token, ", show_fixed(used, 2), " GB/s");
  if (result.reason != FinishReason::kCancelled) {
    const double bandwidth = engine.backend().read_bandwidth() / 1e9;
    line += bandwidth > 0 ? cat(", ", show_fixed(100 * used / bandwidth, 1), " % of ",
                                show_fixed(bandwidth, 1), " GB/s")
                          : ", bandwidth not measured within the memory limit";
  }
  if (t.drafts.drafting_cycles > 0)
    line += cat("; accept length ", show_fixed(t.drafts.accept_length(), 2));
  return line;
}

std::string tool_call_json(const ToolCall& call) {
  return cat("{\"name\": ", json_quote(call.name),
             ", \"arguments\": ", call.arguments.empty() ? "{}" : call.arguments, "}");
}

}  // namespace spk::cli
