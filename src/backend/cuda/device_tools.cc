#include "backend/device_tools.h"

#include "backend/cuda/kernel_cache.h"

namespace spk {

bool is_compile_helper(int argc, char** argv) {
  return argc == 2 && argv[1] == cuda::kHelperArgument;
}
int run_compile_helper() { return cuda::run_compile_helper(); }

}  // namespace spk
