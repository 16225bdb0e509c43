// `bench --plot`: the rows as a figure, SVG by ourselves, PNG by rsvg-convert where it is
// installed.
#include "base/error.h"
#include "base/file.h"
#include "cli/bench.h"
#include "measure/plot.h"
#include "measure/show.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace spk::cli {
namespace {

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// "ling-3.0-flash (synthetic, seed 1, 6 layers), weights 1b7c" without the weights.
std::string short_model(const std::string& name) {
  const size_t open = name.find('('), comma = name.find(',');
  return name.substr(0, open < comma ? name.find(',', name.find(')', open)) : comma);
}

// Several rows at growing depth are a curve; everything else is bars.
void draw(Figure& figure, const std::vector<BenchRow>& rows) {
  const bool by_depth = rows.size() > 1 && rows.back().depth > 0;
  if (by_depth) {
    Curve decode{"decode", {}, {}}, prefill{"prefill", {}, {}};
    for (const BenchRow& r : rows) {
      const auto x = static_cast<double>(r.depth);
      if (r.tok_s) {
        decode.x.push_back(x);
        decode.y.push_back(*r.tok_s);
      }
      prefill.x.push_back(x);
      prefill.y.push_back(r.prefill_tok_s);
    }
    figure.curves("Decoding over depth", "tokens before", "tok/s", {decode});
    figure.curves("Prefill over depth", "tokens before", "tok/s", {prefill});
    return;
  }
  std::vector<Bar> bars;
  std::vector<Stack> stacks;
  for (const BenchRow& r : rows) {
    if (!r.tok_s) continue;
    const std::string label = r.name + (r.simulated ? " *" : "");
    const std::string gain = r.gain_total_percent ? cat("(", *r.gain_total_percent >= 0 ? "+" : "",
                                                        fixed(*r.gain_total_percent, 0), " %)")
                                                  : "";
    bars.push_back({label, *r.tok_s, gain, r.simulated});
    if (!r.traced) continue;
    const double ms = r.ms_per_token();
    const double rest = std::max(0.0, 100 - r.moe_percent - r.attention_percent - r.feed_percent -
                                          r.head_percent - r.sampling_percent);
    Stack stack{label, {}, 0};
    for (const double percent : {r.attention_percent, r.moe_percent, r.feed_percent, r.head_percent,
                                 r.sampling_percent, rest})
      stack.parts.push_back(ms * percent / 100);
    if (r.roof_gb_s > 0) stack.roof = r.bytes_per_token / r.roof_gb_s / 1e6;
    stacks.push_back(std::move(stack));
  }
  figure.bars("Decoding", "tokens per second", bars);
  if (!stacks.empty())
    figure.stacks("Time of a token", "milliseconds",
                  {"attention", "experts", "dense FFN", "head", "sampling", "rest"},
                  "bytes at the roof", stacks);
}

// No shell: the names are arguments.
void convert(const std::string& svg, const std::string& png) {
  const pid_t child = fork();
  if (child < 0) fail_resource("cannot start rsvg-convert");
  if (child == 0) {
    execlp("rsvg-convert", "rsvg-convert", "--zoom", "2", "-o", png.c_str(), svg.c_str(),
           static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (code == 127)
    fail_resource("--plot ", png, ": PNG needs rsvg-convert (Debian: librsvg2-bin), found none; ",
                  "FILE.svg needs nothing");
  if (code != 0) fail_resource("rsvg-convert failed with status ", code);
}

}  // namespace

void write_plot(const std::string& path, const ResultTable& frame,
                const std::vector<BenchRow>& rows) {
  const bool simulated =
      std::any_of(rows.begin(), rows.end(), [](const BenchRow& r) { return r.simulated; });
  Figure figure("sparkling, " + short_model(frame.model),
                cat(frame.machine.substr(0, frame.machine.find(',')), ", commit ", frame.commit,
                    simulated ? "; *: acceptance simulated" : ""));
  draw(figure, rows);
  const std::string svg = figure.svg();
  if (ends_with(path, ".svg")) {
    publish_file(path, svg);
    return;
  }
  char name[] = "/tmp/sparkling-plot-XXXXXX";
  const int fd = mkstemp(name);
  if (fd < 0) fail_resource("cannot make a temporary file in /tmp");
  close(fd);
  publish_file(name, svg);
  try {
    convert(name, path);
  } catch (...) {
    std::remove(name);
    throw;
  }
  std::remove(name);
}

}  // namespace spk::cli
