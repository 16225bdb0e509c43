// bf16.h for AVX-512 with BF16 and VBMI. cmake/isa.cmake gives this file its target flags, and no
// other.
#include "backend/cpu/bf16.h"
#include "backend/cpu/bf16_panels.h"
#include "backend/cpu/bf16_rows.h"
#include "backend/cpu/bf16_tiles.h"

#if defined(__AVX512BF16__) && defined(__AVX512VBMI__)

namespace spk::cpu {

const Bf16Kernels* bf16_avx512() {
  using namespace bf16_avx512bf16;
  static constexpr Bf16Kernels table{"avx512-bf16", round_row,     matvec,
                                     matvec_tiles,  matvec_across, panels,
                                     panel_dots,    float_panels,  float_panels_across};
  return &table;
}

}  // namespace spk::cpu

#else

namespace spk::cpu {

const Bf16Kernels* bf16_avx512() { return nullptr; }

}  // namespace spk::cpu

#endif
