// Every kernel through NVRTC, without a GPU: it compiles for the architectures that we are for, and
// nothing of it lives in local memory.
//
// In `make test` all kernels for one architecture and those of the target model for another; with
// SPARKLING_ALL_ARCHITECTURES (.ci/run sets it) all kernels for all four.
#include "backend/cuda/catalog.h"
#include "backend/cuda/kernel_cache.h"
#include "backend/device_tools.h"
#include "base/error.h"
#include "base/threads.h"
#include "model/config.h"
#include "model/model.h"
#include "model/synthetic.h"
#include "support/cuda_support.h"
#include "support/emulated_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace spk::cuda {
namespace {

// The header that defines an instantiation: the one that has "void NAME(".
KernelSpec spec_of(const std::string& expression) {
  const size_t start = expression.rfind("gpu::") + 5;
  const std::string name = " " + expression.substr(start, expression.find('<') - start) + "(const ";
  for (const SourceText& s : kernel_sources()) {
    const size_t at = s.text.find(name);
    if (at != std::string_view::npos && s.text.rfind("__global__", at) != std::string_view::npos)
      return {s.name, expression};
  }
  ADD_FAILURE() << "no header defines " << expression;
  return {};
}

std::vector<KernelSpec> all_kernels() {
  std::vector<KernelSpec> specs;
  for (const std::string& name : test::emulated_kernels()) specs.push_back(spec_of(name));
  return specs;
}

// The weights of a released shape in its fp4 layout, with an FP8 head.
std::vector<KernelSpec> kernels_of(std::string_view model, bool packed = false) {
  const ModelConfig config = parse_config(known_config(model), "known");
  const auto source = make_synthetic_sizes(config);
  const TensorSet tensors = bind_tensors(config, *source);
  std::vector<WeightUse> weights;
  for (const BoundTensor& bound : tensors.tensors) {
    const HostTensor& t = bound.tensor;
    weights.push_back({t.name, t.format, t.rows, t.cols, packed});
    if (bound.component == Component::kHead) weights.back().format = Format::kFp8Row;
  }
  return kernels_of_model(config.shape, weights);
}

void expect_registers_only(const std::vector<KernelSpec>& specs, const std::string& arch) {
  // Kept between runs: the key holds all that decides the result.
  KernelCache cache(SPARKLING_BUILD_DIR "/kernels", kernel_sources(), agreement_checks());
  cache.compile_missing(specs, arch, physical_cores(), sparkling_path());
  for (const KernelSpec& spec : specs) {
    const Kernel kernel = cache.get(spec, arch);
    EXPECT_EQ(kernel.log.find("warning"), std::string::npos) << kernel.log;
    const Resources r = parse_resources(kernel.log);
    EXPECT_EQ(r.stack_bytes, 0) << spec.expression << " for " << arch;
    EXPECT_EQ(r.spill_stores + r.spill_loads, 0) << spec.expression << " for " << arch;
    EXPECT_LE(r.registers, 255);
  }
}

TEST(CudaKernels, AllCompileAndStayInRegisters) {
  SPK_NEED_NVRTC();
  const bool all = std::getenv("SPARKLING_ALL_ARCHITECTURES") != nullptr;
  const std::vector<KernelSpec> specs = all_kernels();
  EXPECT_GT(specs.size(), 100u);
  expect_registers_only(specs, "sm_90a");
  for (const char* arch : {"sm_80", "sm_120a", "sm_121a"})
    if (all) expect_registers_only(specs, arch);
}

TEST(CudaKernels, ThoseOfFlashCompileForTheSpark) {
  SPK_NEED_NVRTC();
  for (const bool packed : {false, true})
    expect_registers_only(kernels_of("ling-3.0-flash", packed), "sm_121a");
}

// What can be emulated is what the models ask for: no kernel meets a GPU first.
TEST(CudaKernels, EveryKernelOfTheModelsIsEmulated) {
  const std::vector<std::string> known = test::emulated_kernels();
  for (const char* model : {"ling-3.0-flash", "ling-3.0-tiny", "ling-3.1-flash"})
    for (const bool packed : {false, true})
      for (const KernelSpec& spec : kernels_of(model, packed)) {
        EXPECT_TRUE(std::binary_search(known.begin(), known.end(), spec.expression))
            << spec.expression;
        EXPECT_EQ(spec_of(spec.expression), spec);
      }
}

TEST(CudaKernels, PackedExpertsTakeThePlaceOfPlainOnes) {
  const auto count = [](const std::vector<KernelSpec>& specs, const char* part) {
    return std::count_if(specs.begin(), specs.end(), [&](const KernelSpec& s) {
      return s.expression.find(part) != std::string::npos;
    });
  };
  const auto plain = kernels_of("ling-3.0-flash"), packed = kernels_of("ling-3.0-flash", true);
  EXPECT_EQ(count(plain, "::expert_up<3, 2,"), 4);
  EXPECT_EQ(count(plain, "packed_"), 0);
  EXPECT_EQ(count(packed, "packed_up<2,"), 4);
  EXPECT_EQ(count(packed, "packed_down<2,"), 4);
  EXPECT_EQ(count(packed, "::few_items_and_rows<"), 1);
  EXPECT_EQ(count(packed, "::expert_up<3, 2,"), 0);
}

// Host and device disagree about a size: nothing is compiled, and the message names the struct.
TEST(CudaKernels, DisagreementDoesNotCompile) {
  SPK_NEED_NVRTC();
  std::string checks = agreement_checks();
  const std::string right = "spk::gpu::kAttendStep == 32";
  ASSERT_NE(checks.find(right), std::string::npos);
  checks.replace(checks.find(right), right.size(), "spk::gpu::kAttendStep == 31");
  KernelCache cache("", kernel_sources(), checks);
  try {
    cache.get({"kernels/rows.cuh", "spk::gpu::add_rows<0>"}, "sm_90a");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("kAttendStep"), std::string::npos) << e.what();
  }
}

TEST(CudaKernels, BlocksStayWhereTheirMemoryIs) {
  for (const char* arch : {"sm_90a", "sm_100a", "sm_103a"}) EXPECT_TRUE(has_room_to_stay(arch));
  for (const char* arch : {"sm_80", "sm_86", "sm_89", "sm_120a", "sm_121a"})
    EXPECT_FALSE(has_room_to_stay(arch));
}

TEST(CudaKernels, WarmListsEachKernelOnce) {
  SPK_NEED_NVRTC();
  setenv("SPARKLING_KERNEL_CACHE", SPARKLING_BUILD_DIR "/kernels", 1);
  ModelShape shape;
  shape.head_dim = 128;
  shape.conv_kernel = 4;
  shape.latent = 512;
  shape.rope = 64;
  const WarmReport report = warm_kernels("sm_90a", shape, {});
  unsetenv("SPARKLING_KERNEL_CACHE");
  EXPECT_EQ(report.arch, "sm_90a");
  EXPECT_TRUE(report.warnings.empty());
  EXPECT_GT(report.kernels.size(), 15u);
  for (const KernelReport& k : report.kernels) {
    EXPECT_GT(k.registers, 0) << k.name;
    EXPECT_EQ(k.stack_bytes + k.spill_bytes, 0) << k.name;
    EXPECT_EQ(std::count_if(report.kernels.begin(), report.kernels.end(),
                            [&](const KernelReport& other) { return other.name == k.name; }),
              1);
  }
}

}  // namespace
}  // namespace spk::cuda
