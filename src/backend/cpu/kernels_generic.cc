// The inner loops in portable C++: what every processor runs, and the test partner of the others.
#define SPK_ISA generic
#include "backend/cpu/loops_table.h"

namespace spk::cpu {

const Kernels* kernels_generic() {
  static constexpr Kernels table = generic::make_table("generic");
  return &table;
}

}  // namespace spk::cpu
