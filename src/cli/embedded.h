// The checkpoint that is linked into the executable (cmake/embed.cmake), so that every verb works
// in an empty folder.
//
// Owns nothing: names and bytes live in the executable's read-only pages for as long as the program
// runs.
#pragma once

#include "formats/checkpoint.h"

#include <vector>

namespace spk {

// Sorted by name; empty when the program was built without a model. Thread-safe.
std::vector<MemoryFile> embedded_model();

}  // namespace spk
