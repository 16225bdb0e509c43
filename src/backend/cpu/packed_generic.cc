// Packed experts in portable C++: what every processor runs, and the test partner of the others.
#define SPK_PACKED packed_portable
#include "backend/cpu/loops_packed.h"

namespace spk::cpu {

const PackedKernels* packed_generic() {
  static constexpr PackedKernels table{"generic", packed_portable::kShapes};
  return &table;
}

}  // namespace spk::cpu
