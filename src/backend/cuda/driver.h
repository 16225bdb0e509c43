// The CUDA driver: our own declarations of the functions that we call, loaded when first asked for.
//
// No toolkit header and no link-time library, so that one program serves machines with and without
// a GPU. Names and numbers are those of the driver's interface, which is stable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace spk::cuda {

using DevicePointer = uint64_t;
// The address as the pointer that arguments of kernels hold; the host never follows it.
template <typename T = void>
T* pointer_to(DevicePointer address) {
  return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr)
}
using CuDevice = int;
struct CuContextObject;
struct CuModuleObject;
struct CuFunctionObject;
struct CuStreamObject;
struct CuEventObject;
struct CuGraphObject;
struct CuGraphExecObject;
using CuContext = CuContextObject*;
using CuModule = CuModuleObject*;
using CuFunction = CuFunctionObject*;
using CuStream = CuStreamObject*;
using CuEvent = CuEventObject*;
using CuGraph = CuGraphObject*;
using CuGraphExec = CuGraphExecObject*;
using CuResult = int;  // 0: success

// cuDeviceGetAttribute
enum CuAttribute : int {
  kMultiprocessors = 16,
  kIntegrated = 18,
  kComputeMajor = 75,
  kComputeMinor = 76,
  kL2Bytes = 38,
  kSharedPerBlockOptin = 97,
};

// cuFuncSetAttribute
constexpr int kMaxDynamicShared = 8;

// cuMemcpy2DAsync: sides are host (1) or device (2).
struct CuCopy2D {
  size_t source_x = 0, source_y = 0;
  int source_kind = 0;
  const void* source_host = nullptr;
  DevicePointer source_device = 0;
  void* source_array = nullptr;
  size_t source_pitch = 0;
  size_t target_x = 0, target_y = 0;
  int target_kind = 0;
  void* target_host = nullptr;
  DevicePointer target_device = 0;
  void* target_array = nullptr;
  size_t target_pitch = 0;
  size_t width = 0, height = 0;
};
static_assert(sizeof(CuCopy2D) == 128);

// cuLaunchKernelEx: one attribute, which lets a kernel begin before the one in front has ended.
struct CuLaunchAttribute {
  int id = 6;  // programmatic stream serialization
  char pad[4] = {};
  int allowed = 1;
  char rest[60] = {};
};
static_assert(sizeof(CuLaunchAttribute) == 72);
struct CuLaunch {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  CuStream stream;
  CuLaunchAttribute* attributes;
  unsigned attribute_count;
};
static_assert(sizeof(CuLaunch) == 56);

struct Driver {
  CuResult (*init)(unsigned flags);
  CuResult (*driver_version)(int* version);
  CuResult (*error_name)(CuResult result, const char** name);
  CuResult (*error_string)(CuResult result, const char** text);
  CuResult (*device_count)(int* count);
  CuResult (*device)(CuDevice* device, int ordinal);
  CuResult (*device_name)(char* name, int length, CuDevice device);
  CuResult (*device_attribute)(int* value, int attribute, CuDevice device);
  CuResult (*device_memory)(size_t* bytes, CuDevice device);
  CuResult (*context_retain)(CuContext* context, CuDevice device);
  CuResult (*context_release)(CuDevice device);
  CuResult (*context_set)(CuContext context);
  CuResult (*memory_info)(size_t* free, size_t* total);
  CuResult (*memory_alloc)(DevicePointer* pointer, size_t bytes);
  CuResult (*memory_free)(DevicePointer pointer);
  CuResult (*host_alloc)(void** pointer, size_t bytes);
  CuResult (*host_free)(void* pointer);
  CuResult (*copy_to_device)(DevicePointer to, const void* from, size_t bytes, CuStream stream);
  CuResult (*copy_to_host)(void* to, DevicePointer from, size_t bytes, CuStream stream);
  CuResult (*copy_2d)(const CuCopy2D* copy, CuStream stream);
  CuResult (*fill_bytes)(DevicePointer to, unsigned char value, size_t bytes, CuStream stream);
  CuResult (*stream_create)(CuStream* stream, unsigned flags);
  CuResult (*stream_destroy)(CuStream stream);
  CuResult (*stream_synchronize)(CuStream stream);
  CuResult (*event_create)(CuEvent* event, unsigned flags);
  CuResult (*event_destroy)(CuEvent event);
  CuResult (*event_record)(CuEvent event, CuStream stream);
  CuResult (*event_synchronize)(CuEvent event);
  CuResult (*event_elapsed)(float* milliseconds, CuEvent start, CuEvent end);
  CuResult (*module_load)(CuModule* module, const void* image);
  CuResult (*module_unload)(CuModule module);
  CuResult (*module_function)(CuFunction* function, CuModule module, const char* name);
  CuResult (*function_attribute)(CuFunction function, int attribute, int value);
  CuResult (*launch)(const CuLaunch* launch, CuFunction function, void** arguments, void** extra);
  CuResult (*capture_begin)(CuStream stream, int mode);
  CuResult (*capture_end)(CuStream stream, CuGraph* graph);
  CuResult (*graph_instantiate)(CuGraphExec* exec, CuGraph graph, unsigned long long flags);
  CuResult (*graph_launch)(CuGraphExec exec, CuStream stream);
  CuResult (*graph_destroy)(CuGraph graph);
  CuResult (*graph_exec_destroy)(CuGraphExec exec);
  std::string library;  // the file that was opened
};

// Opens the driver and initialises it, once. Error(kResource), the same at every call, when there
// is no driver, no device, or the driver refuses.
const Driver& driver();

// Error(kResource) naming the call, the driver's name of the error and its text. All errors but a
// lack of memory stay: they are DeviceLost, and the caller ends the process instead of trying
// again.
void check(CuResult result, const char* call);

struct DeviceInfo {
  int ordinal = 0;
  std::string name;
  std::string arch;  // "sm_90a"
  int multiprocessors = 0;
  bool overlaps = false;    // has programmatic dependent launch
  bool integrated = false;  // memory is shared with the processor
  size_t memory = 0;
  size_t l2 = 0;
  size_t shared = 0;       // that a block can have when it asks
  int driver_version = 0;  // 13000
};

// Error(kResource) when there is no such device, or one that is older than the kernels support.
DeviceInfo device_info(int ordinal);

// The architecture that kernels are compiled for on a device of this compute capability: "sm_90a",
// "sm_121a", "sm_80"; empty when it is too old.
std::string architecture(int major, int minor);

}  // namespace spk::cuda
