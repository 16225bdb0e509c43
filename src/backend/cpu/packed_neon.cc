// Packed experts for 64-bit Arm without the dot instruction.
#include "backend/cpu/packed.h"

#if defined(__aarch64__)
#define SPK_PACKED packed_neon_base
#include "backend/cpu/loops_packed.h"

namespace spk::cpu {

const PackedKernels* packed_neon() {
  static constexpr PackedKernels table{"neon", packed_neon_base::kShapes};
  return &table;
}

}  // namespace spk::cpu

#else

namespace spk::cpu {

const PackedKernels* packed_neon() { return nullptr; }

}  // namespace spk::cpu

#endif
