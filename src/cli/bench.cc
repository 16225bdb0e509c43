// `bench`, first form: one row of prefill and decode speed over a fixed token stream.
//
// The stream is a function of the seed, the end token is ignored, sampling is greedy: two runs do
// the same work. One repetition is run and dropped (page faults, clocks), the median of the others
// is reported with their spread.
#include "base/error.h"
#include "base/log.h"
#include "cli/machine.h"
#include "cli/output.h"
#include "cli/source.h"
#include "cli/values.h"
#include "cli/verbs.h"
#include "cli/version.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace spk::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Measured {
  double decode_tok_s = 0;
  double prefill_tok_s = 0;
  double bytes_per_token = 0;
  double gb_s = 0;
};

struct Row {
  std::string name;
  std::optional<double> tok_s;  // absent where one token only was decoded
  double tok_s_spread = 0;      // (largest - smallest) / median, percent
  double prefill_tok_s = 0;
  double bytes_per_token = 0;
  double gb_s = 0;
  double roof_percent = 0;
  double roof_gb_s = 0;
  int64_t repetitions = 0;
};

std::vector<int32_t> stream(int64_t n, uint64_t seed, int64_t vocab) {
  std::vector<int32_t> ids;
  ids.reserve(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const double u = uniform_at(seed, 0, static_cast<uint64_t>(i), 0);
    ids.push_back(static_cast<int32_t>(u * static_cast<double>(vocab)));
  }
  return ids;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

template <typename Field>
double median_of(const std::vector<Measured>& all, Field field) {
  std::vector<double> values;
  values.reserve(all.size());
  for (const Measured& m : all) values.push_back(m.*field);
  return median(values);
}

Measured measure(Engine& engine, const BenchOptions& bench, uint64_t seed) {
  GenerateRequest request;
  request.prompt = stream(bench.in, seed, engine.config().shape.vocab);
  request.sampling.temperature = 0;
  request.max_tokens = bench.out;
  request.ignore_eos = true;
  const GenerateResult result = engine.generate(request, [](const TokenEvent&) { return true; });
  const Timings& t = result.timings;
  return {t.decode_tok_s(), t.prefill_tok_s(), t.bytes_per_token(), t.gigabytes_per_second()};
}

Row summarise(const Options& options, const std::vector<Measured>& all, double bandwidth) {
  Row row;
  row.name = cat("in", options.bench.in, "+out", options.bench.out);
  row.repetitions = static_cast<int64_t>(all.size());
  row.prefill_tok_s = median_of(all, &Measured::prefill_tok_s);
  row.roof_gb_s = bandwidth / 1e9;
  if (options.bench.out < 2) return row;  // the first token belongs to the prefill
  row.tok_s = median_of(all, &Measured::decode_tok_s);
  const auto [low, high] = std::minmax_element(
      all.begin(), all.end(),
      [](const Measured& a, const Measured& b) { return a.decode_tok_s < b.decode_tok_s; });
  if (*row.tok_s > 0)
    row.tok_s_spread = 100 * (high->decode_tok_s - low->decode_tok_s) / *row.tok_s;
  row.bytes_per_token = median_of(all, &Measured::bytes_per_token);
  row.gb_s = median_of(all, &Measured::gb_s);
  if (bandwidth > 0) row.roof_percent = 100 * row.gb_s * 1e9 / bandwidth;
  return row;
}

// Fields that this version does not measure are null, so that readers of later versions need no
// other keys.
Json row_json(const Row& r) {
  const bool decoded = r.tok_s.has_value();
  Json j;
  j["name"] = r.name;
  j["tok_s"] = decoded ? Json(*r.tok_s) : Json();
  j["ms_per_token"] = decoded ? Json(1000 / *r.tok_s) : Json();
  j["gain_percent"] = nullptr;
  j["bytes_per_token"] = decoded ? Json(r.bytes_per_token) : Json();
  j["gb_s"] = decoded ? Json(r.gb_s) : Json();
  j["roof_percent"] = decoded ? Json(r.roof_percent) : Json();
  for (const char* key : {"accept_length", "verify_over_step", "distinct_experts", "moe_percent",
                          "attention_percent", "head_percent", "sampling_percent"}) {
    j[key] = nullptr;
  }
  j["simulated"] = false;
  j["prefill_tok_s"] = r.prefill_tok_s;
  j["tok_s_spread_percent"] = decoded ? Json(r.tok_s_spread) : Json();
  j["roof_gb_s"] = r.roof_gb_s;
  j["repetitions"] = r.repetitions;
  return j;
}

std::vector<std::string> cells(const Row& r) {
  const auto number = [&](double value, int decimals) {
    return r.tok_s ? show_fixed(value, decimals) : std::string("-");
  };
  const double tok_s = r.tok_s.value_or(0);
  return {r.name,
          show_fixed(r.prefill_tok_s, 1),
          number(tok_s, 1),
          number(r.tok_s_spread, 1),
          number(tok_s > 0 ? 1000 / tok_s : 0, 3),
          number(r.bytes_per_token / 1e6, 2),
          number(r.gb_s, 2),
          number(r.roof_percent, 1)};
}
const std::vector<std::string> kColumns = {"test",     "prefill tok/s", "decode tok/s",
                                           "spread %", "ms/token",      "MB/token",
                                           "GB/s",     "% of roof"};

std::string table(const std::vector<std::string>& row, bool markdown) {
  std::string head;
  std::string rule;
  std::string body;
  for (size_t i = 0; i < kColumns.size(); ++i) {
    const size_t width = std::max(kColumns[i].size(), row[i].size());
    const auto cell = [&](const std::string& text) {
      const std::string fill(width - text.size(), ' ');
      const bool last = i + 1 == kColumns.size();
      return (i == 0 ? text + fill : fill + text) + (markdown ? (last ? " |" : " | ")
                                                     : last   ? ""
                                                              : "  ");
    };
    head += cell(kColumns[i]);
    body += cell(row[i]);
    rule += i == 0 ? "---|" : "---:|";
  }
  return markdown ? cat("| ", head, "\n|", rule, "\n| ", body, "\n") : cat(head, "\n", body, "\n");
}

void print(const Options& options, const Row& row, const std::string& model,
           const std::string& machine) {
  const std::string& format = options.bench.format;
  const std::string commit(version().commit);
  if (format == "json") {
    Json root;
    root["command"] = options.command;
    root["commit"] = commit;
    root["machine"] = machine;
    root["model"] = model;
    root["rows"] = Json::array({row_json(row)});
    out(root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    return;
  }
  if (format == "csv") {
    const Json json = row_json(row);
    std::string head = "commit";
    std::string body = commit;
    for (const auto& [key, value] : json.items()) {
      head.append(",").append(key);
      body.append(",");
      if (value.is_string()) body.append(value.get_ref<const std::string&>());
      if (!value.is_string() && !value.is_null()) body.append(value.dump());
    }
    out(cat(head, "\n", body, "\n"));
    return;
  }
  out(cat(table(cells(row), format == "md"), "\n"));
  const char* item = format == "md" ? "- " : "";
  out(cat(item, "command: ", options.command, "\n", item, "commit:  ", commit, "\n", item,
          "machine: ", machine, "\n", item, "model:   ", model, "\n", item, "roof:    ",
          show_fixed(row.roof_gb_s, 1), " GB/s, read bandwidth of the same threads\n"));
}

}  // namespace

int verb_bench(const Options& options) {
  OpenedModel model = open_model(options.model);
  const std::string name = model.name;
  EngineOptions engine_opts = engine_options(options.model);
  const int64_t needed = options.bench.in + options.bench.out + 1;
  if (engine_opts.context == 0) engine_opts.context = std::min(needed, model.config.context);
  if (needed > engine_opts.context) {
    fail_input("--in ", options.bench.in, " and --out ", options.bench.out, " need a context of ",
               needed, " tokens, found ", engine_opts.context);
  }
  const auto engine = start_engine(model, options.model, engine_opts);
  const auto seed = static_cast<uint64_t>(options.sampling.seed.value_or(1));

  std::vector<Measured> all;
  Progress progress("bench", options.bench.repeat + 1, "repetitions");
  for (int64_t i = 0; i <= options.bench.repeat; ++i) {
    // Another stream each time: the same one would be taken from the live session.
    const Measured m = measure(*engine, options.bench, seed + static_cast<uint64_t>(i));
    log_verbose(cat("repetition ", i, ": ", show_fixed(m.decode_tok_s, 1), " tok/s"));
    if (i > 0) all.push_back(m);
    progress.update(i + 1);
  }
  const double bandwidth = engine->backend().read_bandwidth();
  const std::string machine = cat(this_machine().text(), "; ", engine->backend().description());
  print(options, summarise(options, all, bandwidth), name, machine);
  return 0;
}

}  // namespace spk::cli
