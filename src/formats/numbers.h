// Whether stored codes and scales are numbers: the check that every byte of a model passes once.
// Thread-safe.
#pragma once

#include "formats/quant.h"

#include <cstddef>
#include <cstdint>

namespace spk {

// No NaN or infinity among `bytes` of codes, whole elements.
bool codes_are_numbers(Format format, const std::byte* codes, size_t bytes);
// Index of the first scale that is no finite number, -1 when there is none.
int64_t first_bad_scale(ScaleType type, const std::byte* scales, int64_t count);

}  // namespace spk
