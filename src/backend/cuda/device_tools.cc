#include "backend/device_tools.h"

#include "backend/cuda/catalog.h"
#include "backend/cuda/driver.h"
#include "backend/cuda/kernel_cache.h"
#include "base/threads.h"

#include <chrono>

namespace spk {

std::string device_architecture(int device) { return cuda::device_info(device).arch; }

DeviceMemory device_memory(int device) {
  const cuda::Driver& d = cuda::driver();
  const cuda::DeviceInfo info = cuda::device_info(device);
  cuda::CuDevice handle = 0;
  cuda::check(d.device(&handle, device), "cuDeviceGet");
  cuda::CuContext context = nullptr;
  cuda::check(d.context_retain(&context, handle), "cuDevicePrimaryCtxRetain");
  cuda::check(d.context_set(context), "cuCtxSetCurrent");
  size_t free = 0, total = 0;
  cuda::check(d.memory_info(&free, &total), "cuMemGetInfo");
  return {info.memory, free, info.integrated};
}

WarmReport warm_kernels(const std::string& arch, const ModelShape& shape,
                        std::span<const WeightUse> weights) {
  const auto start = std::chrono::steady_clock::now();
  cuda::KernelCache cache(cuda::KernelCache::default_folder(), cuda::kernel_sources(),
                          cuda::agreement_checks());
  const std::vector<cuda::KernelSpec> specs = cuda::kernels_of_model(
      shape, weights, cuda::has_room_to_stay(arch) ? Resident::kOn : Resident::kOff);
  WarmReport report;
  std::vector<bool> cached;
  cached.reserve(specs.size());
  for (const cuda::KernelSpec& spec : specs) cached.push_back(cache.load(spec, arch).has_value());
  cache.compile_missing(specs, arch, physical_cores(), cuda::own_program());
  for (size_t i = 0; i < specs.size(); ++i) {
    const cuda::Kernel kernel = cache.get(specs[i], arch);
    const cuda::Resources r = cuda::parse_resources(kernel.log);
    const std::string& full = specs[i].expression;
    report.kernels.push_back({full.substr(full.find("gpu::") + 5), kernel.compile_seconds,
                              cached[i], r.registers, r.shared_bytes, r.stack_bytes,
                              r.spill_loads + r.spill_stores});
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  report.arch = arch;
  report.compiler = "NVRTC " + cuda::nvrtc_version();
  report.folder = cache.folder();
  report.warnings = cache.warnings();
  return report;
}

bool is_compile_helper(int argc, char** argv) {
  return argc == 2 && argv[1] == cuda::kHelperArgument;
}
int run_compile_helper() { return cuda::run_compile_helper(); }

}  // namespace spk
