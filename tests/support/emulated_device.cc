#include "support/emulated_device.h"

#include "backend/cuda/cuda.h"
#include "backend/device_tools.h"
#include "base/direct_file.h"
#include "base/error.h"
#include "support/emulator.h"

// The kernels themselves, as host code. (CMakeLists.txt leaves out the warning about #pragma
// unroll, which no pragma of GCC's can.)
#include "kernels/kda_chunk.cuh"
#include "kernels/matmul.cuh"
#include "kernels/mla.cuh"
#include "kernels/moe.cuh"
#include "kernels/rows.cuh"
#include "kernels/sample.cuh"

#include <cstdlib>
#include <unordered_map>

namespace spk::test {
namespace {

using Run = std::function<void(const void*)>;

template <typename Args>
Run call(void (*kernel)(Args)) {
  return [kernel](const void* arguments) { kernel(*static_cast<const Args*>(arguments)); };
}

#define SPK_KERNEL(...) table.emplace("spk::gpu::" #__VA_ARGS__, call(&gpu::__VA_ARGS__))
#define SPK_PRODUCTS(f)                                                         \
  SPK_KERNEL(embed<f>);                                                         \
  SPK_KERNEL(matvec<f, 1>), SPK_KERNEL(matvec<f, 2>), SPK_KERNEL(matvec<f, 4>); \
  SPK_KERNEL(matvec<f, 8>), SPK_KERNEL(matmul<f>), SPK_KERNEL(absorb<f>)
#define SPK_EXPERTS(f, s)                                             \
  SPK_KERNEL(expert_up<f, s, 1>), SPK_KERNEL(expert_up<f, s, 2>);     \
  SPK_KERNEL(expert_up<f, s, 4>), SPK_KERNEL(expert_up<f, s, 8>);     \
  SPK_KERNEL(expert_down<f, s, 1>), SPK_KERNEL(expert_down<f, s, 2>); \
  SPK_KERNEL(expert_down<f, s, 4>), SPK_KERNEL(expert_down<f, s, 8>)
#define SPK_HEAD_DIM(d)                               \
  SPK_KERNEL(norm_gate<d>), SPK_KERNEL(kda_gate<d>);  \
  SPK_KERNEL(kda_rows<d>), SPK_KERNEL(fold_state<d>); \
  SPK_KERNEL(kda_prepare<d>), SPK_KERNEL(kda_scan<d>)
#define SPK_LATENT(l, p) SPK_KERNEL(attend<l, p, false>), SPK_KERNEL(attend<l, p, true>)

const std::unordered_map<std::string, Run>& kernels() {
  static const std::unordered_map<std::string, Run> all = [] {
    std::unordered_map<std::string, Run> table;
    SPK_PRODUCTS(0);
    SPK_PRODUCTS(1);
    SPK_PRODUCTS(2);
    SPK_PRODUCTS(3);
    SPK_PRODUCTS(4);
    SPK_PRODUCTS(5);
    SPK_EXPERTS(0, 0);
    SPK_EXPERTS(1, 1);
    SPK_EXPERTS(2, 2);
    SPK_EXPERTS(3, 3);
    SPK_EXPERTS(4, 4);
    SPK_EXPERTS(3, 2);
    SPK_EXPERTS(4, 1);
    SPK_HEAD_DIM(32);
    SPK_HEAD_DIM(64);
    SPK_HEAD_DIM(128);
    SPK_LATENT(32, 16);
    SPK_LATENT(64, 32);
    SPK_LATENT(512, 64);
    SPK_KERNEL(attend_merge<32>), SPK_KERNEL(attend_merge<64>), SPK_KERNEL(attend_merge<512>);
    SPK_KERNEL(rms_norm<false>), SPK_KERNEL(rms_norm<true>);
    SPK_KERNEL(add_rows<0>), SPK_KERNEL(swiglu<0>), SPK_KERNEL(head_gate<0>);
    SPK_KERNEL(read_all<0>), SPK_KERNEL(conv_step<2>), SPK_KERNEL(conv_step<4>);
    SPK_KERNEL(fold_tail<2>), SPK_KERNEL(fold_tail<4>);
    SPK_KERNEL(rope_table<0>), SPK_KERNEL(rope<0>), SPK_KERNEL(latent_append<0>);
    SPK_KERNEL(route<0>), SPK_KERNEL(expert_items<0>), SPK_KERNEL(few_expert_items<0>);
    SPK_KERNEL(expert_sum<0>);
    SPK_KERNEL(quantise_rows<0>), SPK_KERNEL(sample<0>), SPK_KERNEL(reject<0>);
    return table;
  }();
  return all;
}

class EmulatedDevice final : public cuda::Device {
 public:
  explicit EmulatedDevice(bool backward) : backward_(backward) {
    info_.name = backward ? "emulated, backward" : "emulated";
    info_.arch = "host";
    info_.multiprocessors = 1;
    info_.l2 = 1 << 12;
    info_.memory = size_t{1} << 33;
  }
  const cuda::DeviceInfo& info() const override { return info_; }
  std::string description() const override { return info_.name; }
  size_t free_memory() const override { return size_t{64} << 20; }  // keeps arena chunks small

  cuda::DevicePointer alloc(size_t bytes, std::string_view) override {
    void* memory = std::aligned_alloc(256, (std::max<size_t>(bytes, 1) + 255) / 256 * 256);
    SPK_CHECK(memory != nullptr);
    std::memset(memory, 0, bytes);
    memory_.emplace(memory, std::unique_ptr<void, decltype(&std::free)>(memory, &std::free));
    return reinterpret_cast<cuda::DevicePointer>(memory);
  }
  void free(cuda::DevicePointer p) override {
    SPK_CHECK(memory_.erase(reinterpret_cast<void*>(p)) == 1);
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
    const auto found = kernels().find(spec.expression);
    if (found == kernels().end())
      fail_resource("emulated device: expected a kernel of emulated_device.cc, found ",
                    spec.expression);
    loaded_.push_back(&found->second);
    return static_cast<cuda::KernelId>(loaded_.size()) - 1;
  }
  void launch(cuda::KernelId kernel, const cuda::Grid& grid, int threads, const void* arguments,
              size_t) override {
    const Run& run = *loaded_.at(static_cast<size_t>(kernel));
    emu::run_grid({static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y),
                   static_cast<unsigned>(grid.z)},
                  static_cast<unsigned>(threads), backward_, [&] { run(arguments); });
  }
  void synchronize() override {}

 private:
  static void copy_rows(char* to, const char* from, const cuda::CopyShape& s) {
    for (size_t r = 0; r < s.height; ++r)
      std::memcpy(to + r * s.to_pitch, from + r * s.from_pitch, s.width);
  }

  bool backward_;
  cuda::DeviceInfo info_;
  std::unordered_map<void*, std::unique_ptr<void, decltype(&std::free)>> memory_;
  std::vector<const Run*> loaded_;
};

}  // namespace

std::unique_ptr<cuda::Device> make_emulated_device(bool backward) {
  return std::make_unique<EmulatedDevice>(backward);
}

std::unique_ptr<Backend> make_emulated_backend(bool backward, const BackendOptions& options) {
  return std::make_unique<cuda::CudaBackend>(make_emulated_device(backward), options);
}

std::vector<std::unique_ptr<Backend>> make_tested_cuda_backends() {
  std::vector<std::unique_ptr<Backend>> backends;
  if (std::getenv("SPARKLING_TEST_GPU")) {
    backends.push_back(make_cuda_backend({}));
    return backends;
  }
  for (const bool backward : {false, true}) {
    if (backward && std::getenv("SPARKLING_SHORT")) break;  // sanitizers look for other faults
    backends.push_back(make_emulated_backend(backward));
  }
  return backends;
}

bool emulates_briefly() {
  return !std::getenv("SPARKLING_TEST_GPU") && !std::getenv("SPARKLING_LONG_EMULATION");
}

std::vector<std::string> emulated_kernels() {
  std::vector<std::string> names;
  for (const auto& [name, run] : kernels()) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace spk::test
