#include "cli/embedded.h"

#include <cstddef>

namespace spk {

namespace {

// One row of the table in the generated assembler file; a row of null pointers ends it.
struct EmbeddedFile {
  const char* name;
  const char* begin;
  const char* end;
};

extern "C" const EmbeddedFile spk_embedded_table[];

}  // namespace

std::vector<MemoryFile> embedded_model() {
  std::vector<MemoryFile> files;
  for (const EmbeddedFile* file = spk_embedded_table; file->name != nullptr; ++file) {
    files.push_back({file->name, {file->begin, static_cast<size_t>(file->end - file->begin)}});
  }
  return files;
}

}  // namespace spk
