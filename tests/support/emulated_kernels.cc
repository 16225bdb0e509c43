#include "support/emulated_kernels.h"

#include "support/emulated_tiles.h"
#include "support/emulator.h"

// The kernels themselves, as host code. (CMakeLists.txt leaves out the warning about #pragma
// unroll, which no pragma of GCC's can.)
#include "kernels/choose.cuh"
#include "kernels/front.cuh"
#include "kernels/kda_block.cuh"
#include "kernels/kda_chunk.cuh"
#include "kernels/latent.cuh"
#include "kernels/matmul.cuh"
#include "kernels/mla_merge.cuh"
#include "kernels/resident.cuh"
#include "kernels/route.cuh"
#include "kernels/rows.cuh"
#include "kernels/tile.cuh"

#include <algorithm>
#include <unordered_map>

namespace spk::test {
namespace {

template <typename Args>
EmulatedKernel call(void (*kernel)(Args)) {
  return {[kernel](const void* arguments) { kernel(*static_cast<const Args*>(arguments)); },
          sizeof(Args)};
}

#define SPK_KERNEL(...) table.emplace("spk::gpu::" #__VA_ARGS__, call(&gpu::__VA_ARGS__))
#define SPK_PRODUCTS(f)                                                         \
  SPK_KERNEL(embed<f>);                                                         \
  SPK_KERNEL(matvec<f, 1>), SPK_KERNEL(matvec<f, 2>), SPK_KERNEL(matvec<f, 4>); \
  SPK_KERNEL(matvec<f, 8>), SPK_KERNEL(matmul<f>), SPK_KERNEL(absorb<f>);       \
  SPK_KERNEL(latent_query<f>)
#define SPK_EXPERTS(f, s)                                             \
  SPK_KERNEL(expert_up<f, s, 1>), SPK_KERNEL(expert_up<f, s, 2>);     \
  SPK_KERNEL(expert_up<f, s, 4>), SPK_KERNEL(expert_up<f, s, 8>);     \
  SPK_KERNEL(expert_down<f, s, 1>), SPK_KERNEL(expert_down<f, s, 2>); \
  SPK_KERNEL(expert_down<f, s, 4>), SPK_KERNEL(expert_down<f, s, 8>)
#define SPK_PACKED_EXPERTS(s)                                   \
  SPK_KERNEL(packed_up<s, 1>), SPK_KERNEL(packed_up<s, 2>);     \
  SPK_KERNEL(packed_up<s, 4>), SPK_KERNEL(packed_up<s, 8>);     \
  SPK_KERNEL(packed_down<s, 1>), SPK_KERNEL(packed_down<s, 2>); \
  SPK_KERNEL(packed_down<s, 4>), SPK_KERNEL(packed_down<s, 8>)
#define SPK_TILES(f) \
  SPK_KERNEL(tiles<f, 1>), SPK_KERNEL(tiles<f, 2>), SPK_KERNEL(tiles<f, 4>), SPK_KERNEL(tiles<f, 8>)
#define SPK_RESIDENT(f, d) \
  SPK_KERNEL(resident<f, d, 2, false>), SPK_KERNEL(resident<f, d, 4, false>)
#define SPK_HEAD_DIM(d)                                \
  SPK_KERNEL(norm_gate<d>), SPK_KERNEL(kda_gate<d>);   \
  SPK_KERNEL(kda_rows<d>), SPK_KERNEL(fold_state<d>);  \
  SPK_KERNEL(kda_prepare<d>), SPK_KERNEL(kda_scan<d>); \
  SPK_KERNEL(kda_block<d, 2>), SPK_KERNEL(kda_block<d, 4>)
#define SPK_LATENT(l, p) \
  SPK_KERNEL(attend<l, p>), SPK_KERNEL(attend_whole<l, p>), SPK_KERNEL(attend_merge<l>)

const std::unordered_map<std::string, EmulatedKernel>& kernels() {
  static const std::unordered_map<std::string, EmulatedKernel> all = [] {
    std::unordered_map<std::string, EmulatedKernel> table;
    SPK_PRODUCTS(0);
    SPK_PRODUCTS(1);
    SPK_PRODUCTS(2);
    SPK_PRODUCTS(3);
    SPK_PRODUCTS(4);
    SPK_PRODUCTS(5);
    SPK_KERNEL(front<0, 256>), SPK_KERNEL(front<0, 512>);
    SPK_KERNEL(front<1, 256>), SPK_KERNEL(front<1, 512>);
    SPK_RESIDENT(0, 64), SPK_RESIDENT(0, 128), SPK_RESIDENT(1, 64), SPK_RESIDENT(1, 128);
    SPK_KERNEL(resident<1, 128, 4, true>);
    SPK_TILES(2);
    SPK_TILES(5);
    SPK_EXPERTS(0, 0);
    SPK_EXPERTS(1, 1);
    SPK_EXPERTS(2, 2);
    SPK_EXPERTS(3, 3);
    SPK_EXPERTS(4, 4);
    SPK_EXPERTS(3, 2);
    SPK_EXPERTS(4, 1);
    SPK_PACKED_EXPERTS(2);
    SPK_PACKED_EXPERTS(3);
    SPK_KERNEL(quantise_rows<0>), SPK_KERNEL(few_items_and_rows<0>);
    SPK_HEAD_DIM(32);
    SPK_HEAD_DIM(64);
    SPK_HEAD_DIM(128);
    SPK_LATENT(32, 16);
    SPK_LATENT(64, 32);
    SPK_LATENT(80, 2);
    SPK_LATENT(512, 64);
    SPK_KERNEL(rms_norm<false>), SPK_KERNEL(rms_norm<true>);
    SPK_KERNEL(add_rows<0>), SPK_KERNEL(swiglu<0>), SPK_KERNEL(head_gate<0>);
    SPK_KERNEL(read_all<0>), SPK_KERNEL(conv_step<2>), SPK_KERNEL(conv_step<4>);
    SPK_KERNEL(fold_tail<2>), SPK_KERNEL(fold_tail<4>);
    SPK_KERNEL(rope_table<0>), SPK_KERNEL(rope<0>), SPK_KERNEL(latent_append<0>);
    SPK_KERNEL(route<0>), SPK_KERNEL(expert_items<0>), SPK_KERNEL(few_expert_items<0>);
    SPK_KERNEL(expert_sum<0>), SPK_KERNEL(sum_norm<0>), SPK_KERNEL(route_items<0>);
    SPK_KERNEL(best_of_pieces<0>), SPK_KERNEL(choose<0>);
    SPK_KERNEL(sample<0>), SPK_KERNEL(reject<0>);
    return table;
  }();
  return all;
}

}  // namespace

const EmulatedKernel* find_emulated(const std::string& name) {
  const auto found = kernels().find(name);
  return found == kernels().end() ? nullptr : &found->second;
}

std::vector<std::string> emulated_kernels() {
  std::vector<std::string> names;
  for (const auto& [name, run] : kernels()) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

void run_emulated(const EmulatedKernel& kernel, const EmulatedGrid& grid, unsigned threads,
                  bool backward, const void* arguments) {
  emu::run_grid({grid.x, grid.y, grid.z, grid.shared}, threads, backward,
                [&] { kernel.thread(arguments); });
}

}  // namespace spk::test
