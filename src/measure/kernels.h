// Each kernel of a decode step alone, on cold weights.
//
// A weight that is hot in a cache runs up to twice as fast as in a model, so every kernel works
// through copies of its weights (or states) that together are at least three times the last cache
// level, one after the other. Values are the model's own; only the addresses are new. (Copies have
// a limit: weights of a few KB, in models of a few MB, stay warm. "moe" takes the model's own
// layers instead, up to as many as are needed.)
//
// A device is asked for many calls before it is waited for, the same ones each time: what is
// measured is how long they take one behind the other, as in a step, without the way there and
// back.
#pragma once

#include "backend/backend.h"
#include "model/model.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace spk {

struct KernelRow {
  std::string name;
  int64_t rows = 1;
  int64_t copies = 1;
  int64_t calls = 0;          // measured
  double microseconds = 0;    // median of a call; on a device of as many as are waited for together
  double spread_percent = 0;  // P95 over the median
  double bytes = 0;           // counted, of a call
};

struct KernelRequest {
  std::string filter;  // part of a name, "": all
  HeadFormat head = HeadFormat::kStored;
  int64_t depth = 1024;   // positions that attention reads
  int threads = 1;        // for quantising the head
  double seconds = 0.15;  // of each measurement
};

// Names that exist for a model.
std::vector<std::string> kernel_names(const ModelConfig& config);

// `backend` makes a fresh one each time: memory is given back between kernels. Error(kUsage) when
// no name has the filter in it.
std::vector<KernelRow> run_kernels(const ModelConfig& config, const TensorSet& tensors,
                                   const std::function<std::unique_ptr<Backend>()>& backend,
                                   const KernelRequest& request);

}  // namespace spk
