// The inner loops for AVX-512 (F, BW, DQ, VL). cmake/isa.cmake gives this file its target flags,
// and no other.
#include "backend/cpu/kernels.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define SPK_ISA avx512
#include "backend/cpu/loops_table.h"

namespace spk::cpu {

const Kernels* kernels_avx512() {
  static constexpr Kernels table = avx512::make_table("avx512");
  return &table;
}

}  // namespace spk::cpu

#else

namespace spk::cpu {

const Kernels* kernels_avx512() { return nullptr; }

}  // namespace spk::cpu

#endif
