// Question files: JSONL of {id?, question, answer}, as GSM8K's and anybody's.
//
// Everything wrong with a file is one Error(kInput) that names the file, the line, what was
// expected and what was found; nothing is asked before the whole file has been read.
#pragma once

#include "measure/extract.h"

#include <string>
#include <string_view>
#include <vector>

namespace spk {

struct Question {
  std::string id;  // as given (a text or a whole number), else the position in the file, from 0
  std::string question;
  std::string answer;  // as it stands in the file: a worked answer in training data
  GoldAnswer gold;
};

struct QuestionFile {
  std::string path;
  std::string hash;  // 16 hexadecimal digits of its bytes: which data a result belongs to
  std::vector<Question> questions;  // at least one, ids distinct
};
QuestionFile read_questions(const std::string& path);
// The same from memory; `path` is for messages.
QuestionFile parse_questions(std::string_view bytes, const std::string& path);

}  // namespace spk
