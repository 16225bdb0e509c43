// The kernels as host code, by the name that NVRTC is asked for: what the emulated device and the
// fake driver (tests/fake_gpu) launch.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace spk::test {

struct EmulatedKernel {
  std::function<void(const void*)> thread;  // runs one; the argument is the kernel's one struct
  size_t argument_bytes = 0;
};

struct EmulatedGrid {
  unsigned x = 1, y = 1, z = 1;
  unsigned shared = 0;  // bytes of dynamic memory of a block
};

// "spk::gpu::matvec<0, 1>" and all others that can be emulated; null: not one of them.
const EmulatedKernel* find_emulated(const std::string& name);
std::vector<std::string> emulated_kernels();  // all names, sorted

// `backward`: threads and blocks in the opposite order, to find races. One launch at a time in a
// process.
void run_emulated(const EmulatedKernel& kernel, const EmulatedGrid& grid, unsigned threads,
                  bool backward, const void* arguments);

}  // namespace spk::test
