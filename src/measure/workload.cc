#include "measure/workload.h"

#include "backend/sampler.h"
#include "base/error.h"
#include "base/file.h"
#include "measure/json_row.h"
#include "measure/lines.h"

#include <nlohmann/json.hpp>

namespace spk {
namespace {

using Json = nlohmann::json;

std::string text_of(const Json& row, const std::string& place) {
  if (row.is_string()) return row.get<std::string>();
  if (!row.is_object())
    fail_input(place, ": expected a JSON string or an object with \"prompt\", found ",
               row.is_discarded() ? "no JSON" : row.type_name());
  for (const char* key : {"prompt", "question"}) {
    const auto at = row.find(key);
    if (at != row.end() && at->is_string()) return at->get<std::string>();
  }
  fail_input(place, ": expected a text \"prompt\", found none");
}

}  // namespace

std::vector<int32_t> token_stream(int64_t n, uint64_t seed, int64_t vocab) {
  std::vector<int32_t> ids;
  ids.reserve(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const double u = uniform_at(seed, 0, static_cast<uint64_t>(i), 0);
    ids.push_back(static_cast<int32_t>(u * static_cast<double>(vocab)));
  }
  return ids;
}

std::vector<TextPrompt> parse_prompts(std::string_view bytes, const std::string& path) {
  std::vector<TextPrompt> prompts;
  for_each_line(bytes, path, [&](std::string_view line, const std::string& place, size_t) {
    const Json row = Json::parse(json_row(line, place), nullptr, false);
    TextPrompt prompt;
    prompt.text = text_of(row, place);
    if (prompt.text.empty()) fail_input(place, ": expected a prompt, found an empty one");
    if (row.is_object() && row.contains("kind")) {
      if (!row["kind"].is_string())
        fail_input(place, ": kind: expected a text, found ", row["kind"].type_name());
      prompt.kind = row["kind"].get<std::string>();
    }
    if (row.is_object() && row.contains("thinking")) {
      if (!row["thinking"].is_boolean())
        fail_input(place, ": thinking: expected true or false, found ",
                   row["thinking"].type_name());
      prompt.thinking = row["thinking"].get<bool>();
    }
    prompts.push_back(std::move(prompt));
  });
  if (prompts.empty()) fail_input(path, ": expected at least one prompt, found none");
  return prompts;
}

std::vector<TextPrompt> read_prompts(const std::string& path) {
  return parse_prompts(read_input(path, kMaxText), path);
}

std::vector<TextPrompt> study_prompts() {
  std::string lamps = "Go on with this list:\n";
  for (int i = 0; i < 24; ++i) lamps += "lamp, table, chair, door, window, lamp, table, chair\n";
  return {
      {"repetitive", lamps},
      {"repetitive",
       "Copy the line ten times: the red fox sees the red hen and the red hen sees the red fox"},
      {"word problem",
       "A tank of Bella holds 91 liters. 36 liters flow in. 13 liters leak out. Rain brings the "
       "water to 4 times as much. How many liters are in it in the end?"},
      {"word problem",
       "Tom has 3 apples and buys 4 more. He gives 2 to his sister. How many apples does he have?"},
      {"word problem", "A box holds 6 eggs. How many eggs are in 14 boxes if 5 eggs are broken?"},
      {"word problem, thinking", "4/9 of 90 tiles are sold. How many are sold?", true},
      {"word problem, thinking",
       "Vera buys 39 crayons at $8 each instead of $12 each. How much money is saved?", true},
      {"word problem, thinking",
       "99 trays of 9 baskets are repacked into boxes that hold 11. How many boxes are needed?",
       true},
      {"chat", "Hello! What can you do for me?"},
      {"chat", "Please tell me how to make tea."},
      {"code", "Write a function in C that counts the words of a text."},
      {"prose", "Tell a short story about an old lighthouse and a boy who finds a key."},
  };
}

}  // namespace spk
