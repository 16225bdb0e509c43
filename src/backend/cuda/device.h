// The device as the back end sees it: memory, copies, kernels by name, in program order.
//
// Two kinds: one driven by the CUDA driver (driver_device.cc), one that runs the kernels' own
// sources on the host and lives in the tests. Everything above this line is the same code for both.
// Called by the engine's thread only. Errors: Error(kResource).
#pragma once

#include "backend/cuda/driver.h"
#include "backend/cuda/sources.h"
#include "backend/cuda/upload_plan.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spk::cuda {

struct Grid {
  int64_t x = 1, y = 1, z = 1;
  int64_t shared = 0;  // bytes of shared memory of a block beside what the kernel declares
};

using KernelId = int;

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual std::string description() const = 0;
  virtual size_t free_memory() const = 0;

  virtual DevicePointer alloc(size_t bytes,
                              std::string_view label) = 0;  // zeroed, 256-byte aligned
  virtual void free(DevicePointer pointer) = 0;
  // `from` may be reused on return.
  virtual void upload(DevicePointer to, const void* from, const CopyShape& shape) = 0;
  // All of them by several readers, each with pinned buffers and a stream of its own; returns when
  // everything is there.
  virtual void upload_late(std::span<const LateUpload> uploads, UploadSource& source) = 0;
  virtual void download(void* to, DevicePointer from, const CopyShape& shape) = 0;  // waits
  virtual void copy(DevicePointer to, DevicePointer from, const CopyShape& shape) = 0;
  virtual void zero(DevicePointer to, size_t bytes) = 0;

  // Compiles what is not compiled yet, in parallel: a hint, kernel() compiles what is missing.
  virtual void prepare_kernels(std::span<const KernelSpec> specs) = 0;
  virtual KernelId kernel(const KernelSpec& spec) = 0;
  // `arguments`: the kernel's one struct of `bytes`. May be put off until a call that needs it
  // done.
  virtual void launch(KernelId kernel, const Grid& grid, int threads, const void* arguments,
                      size_t bytes) = 0;
  virtual void synchronize() = 0;

  // Remarks to show: kernels that cannot be kept and the like.
  virtual std::vector<std::string> notes() const { return {}; }
};

// `graphs`: what is launched again in the same way runs as a graph.
std::unique_ptr<Device> make_driver_device(int ordinal, bool graphs);

}  // namespace spk::cuda
