#include "measure/eval_log.h"

#include "base/error.h"
#include "base/file.h"
#include "measure/json_row.h"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_set>

namespace spk {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHead = "sparkling_eval";  // key of the first row; the value is the version

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string head_line(const EvalSettings& options) {
  Json json;
  json[kHead] = 1;
  json["options"] = Json::object();
  for (const auto& [name, value] : options) json["options"][name] = value;
  return line_of(json);
}

std::string row_line(const EvalRow& r) {
  Json json;
  json["id"] = r.id;
  json["gold"] = r.gold;
  json["answer"] = r.answer ? Json(*r.answer) : Json(nullptr);
  json["correct"] = r.correct;
  json["finish_reason"] = r.finish_reason;
  if (!r.error.empty()) json["error"] = r.error;
  json["prompt_tokens"] = r.prompt_tokens;
  json["output_tokens"] = r.output_tokens;
  json["ttft_ms"] = r.ttft_ms;
  json["decode_ms"] = r.decode_ms;
  json["accept_length"] = r.draft_passes > 0 ? Json(r.accept_length) : Json(nullptr);
  json["draft_passes"] = r.draft_passes;
  json["draft_tokens"] = r.draft_tokens;
  json["text"] = r.text;
  return line_of(json);
}

// Throws nlohmann's exceptions for a missing or wrong field; the caller names the place.
EvalRow row_of(const Json& json) {
  EvalRow r;
  r.id = json.at("id").get<std::string>();
  r.gold = json.at("gold").get<std::string>();
  if (!json.at("answer").is_null()) r.answer = json.at("answer").get<std::string>();
  r.correct = json.at("correct").get<bool>();
  r.finish_reason = json.at("finish_reason").get<std::string>();
  r.error = json.value("error", "");
  r.prompt_tokens = json.at("prompt_tokens").get<int64_t>();
  r.output_tokens = json.at("output_tokens").get<int64_t>();
  r.ttft_ms = json.at("ttft_ms").get<double>();
  r.decode_ms = json.at("decode_ms").get<double>();
  if (!json.at("accept_length").is_null()) r.accept_length = json.at("accept_length").get<double>();
  r.draft_passes = json.value("draft_passes", int64_t{0});
  r.draft_tokens = json.value("draft_tokens", int64_t{0});
  r.text = json.value("text", "");
  return r;
}

EvalSettings options_of(const Json& head, const std::string& path) {
  const auto version = head.is_object() ? head.find(kHead) : head.end();
  if (!head.is_object() || version == head.end())
    fail_input(path, ": expected a file that eval wrote, its first row with ", kHead,
               "; found something else, which is left as it is");
  if (*version != 1 || !head.contains("options") || !head["options"].is_object())
    fail_input(path, ": expected version 1 with options in the first row, found ", version->dump());
  EvalSettings options;
  for (const auto& [name, value] : head["options"].items())
    options.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
  return options;
}

// The first difference in words; "" when equal.
std::string difference(const EvalSettings& then, const EvalSettings& now) {
  const auto value_in = [](const EvalSettings& all, const std::string& name) -> const std::string* {
    const auto at =
        std::find_if(all.begin(), all.end(), [&](const auto& o) { return o.first == name; });
    return at == all.end() ? nullptr : &at->second;
  };
  for (const auto& [name, value] : now) {
    const std::string* old = value_in(then, name);
    if (old == nullptr || *old != value)
      return cat(name, " ", old == nullptr ? "(none)" : *old, ", now ", value);
  }
  for (const auto& [name, value] : then)
    if (value_in(now, name) == nullptr) return cat(name, " ", value, ", now (none)");
  return "";
}

}  // namespace

EvalFile read_eval_file(const std::string& path) {
  const MappedFile mapped(path);
  const std::string_view bytes = mapped.bytes();
  EvalFile file;
  file.path = path;
  std::unordered_set<std::string> ids;
  bool head = true;
  int64_t number = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = bytes.find('\n', at);
    if (end == std::string_view::npos) break;  // cut short
    ++number;
    const std::string_view line = bytes.substr(at, end - at);
    at = end + 1;
    const Json json = Json::parse(json_row(line, cat(path, ": line ", number)), nullptr, false);
    if (head) {
      file.options = options_of(json, path);
      head = false;
    } else {
      if (!json.is_object())
        fail_input(path, ": line ", number, ": expected a row of results, found no JSON object");
      try {
        file.rows.push_back(row_of(json));
      } catch (const Json::exception& error) {
        fail_input(path, ": line ", number,
                   ": expected a row of results, found one without: ", error.what());
      }
      if (!ids.insert(file.rows.back().id).second)
        fail_input(path, ": line ", number, ": expected each id once, found \"",
                   file.rows.back().id, "\" again");
    }
    file.whole_bytes = static_cast<int64_t>(at);
  }
  file.dropped_bytes = static_cast<int64_t>(bytes.size()) - file.whole_bytes;
  // A file of one cut row is ours only when it begins as a head does: nothing else is overwritten.
  const std::string begin = cat("{\"", kHead);
  const std::string_view seen = bytes.substr(0, begin.size());
  if (head && seen != std::string_view(begin).substr(0, seen.size()))
    fail_input(path, ": expected a file that eval wrote, its first row with ", kHead,
               "; found something else, which is left as it is");
  return file;
}

EvalLog::EvalLog(std::string path, const EvalSettings& options, const std::vector<std::string>& ids)
    : path_(std::move(path)) {
  if (path_.empty()) return;
  const int fd = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd >= 0) file_ = fdopen(fd, "r+b");
  if (file_ == nullptr) fail_input("cannot write ", path_, ": ", std::strerror(errno));
  try {
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
      fail_resource(path_, ": expected it free, found another run writing to it");
    const int64_t whole = lseek(fd, 0, SEEK_END) > 0 ? take_up(options, ids) : 0;
    if (ftruncate(fd, whole) != 0 || std::fseek(file_, 0, SEEK_END) != 0)
      fail_input("cannot write ", path_, ": ", std::strerror(errno));
    if (whole == 0) write_line(head_line(options));
  } catch (...) {
    std::fclose(file_);
    throw;
  }
}

// Checks and takes the rows that are there; returns the bytes to keep.
int64_t EvalLog::take_up(const EvalSettings& options, const std::vector<std::string>& ids) {
  EvalFile file = read_eval_file(path_);
  dropped_ = file.dropped_bytes;
  if (file.whole_bytes == 0) return 0;
  const std::string other = difference(file.options, options);
  if (!other.empty())
    fail_input(path_, ": expected rows made with the same options, found others (", other,
               "); another --out keeps both");
  rows_ = std::move(file.rows);
  rows_.resize(std::min(rows_.size(), ids.size()));  // fewer may be asked for than are there
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].id != ids[i])
      fail_input(path_, ": row ", i + 1, ": expected id \"", ids[i], "\", found \"", rows_[i].id,
                 "\"");
  }
  resumed_ = static_cast<int64_t>(rows_.size());
  return file.whole_bytes;
}

EvalLog::~EvalLog() {
  if (file_ != nullptr) std::fclose(file_);
}

void EvalLog::write_line(const std::string& line) {
  if (std::fwrite(line.data(), 1, line.size(), file_) != line.size() || std::fflush(file_) != 0)
    fail_input("cannot write ", path_, ": ", std::strerror(errno));
}

void EvalLog::append(EvalRow row) {
  if (file_ != nullptr) write_line(row_line(row));
  rows_.push_back(std::move(row));
}

}  // namespace spk
