// The results of an evaluation, one JSONL row a question, in a file that survives a kill.
//
// The first row holds the options that the results depend on, so that a file always says what it
// is and a run with other options is refused instead of mixed in. A row is handed to the system
// before the next question starts; a last row that was cut short is dropped and told. Inspect a
// file with any JSON tool.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace spk {

struct EvalRow {
  std::string id;
  std::string gold;
  std::optional<std::string> answer;  // the value found in the text
  bool correct = false;
  std::string finish_reason;  // stop, length, error
  std::string error;          // of the request, when finish_reason is error
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  double ttft_ms = 0;    // prompt and first token
  double decode_ms = 0;  // of all tokens after the first
  // Tokens per verify pass over the passes that drafted; 0 without drafts. The counts behind it let
  // a report weigh passes, not questions.
  double accept_length = 0;
  int64_t draft_passes = 0;
  int64_t draft_tokens = 0;
  std::string text;  // the answer without reasoning

  double latency_ms() const { return ttft_ms + decode_ms; }
  bool truncated() const { return finish_reason == "length"; }
  bool failed() const { return finish_reason == "error"; }
};

// Name and value of everything that results depend on, in the order of reports.
using EvalSettings = std::vector<std::pair<std::string, std::string>>;

struct EvalFile {
  std::string path;
  EvalSettings options;
  std::vector<EvalRow> rows;
  int64_t whole_bytes = 0;    // up to the end of the last whole row
  int64_t dropped_bytes = 0;  // of a last row that was cut short
};
// Error(kInput) names the file and the line; ids must be distinct.
EvalFile read_eval_file(const std::string& path);

// One run's end of such a file.
class EvalLog {
 public:
  // `path` "": rows are kept in memory only. Otherwise takes up a file that is there, after it was
  // checked that its options are `options` and its rows are those of the first `ids`, or begins
  // one. The file is locked against a second run.
  EvalLog(std::string path, const EvalSettings& options, const std::vector<std::string>& ids);
  ~EvalLog();
  EvalLog(const EvalLog&) = delete;
  EvalLog& operator=(const EvalLog&) = delete;

  const std::vector<EvalRow>& rows() const { return rows_; }
  int64_t resumed() const { return resumed_; }        // rows that were there
  int64_t dropped_bytes() const { return dropped_; }  // of a row that was cut short
  void append(EvalRow row);

 private:
  int64_t take_up(const EvalSettings& options, const std::vector<std::string>& ids);
  void write_line(const std::string& line);

  std::string path_;
  std::FILE* file_ = nullptr;
  std::vector<EvalRow> rows_;
  int64_t resumed_ = 0;
  int64_t dropped_ = 0;
};

}  // namespace spk
