// Single kernels on the device that a test looks at: values there and back, launches by name.
#pragma once

#include "backend/cuda/catalog.h"
#include "backend/cuda/device.h"
#include "support/emulated_device.h"

#include <memory>
#include <vector>

namespace spk::test {

class OnDevice {
 public:
  explicit OnDevice(bool backward) : device_(make_tested_device(backward)) {}

  template <typename T>
  T* put(const std::vector<T>& values) {
    const size_t bytes = values.size() * sizeof(T);
    const cuda::DevicePointer p = device_->alloc(bytes, "test");
    if (bytes > 0) device_->upload(p, values.data(), {bytes, 1, bytes, bytes});
    return cuda::pointer_to<T>(p);
  }
  template <typename T>
  std::vector<T> get(const T* from, size_t count) {
    std::vector<T> values(count);
    const size_t bytes = count * sizeof(T);
    device_->download(values.data(), reinterpret_cast<cuda::DevicePointer>(from),
                      {bytes, 1, bytes, bytes});
    return values;
  }
  template <typename Args>
  void launch(const char* header, const char* name, const cuda::Grid& grid, int threads,
              const Args& args) {
    launch(cuda::plain_kernel(header, name), grid, threads, args);
  }
  template <typename Args>
  void launch(const cuda::KernelName& kernel, const cuda::Grid& grid, int threads,
              const Args& args) {
    device_->launch(device_->kernel(cuda::spec_of(kernel)), grid, threads, &args, sizeof args);
  }

 private:
  std::unique_ptr<cuda::Device> device_;
};

}  // namespace spk::test
