// Late uploads through the driver: several readers, each with two pinned buffers and a stream.
#pragma once

#include "backend/cuda/driver.h"
#include "backend/cuda/upload_plan.h"

#include <span>

namespace spk::cuda {

// Returns when all bytes are on the device. The first error of a reader ends all of them and is
// thrown here.
void upload_late(const Driver& driver, CuContext context, std::span<const LateUpload> uploads,
                 UploadSource& source);

}  // namespace spk::cuda
