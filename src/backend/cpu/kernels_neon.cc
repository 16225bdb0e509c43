// The inner loops for 64-bit Arm. Part of the base there: no target flags.
#include "backend/cpu/kernels.h"

#if defined(__aarch64__)
#define SPK_ISA neon
#include "backend/cpu/loops_table.h"

namespace spk::cpu {

const Kernels* kernels_neon() {
  static constexpr Kernels table = neon::make_table("neon");
  return &table;
}

}  // namespace spk::cpu

#else

namespace spk::cpu {

const Kernels* kernels_neon() { return nullptr; }

}  // namespace spk::cpu

#endif
