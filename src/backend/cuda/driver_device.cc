// A GPU behind the CUDA driver: one context, one stream, pinned staging buffers, kernels from the
// cache. Driver allocations happen through alloc() and at start only.
#include "backend/cuda/catalog.h"
#include "backend/cuda/device.h"
#include "backend/cuda/driver_upload.h"
#include "backend/cuda/kernel_cache.h"
#include "backend/cuda/launch_graphs.h"
#include "base/error.h"
#include "base/threads.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <unordered_map>

namespace spk::cuda {
namespace {

// Two halves, so that one is filled while the other is copied. 16 MiB take 0.3 ms on a 55 GB/s
// link, far above the 10 us that starting a copy costs.
constexpr size_t kStaging = size_t{16} << 20;

class DriverDevice final : public Device {
 public:
  DriverDevice(int ordinal, bool graphs)
      : d_(driver()), info_(device_info(ordinal)), cache_(make_cache()) {
    CuDevice device = 0;
    check(d_.device(&device, ordinal), "cuDeviceGet");
    check(d_.context_retain(&context_, device), "cuDevicePrimaryCtxRetain");
    device_ = device;
    current_ = nullptr;  // an earlier context may have had the same address
    enter();
    constexpr unsigned kNonBlocking = 1;
    check(d_.stream_create(&stream_, kNonBlocking), "cuStreamCreate");
    constexpr unsigned kNoTiming = 2;
    launches_.emplace(d_, stream_, graphs, graphs && info_.overlaps);
    for (Staging& s : staging_) {
      check(d_.host_alloc(&s.memory, kStaging), "cuMemAllocHost");
      check(d_.event_create(&s.done, kNoTiming), "cuEventCreate");
    }
  }
  DriverDevice(const DriverDevice&) = delete;
  DriverDevice& operator=(const DriverDevice&) = delete;
  // Results are not looked at: after a device error every call fails, and the process is about to
  // end.
  ~DriverDevice() override {
    if (!context_) return;
    d_.context_set(context_);
    if (stream_) d_.stream_synchronize(stream_);
    launches_.reset();
    for (Staging& s : staging_) {
      if (s.done) d_.event_destroy(s.done);
      if (s.memory) d_.host_free(s.memory);
    }
    for (const DevicePointer p : memory_) d_.memory_free(p);
    for (const CuModule m : modules_) d_.module_unload(m);
    if (stream_) d_.stream_destroy(stream_);
    d_.context_release(device_);
  }

  const DeviceInfo& info() const override { return info_; }
  std::string description() const override {
    return cat(info_.name, ", ", info_.arch, ", ", info_.multiprocessors,
               " multiprocessors, driver ", info_.driver_version / 1000, ".",
               info_.driver_version % 1000 / 10, ", NVRTC ", nvrtc_version());
  }
  size_t free_memory() const override {
    enter();
    size_t free = 0, total = 0;
    check(d_.memory_info(&free, &total), "cuMemGetInfo");
    return free;
  }

  DevicePointer alloc(size_t bytes, std::string_view label) override {
    enter();
    DevicePointer p = 0;
    const CuResult result = d_.memory_alloc(&p, std::max<size_t>(bytes, 1));
    constexpr CuResult kOutOfMemory = 2;
    if (result == kOutOfMemory)
      fail_resource("out of device memory: ", label, " needs ", bytes, " bytes, ", free_memory(),
                    " are free on ", info_.name);
    check(result, "cuMemAlloc");
    memory_.push_back(p);
    zero(p, bytes);
    return p;
  }
  void free(DevicePointer p) override {
    enter();
    synchronize();
    check(d_.memory_free(p), "cuMemFree");
    memory_.erase(std::find(memory_.begin(), memory_.end(), p));
  }

  void upload(DevicePointer to, const void* from, const CopyShape& shape) override {
    enter();
    launches_->flush();
    each_piece(shape, [&](size_t row, size_t rows, size_t column, size_t width) {
      Staging& s = next_staging();
      const char* source = static_cast<const char*>(from) + row * shape.from_pitch + column;
      for (size_t r = 0; r < rows; ++r)
        std::memcpy(static_cast<char*>(s.memory) + r * width, source + r * shape.from_pitch, width);
      const DevicePointer target = to + row * shape.to_pitch + column;
      if (rows == 1) {
        check(d_.copy_to_device(target, s.memory, width, stream_), "cuMemcpyHtoDAsync");
      } else {
        CuCopy2D c;
        c.source_kind = kHostSide;
        c.source_host = s.memory;
        c.source_pitch = width;
        c.target_kind = kDeviceSide;
        c.target_device = target;
        c.target_pitch = shape.to_pitch;
        c.width = width;
        c.height = rows;
        check(d_.copy_2d(&c, stream_), "cuMemcpy2DAsync");
      }
      check(d_.event_record(s.done, stream_), "cuEventRecord");
      s.busy = true;
    });
  }
  void upload_late(std::span<const LateUpload> uploads, UploadSource& source) override {
    synchronize();  // the arena's zeros were written on this stream
    cuda::upload_late(d_, context_, uploads, source);
    enter();
  }
  void download(void* to, DevicePointer from, const CopyShape& shape) override {
    enter();
    launches_->flush();
    each_piece(shape, [&](size_t row, size_t rows, size_t column, size_t width) {
      Staging& s = next_staging();
      CuCopy2D c;
      c.source_kind = kDeviceSide;
      c.source_device = from + row * shape.from_pitch + column;
      c.source_pitch = shape.from_pitch;
      c.target_kind = kHostSide;
      c.target_host = s.memory;
      c.target_pitch = width;
      c.width = width;
      c.height = rows;
      if (rows == 1) {
        check(d_.copy_to_host(s.memory, c.source_device, width, stream_), "cuMemcpyDtoHAsync");
      } else {
        check(d_.copy_2d(&c, stream_), "cuMemcpy2DAsync");
      }
      synchronize();
      char* target = static_cast<char*>(to) + row * shape.to_pitch + column;
      for (size_t r = 0; r < rows; ++r)
        std::memcpy(target + r * shape.to_pitch, static_cast<char*>(s.memory) + r * width, width);
    });
  }
  void copy(DevicePointer to, DevicePointer from, const CopyShape& shape) override {
    enter();
    CuCopy2D c;
    c.source_kind = c.target_kind = kDeviceSide;
    c.source_device = from;
    c.source_pitch = shape.from_pitch;
    c.target_device = to;
    c.target_pitch = shape.to_pitch;
    c.width = shape.width;
    c.height = shape.height;
    launches_->add(c);
  }
  void zero(DevicePointer to, size_t bytes) override {
    if (bytes == 0) return;
    enter();
    launches_->flush();
    check(d_.fill_bytes(to, 0, bytes, stream_), "cuMemsetD8Async");
  }

  void prepare_kernels(std::span<const KernelSpec> specs) override {
    cache_.compile_missing(specs, info_.arch, physical_cores(), own_program());
    for (const KernelSpec& spec : specs) kernel(spec);
  }
  KernelId kernel(const KernelSpec& spec) override {
    const auto found = ids_.find(spec.expression);
    if (found != ids_.end()) return found->second;
    enter();
    const Kernel made = cache_.get(spec, info_.arch);
    CuModule module = nullptr;
    check(d_.module_load(&module, made.cubin.data()), "cuModuleLoadData");
    modules_.push_back(module);
    CuFunction function = nullptr;
    check(d_.module_function(&function, module, made.lowered.c_str()), "cuModuleGetFunction");
    functions_.push_back(function);
    const auto id = static_cast<KernelId>(functions_.size()) - 1;
    ids_.emplace(spec.expression, id);
    return id;
  }
  void launch(KernelId kernel, const Grid& grid, int threads, const void* arguments,
              size_t bytes) override {
    enter();
    const CuFunction function = functions_.at(static_cast<size_t>(kernel));
    if (grid.shared > 0 && asked_shared_[function] < grid.shared) {
      check(d_.function_attribute(function, kMaxDynamicShared, static_cast<int>(grid.shared)),
            "cuFuncSetAttribute");
      asked_shared_[function] = grid.shared;
    }
    launches_->add(function, grid, threads, arguments, bytes);
  }
  void synchronize() override {
    enter();
    launches_->flush();
    check(d_.stream_synchronize(stream_), "cuStreamSynchronize");
  }
  std::vector<std::string> notes() const override { return cache_.warnings(); }

 private:
  static constexpr int kHostSide = 1, kDeviceSide = 2;
  struct Staging {
    void* memory = nullptr;
    CuEvent done = nullptr;
    bool busy = false;
  };

  static KernelCache make_cache() {
    return KernelCache(KernelCache::default_folder(), kernel_sources(), agreement_checks());
  }

  // The context belongs to the thread that calls.
  void enter() const {
    if (current_ == context_) return;
    check(d_.context_set(context_), "cuCtxSetCurrent");
    current_ = context_;
  }

  Staging& next_staging() {
    which_ = 1 - which_;
    Staging& s = staging_[static_cast<size_t>(which_)];
    if (s.busy) check(d_.event_synchronize(s.done), "cuEventSynchronize");
    s.busy = false;
    return s;
  }

  // Pieces that fit a staging buffer: whole rows, or parts of one long row.
  template <typename F>
  static void each_piece(const CopyShape& shape, F&& piece) {
    if (shape.width == 0 || shape.height == 0) return;
    const bool whole =
        shape.height == 1 || (shape.width == shape.to_pitch && shape.width == shape.from_pitch);
    const size_t width = whole ? shape.width * shape.height : shape.width;
    const size_t height = whole ? 1 : shape.height;
    if (width > kStaging || height == 1) {
      for (size_t r = 0; r < height; ++r)
        for (size_t at = 0; at < width; at += kStaging)
          piece(r, size_t{1}, at, std::min(kStaging, width - at));
      return;
    }
    const size_t rows = kStaging / width;
    for (size_t r = 0; r < height; r += rows)
      piece(r, std::min(rows, height - r), size_t{0}, width);
  }

  static thread_local CuContext current_;

  const Driver& d_;
  DeviceInfo info_;
  KernelCache cache_;
  CuDevice device_ = 0;
  CuContext context_ = nullptr;
  CuStream stream_ = nullptr;
  std::optional<LaunchGraphs> launches_;
  std::array<Staging, 2> staging_;
  int which_ = 0;
  std::vector<DevicePointer> memory_;
  std::vector<CuModule> modules_;
  std::vector<CuFunction> functions_;
  std::unordered_map<std::string, KernelId> ids_;
  std::unordered_map<CuFunction, int64_t> asked_shared_;
};

thread_local CuContext DriverDevice::current_ = nullptr;

}  // namespace

std::unique_ptr<Device> make_driver_device(int ordinal, bool graphs) {
  return std::make_unique<DriverDevice>(ordinal, graphs);
}

}  // namespace spk::cuda
