// One slab of rows through the experts: where its pieces lie, and how the shared expert runs.
#pragma once

#include "backend/cuda/cuda.h"

namespace spk::cuda {

struct CudaBackend::ExpertRun {
  gpu::ExpertsArgs a{};
  gpu::QuantRows x{}, act{}, shared_act{};  // codes null: not wanted
  float* shared_up = nullptr;
  int* items = nullptr;
  int* item_count = nullptr;
  int64_t n = 0, pairs = 0, bucket = 0, most_items = 0;
  int64_t shared_width = 0;  // 0: no shared expert
  int64_t shared_items = 0;  // 0: the shared expert has launches of its own, or there is none
  Format shared_up_format{}, shared_down_format{};  // of the one that joins
};

}  // namespace spk::cuda
