#include "backend/cuda/driver.h"

#include "backend/cuda/library.h"
#include "base/device_lost.h"
#include "base/error.h"

#include <optional>

namespace spk::cuda {
namespace {

constexpr int kOutOfMemory = 2;
constexpr int kNoDevice = 100;
constexpr int kOldestMajor = 8;

Driver load_driver() {
  Driver d{};
  std::string why;
  void* const library = open_library({"libcuda.so.1", "libcuda.so"}, d.library, why);
  if (!library)
    fail_resource("back end cuda: expected the NVIDIA driver's library libcuda.so.1, found none (",
                  why, "); use --backend cpu or install the driver");
  const auto get = [&](const char* name, auto& function) {
    load_function(library, d.library, name, function);
  };
  get("cuInit", d.init);
  get("cuDriverGetVersion", d.driver_version);
  get("cuGetErrorName", d.error_name);
  get("cuGetErrorString", d.error_string);
  get("cuDeviceGetCount", d.device_count);
  get("cuDeviceGet", d.device);
  get("cuDeviceGetName", d.device_name);
  get("cuDeviceGetAttribute", d.device_attribute);
  get("cuDeviceTotalMem_v2", d.device_memory);
  get("cuDevicePrimaryCtxRetain", d.context_retain);
  get("cuDevicePrimaryCtxRelease_v2", d.context_release);
  get("cuCtxSetCurrent", d.context_set);
  get("cuMemGetInfo_v2", d.memory_info);
  get("cuMemAlloc_v2", d.memory_alloc);
  get("cuMemFree_v2", d.memory_free);
  get("cuMemAllocHost_v2", d.host_alloc);
  get("cuMemFreeHost", d.host_free);
  get("cuMemcpyHtoDAsync_v2", d.copy_to_device);
  get("cuMemcpyDtoHAsync_v2", d.copy_to_host);
  get("cuMemcpy2DAsync_v2", d.copy_2d);
  get("cuMemsetD8Async", d.fill_bytes);
  get("cuStreamCreate", d.stream_create);
  get("cuStreamDestroy_v2", d.stream_destroy);
  get("cuStreamSynchronize", d.stream_synchronize);
  get("cuEventCreate", d.event_create);
  get("cuEventDestroy_v2", d.event_destroy);
  get("cuEventRecord", d.event_record);
  get("cuEventSynchronize", d.event_synchronize);
  get("cuEventElapsedTime", d.event_elapsed);
  get("cuModuleLoadData", d.module_load);
  get("cuModuleUnload", d.module_unload);
  get("cuModuleGetFunction", d.module_function);
  get("cuFuncSetAttribute", d.function_attribute);
  get("cuLaunchKernelEx", d.launch);
  get("cuStreamBeginCapture_v2", d.capture_begin);
  get("cuStreamEndCapture", d.capture_end);
  get("cuGraphInstantiateWithFlags", d.graph_instantiate);
  get("cuGraphLaunch", d.graph_launch);
  get("cuGraphDestroy", d.graph_destroy);
  get("cuGraphExecDestroy", d.graph_exec_destroy);
  const CuResult result = d.init(0);
  if (result == kNoDevice)
    fail_resource("back end cuda: expected an NVIDIA GPU, found a driver (", d.library,
                  ") without one; use --backend cpu");
  if (result != 0) {
    const char* text = nullptr;
    d.error_string(result, &text);
    fail_resource("back end cuda: the NVIDIA driver does not start: ", text ? text : "error ", " (",
                  result, ")");
  }
  return d;
}

}  // namespace

const Driver& driver() {
  // The outcome is kept, good or bad: asking twice must not give two answers.
  struct Outcome {
    Driver driver{};
    std::optional<Error> error;
  };
  static const Outcome outcome = [] {
    Outcome o;
    try {
      o.driver = load_driver();
    } catch (const Error& e) {
      o.error = e;
    }
    return o;
  }();
  if (outcome.error) throw Error(*outcome.error);
  return outcome.driver;
}

void check(CuResult result, const char* call) {
  if (result == 0) return;
  const char *name = nullptr, *text = nullptr;
  driver().error_name(result, &name);
  driver().error_string(result, &text);
  const std::string what = cat("CUDA: ", call, " failed: ", name ? name : "unknown error", " (",
                               result, "): ", text ? text : "the driver knows no text for it");
  if (result == kOutOfMemory) fail_resource(what);
  throw DeviceLost(what + "; the GPU cannot be used any further by this process");
}

std::string architecture(int major, int minor) {
  if (major < kOldestMajor) return "";
  // The suffix `a` is code for exactly this chip, which the fastest instructions need; chips of
  // compute capability 8 have no such code.
  return cat("sm_", major, minor, major >= 9 ? "a" : "");
}

DeviceInfo device_info(int ordinal) {
  const Driver& d = driver();
  int count = 0;
  check(d.device_count(&count), "cuDeviceGetCount");
  if (ordinal < 0 || ordinal >= count)
    fail_resource("--device: expected a GPU from 0 to ", count - 1, ", found ", ordinal);
  DeviceInfo info;
  info.ordinal = ordinal;
  CuDevice device = 0;
  check(d.device(&device, ordinal), "cuDeviceGet");
  char name[256] = "";
  check(d.device_name(name, sizeof name, device), "cuDeviceGetName");
  info.name = name;
  const auto attribute = [&](CuAttribute which) {
    int value = 0;
    check(d.device_attribute(&value, which, device), "cuDeviceGetAttribute");
    return value;
  };
  const int major = attribute(kComputeMajor), minor = attribute(kComputeMinor);
  info.arch = architecture(major, minor);
  if (info.arch.empty())
    fail_resource("back end cuda: expected a GPU of compute capability ", kOldestMajor,
                  ".0 or newer, found ", info.name, " with ", major, ".", minor);
  constexpr int kFirstWithOverlap = 9;
  info.overlaps = major >= kFirstWithOverlap;
  info.multiprocessors = attribute(kMultiprocessors);
  info.integrated = attribute(kIntegrated) != 0;
  info.l2 = static_cast<size_t>(attribute(kL2Bytes));
  info.shared = static_cast<size_t>(attribute(kSharedPerBlockOptin));
  check(d.device_memory(&info.memory, device), "cuDeviceTotalMem");
  check(d.driver_version(&info.driver_version), "cuDriverGetVersion");
  return info;
}

}  // namespace spk::cuda
