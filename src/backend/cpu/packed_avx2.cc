// Packed experts for AVX2 without a dot instruction: byte pairs first, then words.
#include "backend/cpu/packed.h"

#if defined(__AVX2__) && defined(__FMA__)
#define SPK_PACKED packed_avx2_maddubs
#include "backend/cpu/loops_packed.h"

namespace spk::cpu {

const PackedKernels* packed_avx2() {
  static constexpr PackedKernels table{"avx2", packed_avx2_maddubs::kShapes};
  return &table;
}

}  // namespace spk::cpu

#else

namespace spk::cpu {

const PackedKernels* packed_avx2() { return nullptr; }

}  // namespace spk::cpu

#endif
