#include "fake_gpu/gpu.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <utility>

namespace spk::fake {
namespace {

constexpr Named kNames[] = {
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kNotInitialised, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {kNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "system has unsupported display driver / cuda driver combination"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

char context_object;
thread_local bool has_context = false;

template <typename Key>
bool inside(const std::map<Key, size_t>& blocks, Key at, size_t bytes) {
  auto next = blocks.upper_bound(at);
  if (next == blocks.begin()) return false;
  --next;
  return at >= next->first && static_cast<size_t>(at - next->first) + bytes <= next->second;
}

bool is_last(long& counter, const char* order) {
  ++counter;
  return gpu().orders.number(order) == counter;
}

CuResult copy_rows(const CuCopy2D& c) {
  if (c.width > c.source_pitch || c.width > c.target_pitch) return kInvalidValue;
  for (size_t r = 0; r < c.height; ++r) {
    const char* const from = c.source_kind == kHost
                                 ? static_cast<const char*>(c.source_host) + r * c.source_pitch
                                 : host_of(c.source_device + r * c.source_pitch);
    char* const to = c.target_kind == kHost ? static_cast<char*>(c.target_host) + r * c.target_pitch
                                            : host_of(c.target_device + r * c.target_pitch);
    const bool good =
        (c.source_kind == kHost ? is_pinned(from, c.width)
                                : on_device(reinterpret_cast<DevicePointer>(from), c.width)) &&
        (c.target_kind == kHost ? is_pinned(to, c.width)
                                : on_device(reinterpret_cast<DevicePointer>(to), c.width));
    if (!good) return kInvalidValue;
    std::memmove(to, from, c.width);
  }
  return kOk;
}

}  // namespace

const Named* find_error(CuResult code) {
  const Named* const found = std::find_if(std::begin(kNames), std::end(kNames),
                                          [&](const Named& n) { return n.code == code; });
  return found == std::end(kNames) ? nullptr : found;
}

Orders::Orders() {
  values = {
      {"init", "0"},   {"devices", "1"},    {"compute", "90"}, {"memory", "512"},
      {"taken", "0"},  {"integrated", "0"}, {"alloc", "0"},    {"pinned", "0"},
      {"launch", "0"}, {"read", "0"},       {"count", ""},     {"after", ""},
  };
  const char* set = std::getenv("FAKE_GPU");
  std::string text = set ? set : "";
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, end - at);
    const size_t equals = std::min(item.find('='), item.size());
    const std::string key = item.substr(0, equals);
    if (equals == item.size() || values.count(key) == 0) {
      std::fprintf(stderr, "FAKE_GPU: what is %s?\n", item.c_str());
      std::abort();
    }
    values[key] = item.substr(equals + 1);
    at = end + 1;
  }
}

CuResult Orders::code(const char* key) const {
  const std::string& value = values.at(key);
  const size_t colon = value.find(':');
  return colon == std::string::npos ? kOk : std::atoi(value.c_str() + colon + 1);
}

Gpu& gpu() {
  static Gpu g;
  return g;
}

Gpu::~Gpu() {
  const std::string& file = orders.values.at("count");
  if (file.empty()) return;
  std::ofstream(file) << "{\"allocations\": " << allocations << ", \"launches\": " << launches
                      << ", \"reads\": " << reads << ", \"graphs\": " << graphs
                      << ", \"modules\": " << modules << ", \"still\": " << device.size() << "}\n";
}

Call::Call() : lock_(gpu().mutex) {
  const Gpu& g = gpu();
  result_ = !g.ready                          ? kNotInitialised
            : g.broken != kOk                 ? g.broken
            : g.contexts == 0 || !has_context ? kInvalidContext
                                              : kOk;
}
CuContext the_context() { return reinterpret_cast<CuContext>(&context_object); }
void enter(CuContext context) { has_context = context == the_context(); }

bool on_device(DevicePointer at, size_t bytes) { return inside(gpu().device, at, bytes); }
bool is_pinned(const void* at, size_t bytes) {
  return inside(gpu().pinned, static_cast<const char*>(at), bytes);
}

// A copy to the device on a stream of a reader may be the one that loses it.
CuResult count_read(CuStream stream) {
  Gpu& g = gpu();
  if (reinterpret_cast<const Stream*>(stream)->first) return kOk;
  if (is_last(g.reads, "read")) g.broken = g.orders.code("read");
  return g.broken;
}

CuResult run(const Work& work) {
  Gpu& g = gpu();
  if (g.broken != kOk) return g.broken;
  if (work.function == nullptr) return copy_rows(work.copy);
  // As on a device: what went wrong is heard of later.
  const std::string& after = g.orders.values.at("after");
  const bool counts = after.empty() || access(after.c_str(), F_OK) == 0;
  if (counts && is_last(g.launches, "launch")) {
    g.broken = g.orders.code("launch");
    return kOk;
  }
  try {
    test::run_emulated(*work.function->kernel, work.grid, work.threads, false,
                       work.arguments.data());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fake GPU: %s\n", error.what());
    return g.broken = kLaunchFailed;
  }
  return kOk;
}

CuResult give(CuStream stream, Work work) {
  Stream& s = *reinterpret_cast<Stream*>(stream);
  if (!s.captured) return run(work);
  s.graph.push_back(std::move(work));
  return kOk;
}

CuResult launch(CuFunction function, const Launch& launch, void** arguments) {
  if (launch.block[1] != 1 || launch.block[2] != 1) return kInvalidValue;
  Work work;
  work.function = reinterpret_cast<const Function*>(function);
  work.grid = {launch.grid[0], launch.grid[1], launch.grid[2], launch.shared_bytes};
  work.threads = launch.block[0];
  const auto* const from = static_cast<const char*>(arguments[0]);
  work.arguments.assign(from, from + work.function->kernel->argument_bytes);
  return give(launch.stream, std::move(work));
}

}  // namespace spk::fake
