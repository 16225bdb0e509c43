// What is read next, as stretches that idle blocks ask for.
#pragma once

#include "backend/layout.h"
#include "kernels/args.cuh"

#include <cstdint>
#include <span>

namespace spk::cuda {

// Codes and scales of the matrices in their order, up to `budget` bytes in all; blocks 0.
gpu::NextWeights next_weights(std::span<const Weight* const> weights, int64_t budget);

}  // namespace spk::cuda
