// Question files, result files and reports of an evaluation, without a model.
#include "base/error.h"
#include "measure/eval_report.h"
#include "measure/questions.h"
#include "measure/workload.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

namespace spk {
namespace {

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "no error";
}

TEST(Questions, ReadsIdsOrCounts) {
  const QuestionFile file = parse_questions(
      "{\"question\": \"1+1?\", \"answer\": \"so\\n#### 2\"}\n\n"
      "{\"id\": 7, \"question\": \"2+2?\", \"answer\": 4, \"extra\": []}\r\n"
      "{\"id\": \"x\", \"question\": \"capital?\", \"answer\": \"Paris\"}",
      "q.jsonl");
  ASSERT_EQ(file.questions.size(), 3u);
  EXPECT_EQ(file.questions[0].id, "0");
  EXPECT_EQ(file.questions[0].gold.value, "2");
  EXPECT_EQ(file.questions[1].id, "7");
  EXPECT_EQ(file.questions[1].gold.value, "4");
  EXPECT_FALSE(file.questions[2].gold.numeric);
  EXPECT_EQ(file.hash.size(), 16u);
}

TEST(Questions, BadDataIsToldInOneSentence) {
  const struct {
    const char* bytes;
    const char* message;
  } rows[] = {
      {"", "q.jsonl: expected at least one question, found none"},
      {"\n  \n", "q.jsonl: expected at least one question, found none"},
      {"{\"question\": \"a\"}", "q.jsonl: line 1: expected a field 'answer', found none"},
      {"{\"answer\": \"a\"}", "q.jsonl: line 1: expected a field 'question', found none"},
      {"{\"question\": [], \"answer\": \"a\"}",
       "q.jsonl: line 1: question: expected a text, found []"},
      {"{\"question\": \" \", \"answer\": \"a\"}",
       "q.jsonl: line 1: question: expected a text, found an empty one"},
      {"{\"question\": \"a\", \"answer\": \"why\\n####\"}",
       "q.jsonl: line 1: answer: expected a value after ####, found none"},
      {"{\"question\": \"a\", \"answer\": \"1\"}\n{\"question\": \"a\", \"answ",
       "q.jsonl: line 2: expected one JSON object {\"question\": ..., \"answer\": ...}, found no "
       "JSON"},
      {"{\"question\": \"a\", \"answer\": 12345678901234567890123}",
       "q.jsonl: line 1: answer: expected a number that is written without an exponent, or a text, "
       "found 1.2345678901234568e+22"},
      {"{\"question\": \"a\", \"answer\": 1e400}",
       "q.jsonl: line 1: expected one JSON object {\"question\": ..., \"answer\": ...}, found no "
       "JSON"},
      {"{\"question\": \"a\", \"answer\": null}",
       "q.jsonl: line 1: answer: expected a text, found null"},
      {"{\"question\": \"a\", \"answer\": \"1\"}\r{\"question\": \"b\", \"answer\": \"1\"}\r",
       "q.jsonl: line 1: expected one JSON object {\"question\": ..., \"answer\": ...}, found no "
       "JSON"},
      {"{\"question\": \"caf\xe9\", \"answer\": \"1\"}",
       "q.jsonl: line 1: expected one JSON object {\"question\": ..., \"answer\": ...}, found no "
       "JSON"},
      {"[1, 2]",
       "q.jsonl: line 1: expected one JSON object {\"question\": ..., \"answer\": ...}, found "
       "[1,2]"},
      {"{\"id\": 1, \"question\": \"a\", \"answer\": \"1\"}\n{\"id\": \"1\", \"question\": \"b\", "
       "\"answer\": \"1\"}",
       "q.jsonl: line 2: expected an id of its own, found \"1\" of line 1"},
      {"{\"id\": 1.5, \"question\": \"a\", \"answer\": \"1\"}",
       "q.jsonl: line 1: id: expected a text or a whole number, found 1.5"},
  };
  for (const auto& row : rows)
    EXPECT_EQ(message_of([&] { parse_questions(row.bytes, "q.jsonl"); }), row.message);
}

// Such a line ended the program: trees are copied and printed by recursion.
TEST(Questions, DeepNestingIsRefusedBeforeATreeIsMade) {
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  const char* found = "q.jsonl: line 1: expected JSON of at most 32 levels, found 10000";
  for (const std::string& line : {deep, "{\"question\": " + deep + ", \"answer\": \"1\"}"})
    EXPECT_EQ(message_of([&] { parse_questions(line, "q.jsonl"); }).rfind(found, 0), 0u);
  EXPECT_EQ(message_of([&] { parse_prompts(deep, "q.jsonl"); }).rfind(found, 0), 0u);
}

TEST(Questions, MarksOfByteOrderAndLineEndsAreNoText) {
  const QuestionFile file = parse_questions(
      "\xef\xbb\xbf{\"question\": \"a\", \"answer\": \"1\"}\r\n"
      "\xef\xbb\xbf{\"question\": \"b\", \"answer\": \"2\"}\r\n",
      "q.jsonl");
  ASSERT_EQ(file.questions.size(), 2u);
  EXPECT_EQ(file.questions[1].gold.value, "2");
}

class EvalLogTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    path_ = testing::TempDir() + "eval_" + info->name() + ".jsonl";
    std::filesystem::remove(path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  static EvalRow row(const std::string& id, bool correct = true) {
    EvalRow r;
    r.id = id;
    r.gold = "4";
    if (correct) r.answer = "4";
    r.correct = correct;
    r.finish_reason = "stop";
    r.prompt_tokens = 10;
    r.output_tokens = 21;
    r.ttft_ms = 5;
    r.decode_ms = 20;
    r.accept_length = 2.5;
    r.draft_passes = 8;
    r.draft_tokens = 20;
    r.text = "so\n#### 4";
    return r;
  }
  std::string bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }

  std::string path_;
  const EvalSettings settings_ = {{"data", "abc"}, {"draft", "3"}};
  const std::vector<std::string> ids_ = {"a", "b", "c"};
};

TEST_F(EvalLogTest, GoesOnWhereItWasKilled) {
  {
    EvalLog log(path_, settings_, ids_);
    log.append(row("a"));
    log.append(row("b", false));
  }
  EvalLog log(path_, settings_, ids_);
  EXPECT_EQ(log.resumed(), 2);
  EXPECT_EQ(log.dropped_bytes(), 0);
  EXPECT_EQ(log.rows()[0].text, "so\n#### 4");
  EXPECT_EQ(log.rows()[1].answer, std::nullopt);
  log.append(row("c"));
  EXPECT_EQ(read_eval_file(path_).rows.size(), 3u);
}

TEST_F(EvalLogTest, EveryCutOfTheLastRowLosesThatRowOnly) {
  {
    EvalLog log(path_, settings_, ids_);
    log.append(row("a"));
    log.append(row("b"));
  }
  const std::string whole = bytes();
  const size_t head_end = whole.find('\n') + 1;
  const size_t first_end = whole.find('\n', head_end) + 1;
  for (size_t cut = 1; cut < whole.size(); cut += 7) {
    write(whole.substr(0, cut));
    const int64_t kept = cut < first_end ? 0 : 1;
    EvalLog log(path_, settings_, ids_);
    ASSERT_EQ(log.resumed(), kept) << cut;
    const size_t good = cut < head_end ? 0 : cut < first_end ? head_end : first_end;
    EXPECT_EQ(log.dropped_bytes(), static_cast<int64_t>(cut - good));
    for (size_t i = static_cast<size_t>(kept); i < 3; ++i) log.append(row(ids_[i]));
    ASSERT_EQ(read_eval_file(path_).rows.size(), 3u) << cut;
  }
}

TEST_F(EvalLogTest, OtherOptionsAreRefusedAndNothingIsLost) {
  { EvalLog(path_, settings_, ids_).append(row("a")); }
  const std::string before = bytes();
  const auto open = [&](const EvalSettings& settings, const std::vector<std::string>& ids) {
    return message_of([&] { EvalLog(path_, settings, ids); });
  };
  EXPECT_EQ(
      open({{"data", "abc"}, {"draft", "0"}}, ids_),
      path_ +
          ": expected rows made with the same options, found others (draft 3, now 0); another "
          "--out keeps both");
  EXPECT_NE(open({{"data", "abc"}}, ids_).find("(draft 3, now (none))"), std::string::npos);
  EXPECT_NE(open({{"data", "abc"}, {"draft", "3"}, {"new", "1"}}, ids_).find("(new (none), now 1)"),
            std::string::npos);
  EXPECT_NE(open(settings_, {"b", "a"}).find("row 1: expected id \"b\", found \"a\""),
            std::string::npos);
  EXPECT_EQ(bytes(), before);
}

TEST_F(EvalLogTest, ForeignFilesAreLeftAlone) {
  for (const char* text :
       {"precious notes", "precious\nnotes\n", "{\"id\": \"a\"}\n", "{\"id\": \"a\"",
        "{\"sparkling_eval\": 2, \"options\": {}}\n", "{\"sparkling_eval\": 1}\n", "x"}) {
    write(text);
    EXPECT_NE(message_of([&] { EvalLog(path_, settings_, ids_); }), "no error") << text;
    EXPECT_EQ(bytes(), text);
  }
}

TEST_F(EvalLogTest, TwoRunsDoNotShareAFile) {
  const EvalLog first(path_, settings_, ids_);
  EXPECT_THROW(EvalLog(path_, settings_, ids_), Error);
}

TEST_F(EvalLogTest, ABrokenRowInTheMiddleIsNamed) {
  const std::string head = "{\"sparkling_eval\":1,\"options\":{}}\n";
  const auto read = [&](const std::string& rows) {
    write(head + rows);
    return message_of([&] { read_eval_file(path_); });
  };
  EXPECT_NE(read("garbage\n").find(": line 2: expected a row of results"), std::string::npos);
  EXPECT_NE(read("{\"id\":\"a\"}\n").find("line 2"), std::string::npos);
  EXPECT_NE(
      read(std::string(90000, '[') + std::string(90000, ']') + "\n").find("at most 32 levels"),
      std::string::npos);
  {
    std::filesystem::remove(path_);
    EvalLog log(path_, settings_, ids_);
    log.append(row("a"));
    log.append(row("a"));
  }
  EXPECT_NE(message_of([&] { read_eval_file(path_); }).find("line 3: expected each id once"),
            std::string::npos);
}

EvalRow made(const std::string& id, bool correct, double decode_ms, const char* reason = "stop") {
  EvalRow r;
  r.id = id;
  r.gold = "1";
  r.answer = correct ? "1" : "2";
  r.correct = correct;
  r.finish_reason = reason;
  r.prompt_tokens = 100;
  r.output_tokens = 11;
  r.ttft_ms = 50;
  r.decode_ms = decode_ms;
  return r;
}

TEST(EvalReport, CountsEverything) {
  std::vector<EvalRow> rows = {made("a", true, 100), made("b", false, 300, "length"),
                               made("c", true, 200), made("d", false, 0, "error")};
  rows[0].draft_passes = 4;
  rows[0].draft_tokens = 10;
  rows[2].draft_passes = 1;
  rows[2].draft_tokens = 4;
  const EvalReport r = summarise(rows);
  EXPECT_EQ(r.questions, 4);
  EXPECT_EQ(r.correct, 2);
  EXPECT_EQ(r.truncated, 1);
  EXPECT_EQ(r.errors, 1);
  EXPECT_DOUBLE_EQ(r.accuracy_percent(), 50);
  EXPECT_DOUBLE_EQ(r.decode_tok_s, 50);  // 30 tokens after the first in 600 ms
  EXPECT_DOUBLE_EQ(r.ms_per_token, 20);
  EXPECT_DOUBLE_EQ(r.latency_mean_ms, 250);
  EXPECT_DOUBLE_EQ(r.latency_p50_ms, 250);
  EXPECT_DOUBLE_EQ(r.accept_length, 2.8);  // 14 tokens of 5 passes, not the mean of 2.5 and 4
  EXPECT_NE(report_text(r).find("50.00 %"), std::string::npos);
}

TEST(EvalReport, PairsByQuestion) {
  EvalFile a, b;
  a.path = "a.jsonl";
  b.path = "b.jsonl";
  a.options = {{"draft", "0"}, {"data", "x"}};
  b.options = {{"draft", "3"}, {"data", "x"}};
  const auto put = [](EvalFile& file, int id, bool correct, double ms) {
    file.rows.push_back(made(std::to_string(id), correct, ms));
  };
  for (int i = 0; i < 10; ++i) put(a, i, i < 8, 200);
  for (int i = 9; i >= 0; --i) put(b, i, i >= 1, 100);  // another order
  put(a, 20, true, 1);
  const EvalComparison c = compare_evals(a, b);
  EXPECT_EQ(c.pairs(), 10);
  EXPECT_EQ(c.both, 7);
  EXPECT_EQ(c.right_a, 1);
  EXPECT_EQ(c.right_b, 2);
  EXPECT_EQ(c.neither, 0);
  EXPECT_EQ(c.only_in_a, 1);
  EXPECT_EQ(c.only_in_b, 0);
  EXPECT_DOUBLE_EQ(c.p, mcnemar_exact(1, 2));
  EXPECT_DOUBLE_EQ(c.speed_ratio, 2);
  EXPECT_DOUBLE_EQ(c.latency_ratio, 150.0 / 250);
  ASSERT_EQ(c.changed.size(), 1u);
  EXPECT_EQ(c.changed[0].second, "0 -> 3");

  b.rows[0].gold = "7";
  EXPECT_NE(message_of([&] { compare_evals(a, b); }).find("one right answer"), std::string::npos);
  b.rows.clear();
  EXPECT_NE(message_of([&] { compare_evals(a, b); }).find("found none"), std::string::npos);
}

}  // namespace
}  // namespace spk
