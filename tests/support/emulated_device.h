// A device that runs the kernels on the host (emulator.h): everything of the cuda back end but the
// driver, in front of the reference, on machines without a GPU.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/device.h"
#include "support/emulated_kernels.h"

#include <memory>
#include <string>
#include <vector>

namespace spk::test {

// `backward`: threads and blocks in the opposite order, to find races. `most`: bytes that it has;
// 0: more than any test needs. Blocks that stay are as many as it has multiprocessors.
std::unique_ptr<cuda::Device> make_emulated_device(bool backward, size_t most = 0,
                                                   int multiprocessors = 1);

// The same, or with SPARKLING_TEST_GPU set the machine's GPU.
std::unique_ptr<cuda::Device> make_tested_device(bool backward);

// The cuda back end on such a device; with a limit of memory the device has no more than that, so
// that a limit that is not kept is an error.
std::unique_ptr<Backend> make_emulated_backend(bool backward = false,
                                               const BackendOptions& options = {},
                                               int multiprocessors = 1);

// The cuda back ends that a test compares with the reference: two on emulated devices (in the short
// form, SPARKLING_SHORT, one); with SPARKLING_TEST_GPU set, the one on the machine's GPU
// (tools/gpu_report.sh).
std::vector<std::unique_ptr<Backend>> make_tested_cuda_backends(const BackendOptions& options = {},
                                                                int multiprocessors = 1);

// Threads as fibers take some thousand times longer than the device's that they stand for, so that
// tests emulate fewer cases; with SPARKLING_LONG_EMULATION (the `kernels` stage of .ci/run) all of
// them. False on a GPU.
bool emulates_briefly();

}  // namespace spk::test
