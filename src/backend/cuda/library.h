// Shared libraries that are opened at run time: the driver and NVRTC. A program that has neither
// starts all the same and says in one sentence what is missing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace spk::cuda {

// Opens the first of `names` that can be opened; null, with every reason in `why`, when none can.
// Never closed: code of it may run until the process ends.
void* open_library(const std::vector<std::string>& names, std::string& opened, std::string& why);

// The address of one function; Error(kResource) naming library and function when it is not there.
void* find_function(void* library, std::string_view opened, const char* name);

template <typename F>
void load_function(void* library, std::string_view opened, const char* name, F& function) {
  function = reinterpret_cast<F>(find_function(library, opened, name));
}

}  // namespace spk::cuda
