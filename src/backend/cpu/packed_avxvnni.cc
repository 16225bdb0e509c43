// Packed experts for AVX-VNNI: the dot instruction on 256-bit registers.
#include "backend/cpu/packed.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__AVXVNNI__)
#define SPK_PACKED packed_avx2_vnni
#include "backend/cpu/loops_packed.h"

namespace spk::cpu {

const PackedKernels* packed_avxvnni() {
  static constexpr PackedKernels table{"avx-vnni", packed_avx2_vnni::kShapes};
  return &table;
}

}  // namespace spk::cpu

#else

namespace spk::cpu {

const PackedKernels* packed_avxvnni() { return nullptr; }

}  // namespace spk::cpu

#endif
