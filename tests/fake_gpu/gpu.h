// What the fake driver (driver.cc) knows: its orders, its memory, what streams were given.
#pragma once

#include "backend/cuda/driver.h"
#include "support/emulated_kernels.h"

#include <cstddef>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace spk::fake {

using cuda::CuContext;
using cuda::CuCopy2D;
using cuda::CuDevice;
using cuda::CuEvent;
using cuda::CuFunction;
using cuda::CuModule;
using cuda::CuResult;
using cuda::CuStream;
using cuda::DevicePointer;

enum Code : CuResult {
  kOk = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialised = 3,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNotFound = 500,
  kLaunchFailed = 719,
};

struct Named {
  CuResult code;
  const char *name, *text;
};
const Named* find_error(CuResult code);  // null: the driver knows no such error

constexpr size_t kMiB = size_t{1} << 20;
constexpr int kHost = 1, kDevice = 2;  // sides of a copy

// FAKE_GPU, as driver.cc describes it. An order that it does not know ends the process.
struct Orders {
  Orders();
  // The N of "N" and of "N:CODE".
  long number(const char* key) const { return std::atol(values.at(key).c_str()); }
  size_t mib(const char* key) const { return static_cast<size_t>(number(key)) * kMiB; }
  CuResult code(const char* key) const;
  std::map<std::string, std::string> values;
};

struct Function {
  const test::EmulatedKernel* kernel = nullptr;
};
// cuLaunchKernelEx's.
struct Launch {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  CuStream stream;
  const void* attributes;
  unsigned attribute_count;
};
// What a stream was given, with its own copy of the arguments; no function: a copy.
struct Work {
  const Function* function = nullptr;
  test::EmulatedGrid grid;
  unsigned threads = 0;
  std::vector<char> arguments;
  CuCopy2D copy;
};
using Graph = std::vector<Work>;
struct Stream {
  bool first = false;
  bool captured = false;
  Graph graph;
};

// All that there is; one lock for it, as the readers are threads.
struct Gpu {
  const Orders orders;
  std::recursive_mutex mutex;
  bool ready = false;
  int contexts = 0;
  CuResult broken = kOk;  // sticky
  std::map<DevicePointer, size_t> device;
  std::map<const char*, size_t> pinned;
  size_t used = 0;
  long allocations = 0, pinned_allocations = 0, launches = 0, reads = 0, graphs = 0, modules = 0;
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<Function>> functions;

  ~Gpu();  // writes what was counted
};
Gpu& gpu();

// What every call asks first: whether the driver runs, the device is well and the thread has a
// context. Holds the lock while it lives.
class Call {
 public:
  Call();
  CuResult result() const { return result_; }
  bool bad() const { return result_ != kOk; }

 private:
  std::unique_lock<std::recursive_mutex> lock_;
  CuResult result_ = kOk;
};
CuContext the_context();
void enter(CuContext context);  // of the calling thread

// All under the lock of a Call.
bool on_device(DevicePointer at, size_t bytes);
bool is_pinned(const void* at, size_t bytes);
inline char* host_of(DevicePointer at) { return cuda::pointer_to<char>(at); }
CuResult count_read(CuStream stream);  // a copy to the device, perhaps by a reader
CuResult give(CuStream stream, Work work);
CuResult launch(CuFunction function, const Launch& launch, void** arguments);
CuResult run(const Work& work);

}  // namespace spk::fake
