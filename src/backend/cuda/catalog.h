// Names of the kernels' instantiations, which of them a model needs, and the checks that host and
// device agree. Pure functions.
#pragma once

#include "backend/cuda/sources.h"
#include "backend/device_tools.h"
#include "backend/layout.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spk::cuda {

// ---- names ----
KernelSpec embed_kernel(Format format);
KernelSpec rms_norm_kernel(bool add);
KernelSpec matvec_kernel(Format format, int64_t rows);
KernelSpec matmul_kernel(Format format);
KernelSpec absorb_kernel(Format format);
// Whether a shared expert of that format runs in the launches of the routed ones; else it is three
// products, and `shared` of their kernels is the routed format.
bool shared_joins(Format routed, Format shared);
KernelSpec expert_up_kernel(Format format, Format shared, int64_t rows);
KernelSpec expert_down_kernel(Format format, Format shared, int64_t rows);
KernelSpec attend_kernel(const ModelShape& shape, bool split);
KernelSpec attend_merge_kernel(const ModelShape& shape);
// One without arguments ("rows", "swiglu"), or with one number ("kda", "kda_rows", 128).
KernelSpec plain_kernel(const char* header, const char* name, int64_t number = 0);

// The instantiation that takes n rows: 1, 2, 4 or 8.
int64_t row_bucket(int64_t n);

// ---- what a model needs ----
// The role of a stored matrix is found by its name: a wrong guess costs compiling later, nothing
// else.
std::vector<KernelSpec> kernels_of_model(const ModelShape& shape,
                                         std::span<const WeightUse> weights);

// Text put in front of every program: sizes and constants as this compiler sees them.
std::string agreement_checks();

}  // namespace spk::cuda
