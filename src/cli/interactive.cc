#include "cli/interactive.h"

#include "base/error.h"
#include "base/log.h"
#include "cli/generate.h"
#include "cli/line_editor.h"
#include "cli/output.h"
#include "cli/values.h"

#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace spk::cli {
namespace {

struct Command {
  std::string_view name;
  std::string_view help;
};
constexpr std::array<Command, 7> kCommands = {{
    {"/help", "these commands"},
    {"/clear", "forget the chat so far"},
    {"/system", "TEXT: set the system message (without TEXT: show it)"},
    {"/thinking", "on|off: whether the model thinks first"},
    {"/tool", "TEXT: the result of the model's tool call"},
    {"/save", "FILE: write the chat as JSON"},
    {"/quit", "leave; Ctrl-D does the same"},
}};

class Chat {
 public:
  Chat(Engine& engine, const Options& options, GenerateRequest request, const RenderOptions& render)
      : engine_(engine),
        raw_(options.run.raw),
        request_(std::move(request)),
        tools_(render.tools),
        conversation_(*engine.tokenizer(), render, options.run.system),
        dim_(colour_wanted(STDOUT_FILENO)) {}

  int loop() {
    LineEditor editor(history_path());
    log_info("chat: /help shows commands, Ctrl-C stops an answer, Ctrl-D leaves");
    std::string text;
    while (!quit_) {
      clear_interrupt();
      const LineStatus status = editor.read("> ", text);
      if (status == LineStatus::kEnd) break;
      if (status == LineStatus::kInterrupted) {
        out("^C\n");
        out_flush();
        continue;
      }
      if (text.find_first_not_of(" \t\n") == std::string::npos) continue;
      try {
        if (text.front() == '/') {
          command(text);
        } else {
          say({"user", text, "", {}});
        }
      } catch (const Error& error) {
        if (error.kind() == ErrorKind::kResource) throw;
        log_error(error.what());  // a too long message, a bad file: the chat goes on
      }
    }
    if (!quit_) out("\n");
    return 0;
  }

 private:
  void say(const Message& message) {
    request_.prompt =
        raw_ ? engine_.tokenizer()->encode(message.content) : conversation_.prompt(message);
    std::optional<ParserOptions> parser;
    if (!raw_) parser = ParserOptions{conversation_.thinking(), true, tools_};
    AnswerPrinter printer(dim_);
    Answer answer = generate_answer(engine_, request_, parser, &printer);
    if (answer.result.reason == FinishReason::kCancelled) log_info("stopped");
    if (answer.result.reason == FinishReason::kLength) log_info("ended by the limit of tokens");
    log_info(speed_line(engine_, answer.result));
    if (raw_) return;
    Message reply{"assistant", answer.parsed.content, answer.parsed.reasoning,
                  answer.parsed.tool_calls};
    conversation_.answered(message, request_.prompt, answer.result.tokens, std::move(reply),
                           answer.in_reasoning);
  }

  void command(const std::string& text) {
    const size_t space = std::min(text.find_first_of(" \n"), text.size());
    const std::string name = text.substr(0, space);
    const size_t start = text.find_first_not_of(" \n", space);
    const std::string rest = start == std::string::npos ? "" : text.substr(start);
    if (name == "/help") {
      for (const Command& c : kCommands) log_info(cat("  ", c.name, " ", c.help));
    } else if (name == "/clear") {
      conversation_.clear();
      log_info("cleared");
    } else if (name == "/system") {
      if (!rest.empty()) conversation_.set_system(rest);
      log_info(cat("system message: ",
                   conversation_.system().empty() ? "none" : conversation_.system()));
    } else if (name == "/thinking") {
      constexpr std::array<std::string_view, 2> kChoices = {"on", "off"};
      check_choice(rest, kChoices);
      conversation_.set_thinking(rest == "on");
      log_info(cat("thinking ", rest));
    } else if (name == "/tool") {
      say({"tool", rest, "", {}});
    } else if (name == "/save") {
      save(rest);
    } else if (name == "/quit" || name == "/exit") {
      quit_ = true;
    } else {
      std::vector<std::string_view> names;
      names.reserve(kCommands.size());
      for (const Command& c : kCommands) names.push_back(c.name);
      fail_usage("unknown command '", name, "'", did_you_mean(name, names), "; /help lists them");
    }
  }

  void save(const std::string& file) const {
    if (file.empty()) fail_usage("/save: expected a file, found nothing");
    using Json = nlohmann::ordered_json;
    Json messages = Json::array();
    if (!conversation_.system().empty()) {
      messages.push_back({{"role", "system"}, {"content", conversation_.system()}});
    }
    for (const Message& message : conversation_.messages()) {
      Json row = {{"role", message.role}, {"content", message.content}};
      if (!message.reasoning.empty()) row["reasoning_content"] = message.reasoning;
      for (const ToolCall& call : message.tool_calls) {
        row["tool_calls"].push_back(
            {{"type", "function"},
             {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
      }
      messages.push_back(std::move(row));
    }
    const std::string text =
        Json{{"messages", messages}}.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
    std::FILE* to = std::fopen(file.c_str(), "wb");
    if (to == nullptr) fail_input("cannot create ", file, ": ", std::strerror(errno));
    const bool written = std::fwrite(text.data(), 1, text.size(), to) == text.size();
    if (std::fclose(to) != 0 || !written)
      fail_input("cannot write ", file, ": ", std::strerror(errno));
    log_info(cat("saved ", file));
  }

  Engine& engine_;
  bool raw_;
  GenerateRequest request_;
  std::vector<std::string> tools_;
  Conversation conversation_;
  bool dim_;
  bool quit_ = false;
};

}  // namespace

int chat(Engine& engine, const Options& options, const GenerateRequest& request,
         const RenderOptions& render) {
  set_interrupts(Interrupts::kSurvived);
  return Chat(engine, options, request, render).loop();
}

}  // namespace spk::cli
