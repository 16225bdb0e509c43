// `logits`: teacher-forced logits of a token list as .npy, with the experts' choice written or
// replayed.
#include "base/error.h"
#include "base/log.h"
#include "cli/npy.h"
#include "cli/output.h"
#include "cli/source.h"
#include "cli/values.h"
#include "cli/verbs.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

namespace spk::cli {
namespace {

// int32 [n, MoE layers + 1, top_k]; -1 only where a column is unused, ids inside the experts
// otherwise.
std::vector<int32_t> read_routes(const std::string& path, int64_t n, const ModelConfig& config) {
  const std::vector<int64_t> expected = {n, config.moe_layers() + 1, config.shape.top_k};
  constexpr uint64_t kLongestHeader = 1 << 17;  // and some rows too many, to say so
  const auto bytes =
      static_cast<uint64_t>(expected[0] * expected[1] * expected[2]) * sizeof(int32_t);
  IntArray array = read_npy(path, 2 * bytes + kLongestHeader);
  if (array.shape != expected) {
    std::string found;
    for (const int64_t size : array.shape) found += cat(found.empty() ? "" : ", ", size);
    fail_input(path, ": expected shape (", expected[0], ", ", expected[1], ", ", expected[2],
               ") = (tokens, MoE layers + 1, top_k), found (", found, ")");
  }
  for (size_t i = 0; i < array.values.size(); ++i) {
    if (array.values[i] < -1 || array.values[i] >= config.shape.experts) {
      const auto per_token = static_cast<size_t>(expected[1] * expected[2]);
      fail_input(path, ": row ", i / per_token, ": expected expert ids from 0 to ",
                 config.shape.experts - 1, " (-1: unused), found ", array.values[i]);
    }
  }
  const int64_t top_k = expected[2];
  for (int64_t at = 0; at < n * expected[1]; ++at) {
    const int32_t* chosen = array.values.data() + at * top_k;
    for (int64_t k = 0; k < top_k; ++k) {
      if (chosen[k] >= 0 && std::count(chosen, chosen + k, chosen[k]) > 0) {
        fail_input(path, ": row ", at / expected[1], ", layer column ", at % expected[1],
                   ": expected different experts, found ", chosen[k], " twice");
      }
    }
  }
  return std::move(array.values);
}

// Each output is written to PATH.part first, so that this name is taken too.
void check_outputs(const LogitsOptions& logits) {
  if (logits.routes_out.empty()) return;
  const auto place = [](const std::string& path) {
    std::error_code ignored;  // a folder that is not there fails later, with its name
    const std::filesystem::path whole = std::filesystem::absolute(path, ignored);
    const auto folder = std::filesystem::weakly_canonical(whole.parent_path(), ignored);
    return (folder / whole.filename()).string();  // a link is replaced, not followed
  };
  const std::string a = place(logits.output), b = place(logits.routes_out);
  const bool special = a.rfind("/dev/", 0) == 0;
  if ((a == b && !special) || a + ".part" == b || b + ".part" == a) {
    fail_usage("expected two files for -o and --routes-out, found '", logits.output, "' and '",
               logits.routes_out, "'");
  }
}

}  // namespace

int verb_logits(const Options& options) {
  const std::vector<int32_t> tokens = parse_ids(options.tokens);
  if (tokens.empty()) fail_usage("--tokens: expected at least one id, found none");
  const auto n = static_cast<int64_t>(tokens.size());
  check_outputs(options.logits);
  OpenedModel model = open_model(options.model);
  check_ids(tokens, model.config.shape.vocab);

  EngineOptions engine_opts = engine_options(options.model);
  if (engine_opts.context == 0 && n <= model.config.context) engine_opts.context = n;
  if (options.logits.chunk > 0) engine_opts.chunk = options.logits.chunk;
  std::vector<int32_t> routes_in;
  if (!options.logits.routes_in.empty()) {
    routes_in = read_routes(options.logits.routes_in, n, model.config);
  }
  const int64_t vocab = model.config.shape.vocab;
  const int64_t moe_columns = model.config.moe_layers() + 1;
  const int64_t top_k = model.config.shape.top_k;
  const auto engine = start_engine(model, options.model, engine_opts);

  const int64_t rows = options.logits.mtp ? n - 1 : n;
  NpyWriter writer(options.logits.output, rows, vocab);
  Progress progress("logits", rows, "rows");
  std::vector<int32_t> routes_out;
  Engine::LogitsRequest request;
  request.tokens = tokens;
  request.mtp = options.logits.mtp;
  request.chunk = options.logits.chunk;
  request.routes_in = routes_in;
  if (!options.logits.routes_out.empty()) request.routes_out = &routes_out;
  engine->logits(request, [&](int64_t i, std::span<const float> row) {
    writer.row(row);
    progress.update(i + 1);
  });
  writer.close();
  if (!options.logits.routes_out.empty()) {
    const int64_t shape[] = {n, moe_columns, top_k};
    write_npy(options.logits.routes_out, shape, routes_out);
  }
  log_verbose(cat("wrote ", options.logits.output, ": float32 [", rows, ", ", vocab, "]"));
  return 0;
}

}  // namespace spk::cli
