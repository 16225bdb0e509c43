// Names of the kernels' instantiations, which of them a model needs, and the checks that host and
// device agree. Pure functions.
#pragma once

#include "backend/cuda/sources.h"
#include "backend/device_tools.h"
#include "backend/layout.h"

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spk::cuda {

// ---- names ----
// Which instantiation of which kernel, as a launch names it: without a string, because a decode
// step has about a thousand launches and its kernels were spelled out before.
struct KernelName {
  static constexpr int kMost = 4;
  static constexpr int64_t kNo = -1, kYes = -2;  // arguments that are truth values

  std::string_view header, name;  // of static storage: "moe", "expert_up"
  int count = 0;
  std::array<int64_t, kMost> arguments{};

  bool operator==(const KernelName&) const = default;
  struct Hash {
    size_t operator()(const KernelName& k) const noexcept;
  };
};
// As the compiler wants it: {"kernels/moe.cuh", "spk::gpu::expert_up<3, 2, 1>"}.
KernelSpec spec_of(const KernelName& name);

KernelName embed_kernel(Format format);
KernelName rms_norm_kernel(bool add);
KernelName matvec_kernel(Format format, int64_t rows);
// Whether products of up to eight rows with a matrix go through the matrix unit (tile.cuh), and the
// kernel of those that do.
bool takes_tiles(Format format, int64_t cols);
KernelName tiles_kernel(Format format, int64_t rows);
// Whether there is a kernel for norm, router and choice of a row at once (front.cuh), and which.
bool has_front(Format router, int64_t cols, int64_t experts);
KernelName front_kernel(Format router, int64_t threads);
KernelName matmul_kernel(Format format);
KernelName absorb_kernel(Format format);
KernelName latent_query_kernel(Format kv_b);
// Whether a shared expert of that format runs in the launches of the routed ones; else it is three
// products, and `shared` of their kernels is the routed format.
bool shared_joins(Format routed, Format shared);
KernelName expert_up_kernel(Format format, Format shared, int64_t rows);
KernelName expert_down_kernel(Format format, Format shared, int64_t rows);
// Those of experts with int8 activations; `shared`: MXFP4 when the shared expert does not join.
KernelName packed_up_kernel(Format shared, int64_t rows);
KernelName packed_down_kernel(Format shared, int64_t rows);
KernelName attend_kernel(const ModelShape& shape, bool pieces);
KernelName attend_merge_kernel(const ModelShape& shape);
KernelName kda_block_kernel(const ModelShape& shape);
bool has_kda_block(const ModelShape& shape);
// Whether whole layers of one row run by blocks that stay (resident.cuh), as far as the shape
// decides it, and the kernel for a format of the routers.
bool has_resident(const ModelShape& shape);
KernelName resident_kernel(const ModelShape& shape, Format router, bool timed);
// One without arguments ("rows", "swiglu"), or with one number ("kda", "kda_rows", 128).
KernelName plain_kernel(std::string_view header, std::string_view name, int64_t number = 0);

// The instantiation that takes n rows: 1, 2, 4 or 8.
int64_t row_bucket(int64_t n);

// ---- what a model needs ----
// The role of a stored matrix is found by its name: a wrong guess costs compiling later, nothing
// else.
std::vector<KernelSpec> kernels_of_model(const ModelShape& shape,
                                         std::span<const WeightUse> weights,
                                         Resident resident = Resident::kOff);

// Whether a block of an architecture ("sm_90a") has the shared memory of blocks that stay.
bool has_room_to_stay(std::string_view arch);

// Text put in front of every program: sizes and constants as this compiler sees them.
std::string agreement_checks();

}  // namespace spk::cuda
