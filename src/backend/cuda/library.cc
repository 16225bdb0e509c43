#include "backend/cuda/library.h"

#include "base/error.h"

#include <dlfcn.h>

namespace spk::cuda {

void* open_library(const std::vector<std::string>& names, std::string& opened, std::string& why) {
  for (const std::string& name : names) {
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      opened = name;
      return library;
    }
    const char* reason = dlerror();
    if (!why.empty()) why += "; ";
    why += reason ? reason : name;
  }
  return nullptr;
}

void* find_function(void* library, std::string_view opened, const char* name) {
  void* address = dlsym(library, name);
  if (!address)
    fail_resource(opened, ": expected the function ", name, ", found none; the library is too old");
  return address;
}

}  // namespace spk::cuda
