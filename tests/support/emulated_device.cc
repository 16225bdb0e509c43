#include "support/emulated_device.h"

#include "backend/cuda/cuda.h"
#include "backend/device_tools.h"
#include "base/direct_file.h"
#include "base/error.h"
#include "support/emulated_kernels.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <unordered_map>

namespace spk::test {
namespace {

class EmulatedDevice final : public cuda::Device {
 public:
  EmulatedDevice(bool backward, size_t most, int multiprocessors)
      : backward_(backward), most_(most) {
    info_.name = backward ? "emulated, backward" : "emulated";
    info_.arch = "host";
    info_.multiprocessors = multiprocessors;
    info_.l2 = 1 << 12;
    info_.shared = 227 << 10;
    info_.overlaps = true;
    info_.memory = size_t{1} << 33;
  }
  const cuda::DeviceInfo& info() const override { return info_; }
  std::string description() const override { return info_.name; }
  size_t free_memory() const override { return size_t{64} << 20; }  // keeps arena chunks small

  cuda::DevicePointer alloc(size_t bytes, std::string_view label) override {
    if (most_ != 0 && used_ + bytes > most_)
      fail_resource("out of device memory: ", label, " needs ", bytes, " bytes, ", most_ - used_,
                    " are free on ", info_.name);
    void* memory = std::aligned_alloc(256, (std::max<size_t>(bytes, 1) + 255) / 256 * 256);
    SPK_CHECK(memory != nullptr);
    std::memset(memory, 0, bytes);
    memory_.emplace(memory, Block{{memory, &std::free}, bytes});
    used_ += bytes;
    return reinterpret_cast<cuda::DevicePointer>(memory);
  }
  void free(cuda::DevicePointer p) override {
    const auto found = memory_.find(reinterpret_cast<void*>(p));
    SPK_CHECK(found != memory_.end());
    used_ -= found->second.bytes;
    memory_.erase(found);
  }
  void upload(cuda::DevicePointer to, const void* from, const cuda::CopyShape& s) override {
    copy_rows(reinterpret_cast<char*>(to), static_cast<const char*>(from), s);
  }
  // Small readings, so that tests see tensors that are cut and ones that are read together.
  void upload_late(std::span<const cuda::LateUpload> uploads, UploadSource& source) override {
    constexpr size_t kMost = size_t{48} << 10;
    std::vector<std::byte> memory(DirectFile::room(kMost) + DirectFile::kAlign);
    const size_t before = reinterpret_cast<uintptr_t>(memory.data()) % DirectFile::kAlign;
    std::byte* buffer = memory.data() + (DirectFile::kAlign - before);
    for (const cuda::Reading& reading : cuda::plan_readings(uploads, source, kMost)) {
      const std::byte* found = source.read(reading.data, reading.bytes, buffer);
      for (const cuda::Slice& slice : reading.slices) {
        const cuda::LateUpload& u = uploads[slice.upload];
        StoredBytes part = u.part;
        part.data += slice.offset;
        part.bytes = slice.bytes;
        const std::byte* from = found + (part.data - reading.data);
        source.arrived(part, from);
        copy_rows(reinterpret_cast<char*>(cuda::target_of(u, slice)),
                  reinterpret_cast<const char*>(from), cuda::shape_of(u, slice));
      }
    }
  }
  void download(void* to, cuda::DevicePointer from, const cuda::CopyShape& s) override {
    copy_rows(static_cast<char*>(to), reinterpret_cast<const char*>(from), s);
  }
  void copy(cuda::DevicePointer to, cuda::DevicePointer from, const cuda::CopyShape& s) override {
    copy_rows(reinterpret_cast<char*>(to), reinterpret_cast<const char*>(from), s);
  }
  void zero(cuda::DevicePointer to, size_t bytes) override {
    std::memset(reinterpret_cast<void*>(to), 0, bytes);
  }
  void prepare_kernels(std::span<const cuda::KernelSpec>) override {}
  cuda::KernelId kernel(const cuda::KernelSpec& spec) override {
    const EmulatedKernel* const found = find_emulated(spec.expression);
    if (found == nullptr)
      fail_resource("emulated device: expected a kernel of emulated_kernels.cc, found ",
                    spec.expression);
    loaded_.push_back(found);
    return static_cast<cuda::KernelId>(loaded_.size()) - 1;
  }
  void launch(cuda::KernelId kernel, const cuda::Grid& grid, int threads, const void* arguments,
              size_t) override {
    run_emulated(*loaded_.at(static_cast<size_t>(kernel)),
                 {static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y),
                  static_cast<unsigned>(grid.z), static_cast<unsigned>(grid.shared)},
                 static_cast<unsigned>(threads), backward_, arguments);
  }
  void synchronize() override {}

 private:
  struct Block {
    std::unique_ptr<void, decltype(&std::free)> memory;
    size_t bytes = 0;
  };
  static void copy_rows(char* to, const char* from, const cuda::CopyShape& s) {
    for (size_t r = 0; r < s.height; ++r)
      std::memcpy(to + r * s.to_pitch, from + r * s.from_pitch, s.width);
  }

  bool backward_;
  size_t most_;
  size_t used_ = 0;
  cuda::DeviceInfo info_;
  std::unordered_map<void*, Block> memory_;
  std::vector<const EmulatedKernel*> loaded_;
};

}  // namespace

std::unique_ptr<cuda::Device> make_emulated_device(bool backward, size_t most,
                                                   int multiprocessors) {
  return std::make_unique<EmulatedDevice>(backward, most, multiprocessors);
}

std::unique_ptr<cuda::Device> make_tested_device(bool backward) {
  if (std::getenv("SPARKLING_TEST_GPU")) return cuda::make_driver_device(0, true);
  return make_emulated_device(backward);
}

std::unique_ptr<Backend> make_emulated_backend(bool backward, const BackendOptions& options,
                                               int multiprocessors) {
  return std::make_unique<cuda::CudaBackend>(
      make_emulated_device(backward, static_cast<size_t>(options.memory), multiprocessors),
      options);
}

std::vector<std::unique_ptr<Backend>> make_tested_cuda_backends(const BackendOptions& options,
                                                                int multiprocessors) {
  std::vector<std::unique_ptr<Backend>> backends;
  if (std::getenv("SPARKLING_TEST_GPU")) {
    backends.push_back(make_cuda_backend(options));
    return backends;
  }
  for (const bool backward : {false, true}) {
    if (backward && std::getenv("SPARKLING_SHORT")) break;  // sanitizers look for other faults
    backends.push_back(make_emulated_backend(backward, options, multiprocessors));
  }
  return backends;
}

bool emulates_briefly() {
  if (std::getenv("SPARKLING_SHORT")) return true;
  return !std::getenv("SPARKLING_TEST_GPU") && !std::getenv("SPARKLING_LONG_EMULATION");
}

}  // namespace spk::test
