// What the tests of the device back end share.
#pragma once

#include "backend/cuda/nvrtc.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace spk::cuda {

// The executable that the tests stand beside: its helper processes compile kernels.
inline std::string sparkling_path() {
  const char* set = std::getenv("SPARKLING");
  return set ? set : SPARKLING_BUILD_DIR "/sparkling";
}

}  // namespace spk::cuda

// The wheel that tools/setup.sh installs has NVRTC for the machine's own processor; tests of
// another one run in an emulator, which cannot load it.
#define SPK_NEED_NVRTC()                                                               \
  do {                                                                                 \
    if (!::spk::cuda::nvrtc_available()) {                                             \
      if (std::getenv("SPARKLING_SHORT"))                                              \
        GTEST_SKIP() << "no instruction set here that an installed NVRTC is made for"; \
      GTEST_FAIL() << "no NVRTC: run tools/setup.sh test";                             \
    }                                                                                  \
  } while (false)
