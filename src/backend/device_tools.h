// What the command line needs of the device back end besides the Backend itself.
#pragma once

#include <string>

namespace spk {

// `sparkling` started as a helper that compiles kernels (backend/cuda/kernel_cache.h).
bool is_compile_helper(int argc, char** argv);
int run_compile_helper();

}  // namespace spk
