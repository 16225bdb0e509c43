#include "base/error.h"

#include <cstdio>
#include <cstdlib>

namespace spk {

void check_failed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "sparkling: internal error at %s:%d: %s does not hold\n", file, line,
               condition);
  std::abort();
}

}  // namespace spk
