// The device back end as the layers above know it: its factory, and what the command line needs
// besides.
#pragma once

#include "backend/backend.h"
#include "backend/layout.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spk {

// On the first GPU that the driver shows (CUDA_VISIBLE_DEVICES chooses); Error(kResource) with one
// sentence when there is no driver, no GPU or no compiler.
std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options);

// A stored matrix of a model: its name tells its role, and with it the kernels that it needs.
struct WeightUse {
  std::string_view name;
  Format format;
  int64_t rows;
  int64_t cols;
  bool packed = false;  // of an expert: int8 activations are wanted
};

struct KernelReport {
  std::string name;  // "matvec<2, 4>"
  double seconds = 0;
  bool cached = false;  // found on disk
  int registers = 0;
  int shared_bytes = 0;
  int stack_bytes = 0;  // local memory
  int spill_bytes = 0;  // stores and loads
};
struct WarmReport {
  std::string arch, compiler, folder;
  double seconds = 0;  // in all, by several processes
  std::vector<KernelReport> kernels;
  std::vector<std::string> warnings;
};

// The architecture of a GPU ("sm_90a"); Error(kResource) without one.
std::string device_architecture(int device);

struct DeviceMemory {
  uint64_t total = 0;
  uint64_t free = 0;    // what others and this process have not taken
  bool shared = false;  // with the system
};
// Makes the device's context, which stays until the process ends. Error(kResource) without a GPU.
DeviceMemory device_memory(int device);

// Compiles all kernels of a model that are not on disk yet. Needs the compiler and no GPU.
WarmReport warm_kernels(const std::string& arch, const ModelShape& shape,
                        std::span<const WeightUse> weights);

// `sparkling` started as a helper that compiles kernels (backend/cuda/kernel_cache.h).
bool is_compile_helper(int argc, char** argv);
int run_compile_helper();

}  // namespace spk
