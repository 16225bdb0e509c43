// A CUDA driver without a GPU, for tests: libcuda.so.1 as the program loads it. Memory of the
// device is host memory and kernels run as host code (support/emulated_kernels.h), so that the real
// program computes real answers through the real driver code. And it fails when asked to.
//
// FAKE_GPU, a list like "launch=120:700,memory=256":
//   init=CODE           cuInit fails
//   devices=N           how many there are (1)
//   compute=75          compute capability times ten (90)
//   memory=MIB          of the device (512)
//   taken=MIB           of it, held by somebody else (0)
//   integrated=1        memory is the system's too
//   alloc=N             the N-th and every later cuMemAlloc finds no memory
//   pinned=N            the same for cuMemAllocHost
//   launch=N:CODE       the N-th kernel does not run, and CODE is what every later call says
//   read=N:CODE         the same for the N-th copy to the device on another stream than the first,
//                       which is to say by a reader of the weights
//   after=FILE          launches are counted from when there is such a file
//   count=FILE          writes at the process's end how often it was asked for what
//
// Stricter than a device: copies from or to host memory that is not pinned, outside of what was
// allocated, or without a current context are errors.
#include "fake_gpu/gpu.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

using namespace spk;
using namespace spk::fake;

namespace {

// "spk::gpu::add_rows<0>" of "void spk::gpu::add_rows<0>(spk::gpu::AddArgs)".
std::string expression_of(const char* lowered) {
  int status = 0;
  char* const whole = abi::__cxa_demangle(lowered, nullptr, nullptr, &status);
  std::string text = whole ? whole : "";
  std::free(whole);
  const size_t blank = text.find(' '), bracket = text.rfind('(');
  if (blank == std::string::npos || bracket == std::string::npos || bracket < blank) return "";
  return text.substr(blank + 1, bracket - blank - 1);
}

}  // namespace

extern "C" {
#define SPK_DRIVER __attribute__((visibility("default")))

SPK_DRIVER CuResult cuInit(unsigned) {
  Gpu& g = gpu();
  const std::lock_guard lock(g.mutex);
  if (const long code = g.orders.number("init"); code != 0) return static_cast<CuResult>(code);
  if (g.orders.number("devices") == 0) return kNoDevice;
  g.ready = true;
  return kOk;
}
SPK_DRIVER CuResult cuDriverGetVersion(int* version) {
  *version = 13000;
  return kOk;
}
// NVRTC looks for a cache of the driver's in one of these. A table begins with its size: this one
// has nothing in it.
SPK_DRIVER CuResult cuGetExportTable(const void** table, const void*) {
  static const size_t size = sizeof size;
  *table = &size;
  return kOk;
}
SPK_DRIVER CuResult cuGetErrorName(CuResult result, const char** name) {
  const Named* const known = find_error(result);
  if (known == nullptr) return kInvalidValue;
  *name = known->name;
  return kOk;
}
SPK_DRIVER CuResult cuGetErrorString(CuResult result, const char** text) {
  const Named* const known = find_error(result);
  if (known == nullptr) return kInvalidValue;
  *text = known->text;
  return kOk;
}
SPK_DRIVER CuResult cuDeviceGetCount(int* count) {
  *count = static_cast<int>(gpu().orders.number("devices"));
  return gpu().ready ? kOk : kNotInitialised;
}
SPK_DRIVER CuResult cuDeviceGet(CuDevice* device, int ordinal) {
  if (ordinal < 0 || ordinal >= gpu().orders.number("devices")) return kInvalidDevice;
  *device = ordinal;
  return kOk;
}
SPK_DRIVER CuResult cuDeviceGetName(char* name, int length, CuDevice) {
  std::snprintf(name, static_cast<size_t>(length), "Fake GPU");
  return kOk;
}
SPK_DRIVER CuResult cuDeviceGetAttribute(int* value, int attribute, CuDevice) {
  const long compute = gpu().orders.number("compute");
  switch (attribute) {
    case cuda::kMultiprocessors:
      *value = 1;
      return kOk;
    case cuda::kIntegrated:
      *value = static_cast<int>(gpu().orders.number("integrated"));
      return kOk;
    case cuda::kComputeMajor:
      *value = static_cast<int>(compute / 10);
      return kOk;
    case cuda::kComputeMinor:
      *value = static_cast<int>(compute % 10);
      return kOk;
    case cuda::kL2Bytes:
      *value = 1 << 16;
      return kOk;
    case cuda::kSharedPerBlockOptin:
      *value = 227 << 10;
      return kOk;
    default:
      return kInvalidValue;
  }
}
SPK_DRIVER CuResult cuDeviceTotalMem_v2(size_t* bytes, CuDevice) {
  *bytes = gpu().orders.mib("memory");
  return kOk;
}

SPK_DRIVER CuResult cuDevicePrimaryCtxRetain(CuContext* context, CuDevice) {
  Gpu& g = gpu();
  const std::lock_guard lock(g.mutex);
  if (!g.ready) return kNotInitialised;
  if (g.broken != kOk) return g.broken;
  ++g.contexts;
  *context = the_context();
  return kOk;
}
SPK_DRIVER CuResult cuDevicePrimaryCtxRelease_v2(CuDevice) {
  Gpu& g = gpu();
  const std::lock_guard lock(g.mutex);
  if (g.contexts == 0) return kInvalidContext;
  --g.contexts;
  return g.broken;
}
SPK_DRIVER CuResult cuCtxSetCurrent(CuContext context) {
  Gpu& g = gpu();
  const std::lock_guard lock(g.mutex);
  enter(context);
  return g.broken;
}
SPK_DRIVER CuResult cuMemGetInfo_v2(size_t* free, size_t* total) {
  const Call call;
  if (call.bad()) return call.result();
  Gpu& g = gpu();
  *total = g.orders.mib("memory");
  const size_t gone = g.used + g.orders.mib("taken");
  *free = *total > gone ? *total - gone : 0;
  return kOk;
}

SPK_DRIVER CuResult cuMemAlloc_v2(DevicePointer* pointer, size_t bytes) {
  const Call call;
  if (call.bad()) return call.result();
  Gpu& g = gpu();
  ++g.allocations;
  const long from = g.orders.number("alloc");
  size_t free = 0, total = 0;
  cuMemGetInfo_v2(&free, &total);
  if (bytes == 0) return kInvalidValue;
  if ((from > 0 && g.allocations >= from) || bytes > free) return kOutOfMemory;
  void* const memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (!memory) return kOutOfMemory;
  std::memset(memory, 0xff, bytes);  // what was there before is no number
  *pointer = reinterpret_cast<DevicePointer>(memory);
  g.device[*pointer] = bytes;
  g.used += bytes;
  return kOk;
}
SPK_DRIVER CuResult cuMemFree_v2(DevicePointer pointer) {
  const Call call;
  Gpu& g = gpu();
  const auto found = g.device.find(pointer);
  if (found == g.device.end()) return kInvalidValue;
  g.used -= found->second;
  g.device.erase(found);
  std::free(host_of(pointer));
  return call.result();
}
SPK_DRIVER CuResult cuMemAllocHost_v2(void** pointer, size_t bytes) {
  const Call call;
  if (call.bad()) return call.result();
  Gpu& g = gpu();
  const long from = g.orders.number("pinned");
  if (from > 0 && ++g.pinned_allocations >= from) return kOutOfMemory;
  void* const memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (!memory) return kOutOfMemory;
  g.pinned[static_cast<char*>(memory)] = bytes;
  *pointer = memory;
  return kOk;
}
SPK_DRIVER CuResult cuMemFreeHost(void* pointer) {
  const Call call;
  if (gpu().pinned.erase(static_cast<char*>(pointer)) == 0) return kInvalidValue;
  std::free(pointer);
  return call.result();
}

SPK_DRIVER CuResult cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, size_t bytes,
                                         CuStream stream) {
  const Call call;
  if (call.bad()) return call.result();
  if (const CuResult lost = count_read(stream); lost != kOk) return lost;
  if (!on_device(to, bytes) || !is_pinned(from, bytes)) return kInvalidValue;
  std::memcpy(host_of(to), from, bytes);
  return kOk;
}
SPK_DRIVER CuResult cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, size_t bytes, CuStream) {
  const Call call;
  if (call.bad()) return call.result();
  if (!on_device(from, bytes) || !is_pinned(to, bytes)) return kInvalidValue;
  std::memcpy(to, host_of(from), bytes);
  return kOk;
}
SPK_DRIVER CuResult cuMemcpy2DAsync_v2(const CuCopy2D* copy, CuStream stream) {
  const Call call;
  if (call.bad()) return call.result();
  if (copy->source_kind == kHost && copy->target_kind == kDevice) {
    if (const CuResult lost = count_read(stream); lost != kOk) return lost;
  }
  Work work;
  work.copy = *copy;
  return give(stream, std::move(work));
}
SPK_DRIVER CuResult cuMemsetD8Async(DevicePointer to, unsigned char value, size_t bytes, CuStream) {
  const Call call;
  if (call.bad()) return call.result();
  if (!on_device(to, bytes)) return kInvalidValue;
  std::memset(host_of(to), value, bytes);
  return kOk;
}

SPK_DRIVER CuResult cuStreamCreate(CuStream* stream, unsigned) {
  const Call call;
  if (call.bad()) return call.result();
  auto& streams = gpu().streams;
  streams.push_back(std::make_unique<Stream>(Stream{streams.empty(), false, {}}));
  *stream = reinterpret_cast<CuStream>(streams.back().get());
  return kOk;
}
SPK_DRIVER CuResult cuStreamDestroy_v2(CuStream) { return Call().result(); }
SPK_DRIVER CuResult cuStreamSynchronize(CuStream) { return Call().result(); }
SPK_DRIVER CuResult cuEventCreate(CuEvent* event, unsigned) {
  static char object;
  *event = reinterpret_cast<CuEvent>(&object);
  return Call().result();
}
SPK_DRIVER CuResult cuEventDestroy_v2(CuEvent) { return Call().result(); }
SPK_DRIVER CuResult cuEventRecord(CuEvent, CuStream) { return Call().result(); }
SPK_DRIVER CuResult cuEventSynchronize(CuEvent) { return Call().result(); }
SPK_DRIVER CuResult cuEventElapsedTime(float* milliseconds, CuEvent, CuEvent) {
  *milliseconds = 0;
  return Call().result();
}

SPK_DRIVER CuResult cuModuleLoadData(CuModule* module, const void* image) {
  const Call call;
  if (call.bad()) return call.result();
  if (std::memcmp(image,
                  "\x7f"
                  "ELF",
                  4) != 0)
    return kInvalidImage;
  static char object;
  ++gpu().modules;
  *module = reinterpret_cast<CuModule>(&object);
  return kOk;
}
SPK_DRIVER CuResult cuModuleUnload(CuModule) { return Call().result(); }
SPK_DRIVER CuResult cuModuleGetFunction(CuFunction* function, CuModule, const char* name) {
  const Call call;
  if (call.bad()) return call.result();
  const test::EmulatedKernel* const kernel = test::find_emulated(expression_of(name));
  if (kernel == nullptr) {
    std::fprintf(stderr, "fake GPU: expected a kernel of emulated_kernels.cc, found %s\n", name);
    return kNotFound;
  }
  auto& functions = gpu().functions;
  functions.push_back(std::make_unique<Function>(Function{kernel}));
  *function = reinterpret_cast<CuFunction>(functions.back().get());
  return kOk;
}
SPK_DRIVER CuResult cuFuncSetAttribute(CuFunction, int attribute, int value) {
  const Call call;
  if (call.bad()) return call.result();
  return attribute == cuda::kMaxDynamicShared && value <= 227 << 10 ? kOk : kInvalidValue;
}
SPK_DRIVER CuResult cuLaunchKernelEx(const Launch* how, CuFunction function, void** arguments,
                                     void**) {
  const Call call;
  return call.bad() ? call.result() : launch(function, *how, arguments);
}

SPK_DRIVER CuResult cuStreamBeginCapture_v2(CuStream stream, int) {
  const Call call;
  if (call.bad()) return call.result();
  Stream& s = *reinterpret_cast<Stream*>(stream);
  if (s.captured) return kInvalidValue;
  s.captured = true;
  return kOk;
}
SPK_DRIVER CuResult cuStreamEndCapture(CuStream stream, Graph** graph) {
  const Call call;
  Stream& s = *reinterpret_cast<Stream*>(stream);
  if (!s.captured) return kInvalidValue;
  s.captured = false;
  *graph = new Graph(std::move(s.graph));
  s.graph = {};
  return call.result();
}
SPK_DRIVER CuResult cuGraphInstantiateWithFlags(Graph** exec, Graph* graph, unsigned long long) {
  const Call call;
  if (call.bad()) return call.result();
  *exec = new Graph(*graph);
  return kOk;
}
SPK_DRIVER CuResult cuGraphLaunch(Graph* exec, CuStream) {
  const Call call;
  if (call.bad()) return call.result();
  ++gpu().graphs;
  for (const Work& work : *exec)
    if (const CuResult result = run(work); result != kOk) return result;
  return kOk;
}
SPK_DRIVER CuResult cuGraphDestroy(Graph* graph) {
  delete graph;
  return Call().result();
}
SPK_DRIVER CuResult cuGraphExecDestroy(Graph* exec) {
  delete exec;
  return Call().result();
}

}  // extern "C"
