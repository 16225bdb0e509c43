// `bench --profile`: where the time of a decoded token goes, verb by verb; with --out 1, where
// nothing is decoded, the time of a token of the prompt.
#include "base/error.h"
#include "cli/bench.h"
#include "cli/output.h"
#include "measure/show.h"

#include <algorithm>

namespace spk::cli {
namespace {

struct Line {
  std::string name, part;
  TraceEntry entry;
};

std::vector<Line> lines_of(const Trace& trace) {
  std::vector<Line> lines;
  for (const auto& [name, entry] : trace.entries) {
    if (entry.calls > 0) lines.push_back({name, std::string(part_name(entry.part)), entry});
  }
  std::sort(lines.begin(), lines.end(),
            [](const Line& a, const Line& b) { return a.entry.seconds > b.entry.seconds; });
  return lines;
}

}  // namespace

int bench_profile(const Options& options) {
  const BenchOptions& b = options.bench;
  if (!b.plot.empty()) fail_usage("--profile is a table of its own: expected no --plot");
  BenchWork work = work_of(options);
  work.depth = b.depths.empty() ? 0 : b.depths.front();
  if (b.depths.size() > 1) fail_usage("--profile: expected one --depth, found ", b.depths.size());
  BenchEngine engine(options, options.model, context_for(work));
  const Clocks before = clocks_now();
  const BenchRow row = engine.run("profile", work, true);
  ResultTable table = result_frame(options, engine, before);
  table.columns = {{"verb", "verb", 0, 1},         {"part", "part", 0, 1},
                   {"calls/token", "calls", 1, 1}, {"us/token", "us_per_token", 1, 1},
                   {"%", "percent", 1, 1},         {"MB/token", "bytes_per_token", 3, 1e-6},
                   {"GB/s", "gb_s", 2, 1},         {"% of roof", "roof_percent", 1, 1}};
  const bool prompt = row.tokens <= 1;
  const auto tokens = static_cast<double>(prompt ? std::max<int64_t>(work.in, 1) : row.tokens - 1);
  const double total = engine.trace().sum().seconds;
  const double roof = row.roof_gb_s * 1e9;
  const auto add = [&](const std::string& name, const std::string& part, const TraceEntry& e) {
    const double speed = e.seconds > 0 ? static_cast<double>(e.bytes) / e.seconds : 0;
    table.rows.push_back({name, part, static_cast<double>(e.calls) / tokens,
                          1e6 * e.seconds / tokens, total > 0 ? 100 * e.seconds / total : 0,
                          measured_if(e.bytes > 0, static_cast<double>(e.bytes) / tokens),
                          measured_if(e.bytes > 0, speed / 1e9),
                          measured_if(e.bytes > 0 && roof > 0, 100 * speed / roof)});
  };
  for (const Line& line : lines_of(engine.trace())) add(line.name, line.part, line.entry);
  add("all verbs", "", engine.trace().sum());
  if (prompt) {
    table.notes.emplace_back("prompt", cat(fixed(row.prefill_tok_s, 1), " tok/s untraced"));
  } else {
    table.notes.emplace_back("decode", cat(fixed(row.tok_s.value_or(0), 1), " tok/s untraced; ",
                                           fixed(row.sampling_percent, 1), " % of it sampling"));
  }
  table.notes.emplace_back("roof", cat(fixed(row.roof_gb_s, 1), " GB/s"));
  out(render(table, b.format));
  return 0;
}

}  // namespace spk::cli
