// `bench --kernel`: each kernel of a step alone, on cold weights (measure/kernels.h).
#include "base/error.h"
#include "cli/bench.h"
#include "cli/identity.h"
#include "cli/machine.h"
#include "cli/output.h"
#include "cli/version.h"
#include "engine/compare_run.h"
#include "measure/kernels.h"
#include "measure/show.h"

#include <cstdint>

namespace spk::cli {

int bench_kernels(const Options& options) {
  const BenchOptions& b = options.bench;
  if (!b.plot.empty()) fail_usage("--kernel is a table of its own: expected no --plot");
  EngineOptions engine = engine_options(options.model);
  engine.device.tiles = UINT64_MAX;  // of all copies, as of the model's own weights
  // Copies are made of weights in memory, for a device too.
  ModelOptions in_memory = options.model;
  if (in_memory.backend == "cuda") in_memory.backend = "cpu";
  const OpenedModel model = open_model(in_memory);
  const TensorSet tensors = bind_tensors(model.config, *model.source);
  KernelRequest request;
  request.filter = b.kernel.value_or("");
  request.head = engine.head;
  if (!b.depths.empty()) request.depth = b.depths.front();
  request.threads =
      options.model.threads > 0 ? options.model.threads : this_machine().physical_cores;
  const auto make = [&] { return make_backend(engine); };
  const Clocks before = clocks_now();
  const std::vector<KernelRow> rows = run_kernels(model.config, tensors, make, request);
  const std::unique_ptr<Backend> backend = make();
  const double roof = backend->read_bandwidth();
  ResultTable table =
      result_frame(options, model.name, weights_identity(model), backend->description(), before);
  table.columns = {{"kernel", "name", 0, 1},
                   {"rows", "rows", 0, 1},
                   {"us", "microseconds", 1, 1},
                   {"P95 over median %", "spread_percent", 1, 1},
                   {"MB", "bytes", 3, 1e-6},
                   {"GB/s", "gb_s", 2, 1},
                   {"% of roof", "roof_percent", 1, 1},
                   {"copies", "copies", 0, 1},
                   {"calls", "calls", 0, 1}};
  for (const KernelRow& r : rows) {
    const double speed = r.bytes / r.microseconds * 1e6;
    table.rows.push_back({r.name, r.rows, r.microseconds, r.spread_percent, r.bytes, speed / 1e9,
                          measured_if(roof > 0, 100 * speed / roof), r.copies, r.calls});
  }
  table.notes.emplace_back("roof", cat(fixed(roof / 1e9, 1), " GB/s"));
  out(render(table, b.format));
  return 0;
}

}  // namespace spk::cli
