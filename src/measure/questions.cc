#include "measure/questions.h"

#include "base/error.h"
#include "base/file.h"
#include "measure/json_row.h"
#include "measure/lines.h"

#include <nlohmann/json.hpp>

#include <cinttypes>
#include <cstdio>
#include <unordered_map>

namespace spk {
namespace {

using Json = nlohmann::json;

// FNV-1a: names data, guards against nobody.
std::string hash_of(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, hash);
  return text;
}

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

std::string text_field(const Json& row, const char* key, const std::string& place) {
  const auto at = row.find(key);
  if (at == row.end()) fail_input(place, ": expected a field '", key, "', found none");
  if (!at->is_string() && !at->is_number())
    fail_input(place, ": ", key, ": expected a text, found ", shown(*at));
  std::string text = at->is_string() ? at->get<std::string>() : at->dump();
  // A number beyond 17 digits is another one once it is read: "1.2345678901234568e+22".
  if (at->is_number() && text.find('e') != std::string::npos)
    fail_input(place, ": ", key,
               ": expected a number that is written without an exponent, or a "
               "text, found ",
               text);
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    fail_input(place, ": ", key, ": expected a text, found an empty one");
  return text;
}

std::string id_field(const Json& row, const std::string& place, size_t index) {
  const auto at = row.find("id");
  if (at == row.end() || at->is_null()) return std::to_string(index);
  if (at->is_string() && !at->get_ref<const std::string&>().empty()) return at->get<std::string>();
  if (at->is_number_integer()) return at->dump();
  fail_input(place, ": id: expected a text or a whole number, found ", shown(*at));
}

}  // namespace

QuestionFile parse_questions(std::string_view bytes, const std::string& path) {
  QuestionFile file;
  file.path = path;
  file.hash = hash_of(bytes);
  std::unordered_map<std::string, size_t> lines;  // id -> its line
  for_each_line(bytes, path, [&](std::string_view line, const std::string& place, size_t number) {
    const Json row = Json::parse(json_row(line, place), nullptr, false);
    if (!row.is_object())
      fail_input(place, ": expected one JSON object {\"question\": ..., \"answer\": ...}, found ",
                 row.is_discarded() ? "no JSON" : shown(row));
    Question q;
    q.id = id_field(row, place, file.questions.size());
    q.question = text_field(row, "question", place);
    q.answer = text_field(row, "answer", place);
    q.gold = parse_gold(q.answer);
    if (q.gold.value.empty())
      fail_input(place, ": answer: expected a value after ####, found none");
    const auto [first, fresh] = lines.emplace(q.id, number);
    if (!fresh)
      fail_input(place, ": expected an id of its own, found \"", q.id, "\" of line ",
                 first->second);
    file.questions.push_back(std::move(q));
  });
  if (file.questions.empty()) fail_input(path, ": expected at least one question, found none");
  return file;
}

QuestionFile read_questions(const std::string& path) {
  return parse_questions(read_input(path, kMaxText), path);
}

}  // namespace spk
