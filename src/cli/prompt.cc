#include "cli/prompt.h"

#include "base/error.h"
#include "base/file.h"
#include "base/json_whole.h"
#include "formats/untrusted.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

namespace spk::cli {
namespace {

// The turns of `messages` and the generation prompt without the SYSTEM turn that opens every chat.
std::vector<Segment> without_opening(const std::vector<Message>& messages, bool thinking) {
  RenderOptions options;
  options.thinking = thinking;
  std::vector<Segment> all = render_chat(messages, options);
  options.generation_prompt = false;
  const std::string opening = chat_text(render_chat({}, options));
  // Without tools and system text the opening is markup alone, so it is inside the first segment.
  SPK_CHECK(!all.empty() && all.front().is_markup && all.front().text.rfind(opening, 0) == 0);
  all.front().text.erase(0, opening.size());
  return all;
}

void append(std::vector<Segment>& segments, std::string text, bool is_markup) {
  if (!text.empty()) segments.push_back({std::move(text), is_markup});
}

[[noreturn]] void fail_tools(const std::string& file, const std::string& place,
                             const char* expected, const nlohmann::ordered_json& found) {
  std::string text = found.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  fail_input(file, ": ", place, ": expected ", expected, ", found ", text);
}

const nlohmann::ordered_json* member(const nlohmann::ordered_json& object, const char* key) {
  const auto at = object.find(key);
  return at == object.end() ? nullptr : &*at;
}

}  // namespace

Conversation::Conversation(const Tokenizer& tokenizer, RenderOptions options, std::string system)
    : tokenizer_(tokenizer), options_(std::move(options)), system_(std::move(system)) {}

std::vector<Message> Conversation::with_system() const {
  std::vector<Message> all;
  if (!system_.empty()) all.push_back({"system", system_, "", {}});
  all.insert(all.end(), messages_.begin(), messages_.end());
  return all;
}

std::vector<int32_t> Conversation::prompt(const Message& next) const {
  if (history_.empty()) {
    std::vector<Message> all = with_system();
    all.push_back(next);
    return encode_chat(tokenizer_, render_chat(all, options_));
  }
  // The end token itself is not in the history: an answer may also have ended by length or by
  // Ctrl-C.
  std::vector<Segment> more;
  append(more, open_think_ ? "</think><|role_end|>" : "<|role_end|>", true);
  for (Segment& segment : without_opening({next}, options_.thinking))
    more.push_back(std::move(segment));
  std::vector<int32_t> ids = history_;
  const std::vector<int32_t> added = encode_chat(tokenizer_, more);
  ids.insert(ids.end(), added.begin(), added.end());
  return ids;
}

void Conversation::answered(const Message& next, const std::vector<int32_t>& prompt,
                            const std::vector<int32_t>& tokens, Message answer, bool in_reasoning) {
  messages_.push_back(next);
  messages_.push_back(std::move(answer));
  history_ = prompt;
  history_.insert(history_.end(), tokens.begin(), tokens.end());
  open_think_ = in_reasoning;
}

void Conversation::clear() {
  messages_.clear();
  history_.clear();
  open_think_ = false;
}

void Conversation::set_system(std::string system) {
  system_ = std::move(system);
  history_.clear();
}

void Conversation::set_thinking(bool thinking) {
  if (thinking != options_.thinking) history_.clear();
  options_.thinking = thinking;
}

std::vector<std::string> read_tools(const std::string& file) {
  constexpr uint64_t kMaxTools = 8u << 20;
  constexpr size_t kMaxDepth = 100;  // what writes a schema again goes down level by level
  const std::string text = read_input(file, kMaxTools);
  if (const size_t depth = json_depth(text); depth > kMaxDepth)
    fail_input(file, ": expected at most ", kMaxDepth, " levels, found ", depth);
  const auto root = nlohmann::ordered_json::parse(json_whole(text), nullptr, false);
  if (root.is_discarded())
    fail_input(file, ": expected a JSON array of tools, found no valid JSON");
  if (!root.is_array() || root.empty()) fail_tools(file, "top", "a JSON array of tools", root);
  std::vector<std::string> tools;
  for (size_t i = 0; i < root.size(); ++i) {
    const auto& tool = root[i];
    const std::string place = cat("tool ", i);
    if (!tool.is_object()) fail_tools(file, place, "an object", tool);
    const auto* type = member(tool, "type");
    if (type == nullptr || *type != "function")
      fail_tools(file, place, "\"type\": \"function\"", tool);
    const auto* function = member(tool, "function");
    if (function == nullptr || !function->is_object())
      fail_tools(file, place, "a \"function\" object", tool);
    const auto* name = member(*function, "name");
    if (name == nullptr || !name->is_string() || name->get_ref<const std::string&>().empty()) {
      fail_tools(file, place, "a \"name\" that is not empty", *function);
    }
    const auto* parameters = member(*function, "parameters");
    if (parameters != nullptr && !parameters->is_object()) {
      fail_tools(file, place, "\"parameters\" to be an object", *parameters);
    }
    tools.push_back(tool.dump());
  }
  return tools;
}

TemplateReport template_report(const OpenedModel& model) {
  TemplateReport report;
  if (!model.chat_template) {
    report.text = "the model has none: --raw only";
  } else {
    const TemplateMatch match = known_template(*model.chat_template);
    report.known = match.known;
    report.text = match.known
                      ? cat("known (", match.name, "), rendered by our own code")
                      : cat("unknown (hash ", match.hash, "): rendered as the family's, not run");
  }
  const std::optional<Tokenizer> tokenizer = load_tokenizer(model);
  if (!tokenizer) {
    report.text += "; no tokenizer.json";
    return report;
  }
  const Message question{"user", "What is 2 + 2?", "", {}};
  const Message answer{"assistant", "4", "2 + 2 = 4", {}};
  const Message again{"user", "And 3 + 3?", "", {}};
  RenderOptions with_tool;
  with_tool.tools = {
      R"({"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}})"};
  const auto count = [&](const std::vector<Message>& messages, const RenderOptions& options) {
    return static_cast<int64_t>(encode_chat(*tokenizer, render_chat(messages, options)).size());
  };
  report.samples = {{"one question", count({question}, {})},
                    {"two turns", count({question, answer, again}, {})},
                    {"with a tool", count({question}, with_tool)}};
  return report;
}

}  // namespace spk::cli
