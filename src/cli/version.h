// Which code this is: derived from the source tree at each build (cmake/version.cmake), never typed
// by hand.
#pragma once

#include <string_view>

namespace spk {

struct Version {
  std::string_view number;    // "0.1.0"
  std::string_view commit;    // "1a2b3c4d5e6f", "...-dirty" when the tree had changes, or "unknown"
  std::string_view build;     // "Release", "RelWithDebInfo address,undefined"
  std::string_view compiler;  // "GNU 12.2.0 x86_64"
};
Version version();

}  // namespace spk
