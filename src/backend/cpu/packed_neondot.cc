// Packed experts for 64-bit Arm with the dot instruction.
#include "backend/cpu/packed.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
#define SPK_PACKED packed_neon_dot
#include "backend/cpu/loops_packed.h"

namespace spk::cpu {

const PackedKernels* packed_neondot() {
  static constexpr PackedKernels table{"neon-dot", packed_neon_dot::kShapes};
  return &table;
}

}  // namespace spk::cpu

#else

namespace spk::cpu {

const PackedKernels* packed_neondot() { return nullptr; }

}  // namespace spk::cpu

#endif
