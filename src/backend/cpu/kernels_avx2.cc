// The inner loops for AVX2, FMA and F16C. cmake/isa.cmake gives this file its target flags, and no
// other.
#include "backend/cpu/kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define SPK_ISA avx2
#include "backend/cpu/loops_table.h"

namespace spk::cpu {

const Kernels* kernels_avx2() {
  static constexpr Kernels table = avx2::make_table("avx2");
  return &table;
}

}  // namespace spk::cpu

#else

namespace spk::cpu {

const Kernels* kernels_avx2() { return nullptr; }

}  // namespace spk::cpu

#endif
