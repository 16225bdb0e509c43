// Packed experts for AVX-512 with VNNI.
#include "backend/cpu/packed.h"

#if defined(__AVX512BW__) && defined(__AVX512VNNI__)
#define SPK_PACKED packed_avx512
#include "backend/cpu/loops_packed.h"

namespace spk::cpu {

const PackedKernels* packed_avx512vnni() {
  static constexpr PackedKernels table{"avx512-vnni", packed_avx512::kShapes};
  return &table;
}

}  // namespace spk::cpu

#else

namespace spk::cpu {

const PackedKernels* packed_avx512vnni() { return nullptr; }

}  // namespace spk::cpu

#endif
