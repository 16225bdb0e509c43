// Tables, figures, workloads and single kernels: what `bench` is made of.
#include "base/error.h"
#include "measure/bench_report.h"
#include "measure/bench_run.h"
#include "measure/kernels.h"
#include "measure/plot.h"
#include "measure/table.h"
#include "measure/workload.h"
#include "support/checkpoint_writer.h"
#include "support/test_model.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <set>
#include <string>

namespace spk {
namespace {

using test::TestModel;

ResultTable small_table() {
  ResultTable table;
  table.command = "sparkling bench";
  table.commit = "abc";
  table.columns = {{"test", "name", 0, 1},
                   {"MB", "bytes", 1, 1e-6},
                   {"", "hidden", 0, 1},
                   {"never", "never", 0, 1}};
  table.rows = {{std::string("plain, slow"), 2.5e6, int64_t{7}, Cell()},
                {std::string("x"), Cell(), int64_t{8}, Cell()}};
  return table;
}

TEST(ResultTable, TextLeavesOutWhatNobodyMeasured) {
  const std::string text = render(small_table(), "table");
  EXPECT_EQ(text.substr(0, text.find("\n\n")),
            "test          MB\nplain, slow  2.5\nx              -");
  const std::string markdown = render(small_table(), "md");
  EXPECT_EQ(markdown.rfind("| test        |  MB |\n|---|---:|\n| plain, slow | 2.5 |\n", 0), 0u)
      << markdown;
}

TEST(ResultTable, CsvAndJsonKeepEverything) {
  EXPECT_EQ(render(small_table(), "csv"),
            "commit,name,bytes,hidden,never\nabc,\"plain, slow\",2500000.0,7,\nabc,\"x\",,8,\n");
  const auto json = nlohmann::json::parse(render(small_table(), "json"));
  EXPECT_EQ(json["commit"], "abc");
  EXPECT_EQ(json["rows"][0]["hidden"], 7);
  EXPECT_TRUE(json["rows"][1]["bytes"].is_null());
}

BenchRow made_row(double tok_s, double accept_length = 0, double verify_ms = 0) {
  BenchRow r;
  r.tok_s = tok_s;
  r.gb_s = 10;
  r.roof_gb_s = tok_s;  // each engine measured another one
  r.accept_length = accept_length;
  r.verify_ms = verify_ms;
  return r;
}

TEST(BenchReport, GainsAreOverTheRowBeforeAndTheFirst) {
  std::vector<BenchRow> rows = {made_row(10), made_row(12), made_row(30, 2.5, 125)};
  relate_rows(rows);
  EXPECT_FALSE(rows[0].gain_percent);
  EXPECT_NEAR(*rows[1].gain_percent, 20, 1e-9);
  EXPECT_NEAR(*rows[2].gain_percent, 150, 1e-9);
  EXPECT_NEAR(*rows[2].gain_total_percent, 200, 1e-9);
  EXPECT_FALSE(rows[1].verify_over_step);
  EXPECT_NEAR(*rows[2].verify_over_step, 125 / (1000.0 / 12), 1e-9);
  for (const BenchRow& r : rows) EXPECT_NEAR(r.roof_percent, 100 * 10 / 30.0, 1e-9);
}

TEST(Plot, FigureIsWellFormedAndHoldsItsNumbers) {
  Figure figure("a < b & \"c\"", "sub");
  figure.bars("Decoding", "tok/s", {{"one", 10, "", false}, {"two", 25.5, "(+155 %)", true}});
  figure.stacks("Time", "ms", {"head", "rest"}, "roof", {{"one", {1.5, 2.5}, 3}});
  figure.curves("Depth", "tokens", "tok/s", {{"decode", {0, 1000}, {50, 40}}});
  const std::string svg = figure.svg();
  EXPECT_EQ(svg.rfind("<svg ", 0), 0u);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
  EXPECT_NE(svg.find("a &lt; b &amp; &quot;c&quot;"), std::string::npos);
  EXPECT_NE(svg.find(">25.5  (+155 %)<"), std::string::npos);
  EXPECT_NE(svg.find(">4.00<"), std::string::npos);  // the sum of the stack
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(Plot, NothingAtAllIsNoDivisionByZero) {
  Figure figure("t", "s");
  figure.bars("b", "u", {{"zero", 0, "", false}});
  figure.stacks("s", "u", {"a"}, "roof", {{"zero", {0}, 0}});
  figure.curves("c", "x", "y", {{"empty", {}, {}}, {"zero", {0}, {0}}});
  EXPECT_EQ(figure.svg().find("nan"), std::string::npos);
}

TEST(Plot, StepsAreRound) {
  EXPECT_DOUBLE_EQ(nice_step(100, 5), 20);
  EXPECT_DOUBLE_EQ(nice_step(101, 5), 50);
  EXPECT_DOUBLE_EQ(nice_step(0.9, 5), 0.2);
  EXPECT_DOUBLE_EQ(nice_step(32768, 8), 5000);
  EXPECT_DOUBLE_EQ(nice_step(0, 5), 1);
}

TEST(Workload, StreamsDifferFromTheFirstTokenOn) {
  const auto a = token_stream(50, 1, 4096), b = token_stream(50, 2, 4096);
  EXPECT_EQ(a, token_stream(50, 1, 4096));
  EXPECT_NE(a.front(), b.front());
  for (const int32_t id : a) EXPECT_TRUE(id >= 0 && id < 4096);
}

TEST(Workload, PromptsOfAFile) {
  const auto prompts = parse_prompts(
      "\"plain\"\n{\"prompt\": \"p\", \"kind\": \"chat\"}\n\n{\"question\": \"q\", \"thinking\": "
      "true}\n",
      "f");
  ASSERT_EQ(prompts.size(), 3u);
  EXPECT_EQ(prompts[0].text, "plain");
  EXPECT_EQ(prompts[1].kind, "chat");
  EXPECT_EQ(prompts[2].text, "q");
  EXPECT_TRUE(prompts[2].thinking && !prompts[1].thinking && !prompts[0].thinking);
  for (const char* bad :
       {"", "{}", "[1]", "nonsense", "\"\"", "{\"prompt\": 3}", "{\"prompt\": \"x\", \"kind\": 3}",
        "{\"prompt\": \"x\", \"thinking\": 1}"}) {
    EXPECT_THROW(parse_prompts(bad, "f"), Error) << bad;
  }
}

// Every repetition has a stream of its own, whose verify passes read experts of their own: the row
// is the second stream's.
TEST(BenchRun, TheFirstRepetitionIsRunAndDropped) {
  test::WrittenCheckpoint written(test::small_config(), test::Release::kFp4, 1);
  EngineOptions options;
  options.backend = "cpu";
  options.context = 64;
  options.draft = 3;
  Engine engine(written.open(), written.parsed(), std::nullopt, options);
  BenchWork work;
  work.in = 12;
  work.out = 24;
  work.repeat = 1;
  work.sampling.temperature = 0;
  const auto bytes_of_a_pass = [&](uint64_t seed) {
    GenerateRequest request;
    request.prompt = token_stream(work.in, seed, engine.config().shape.vocab);
    request.sampling = work.sampling;
    request.max_tokens = work.out;
    request.ignore_eos = true;
    const DraftCounters d =
        engine.generate(request, [](const TokenEvent&) { return true; }).timings.drafts;
    return static_cast<double>(d.drafting_verify_weight_bytes) /
           static_cast<double>(d.drafting_cycles);
  };
  const double first = bytes_of_a_pass(work.seed), second = bytes_of_a_pass(work.seed + 1);
  ASSERT_NE(first, second);
  BenchRun run(engine, work, nullptr);
  EXPECT_EQ(run.steps(), 2);
  for (int64_t i = 0; i < run.steps(); ++i) run.step();
  EXPECT_EQ(run.row().repetitions, 1);
  EXPECT_DOUBLE_EQ(run.row().verify_weight_bytes, second);
}

TEST(Kernels, EachOneRunsAndReadsItsWeights) {
  const TestModel m("cpu");
  const auto make = [] { return make_cpu_backend({}); };
  KernelRequest request;
  request.depth = 20;
  request.seconds = 0.002;
  std::set<std::string> seen;
  double one_row = 0;
  const auto rows = run_kernels(m.model.config, m.tensors, make, request);
  for (const KernelRow& row : rows) {
    seen.insert(row.name);
    EXPECT_GT(row.bytes, 0) << row.name;
    EXPECT_GT(row.microseconds, 0) << row.name;
  }
  EXPECT_EQ(seen.size(), kernel_names(m.model.config).size());
  for (const KernelRow& row : rows) {
    if (row.name != "kda-out") continue;
    if (row.rows == 1) one_row = row.bytes;
    EXPECT_DOUBLE_EQ(row.bytes, one_row) << "a product reads its weights once, whatever its rows";
  }
  request.filter = "no-such";
  EXPECT_THROW(run_kernels(m.model.config, m.tensors, make, request), Error);
}

}  // namespace
}  // namespace spk
