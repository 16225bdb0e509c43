// Counts heap allocations of the whole test process between two marks, for "nothing is allocated
// per token".
//
// Works by defining malloc and its relatives in the test executable in front of glibc's; operator
// new of libstdc++ ends there too. Sanitizers bring an allocator of their own: there
// malloc_count_works() is false, and a test that needs the counts checks what else it can and
// passes.
#pragma once

#include <cstdint>

namespace spk {

bool malloc_count_works();

// Counts from construction on, in all threads; several may live at once.
class MallocCount {
 public:
  MallocCount();
  uint64_t calls() const;  // malloc, calloc, realloc, aligned forms; free does not count
  uint64_t bytes() const;  // as asked for

 private:
  uint64_t calls_;
  uint64_t bytes_;
};

}  // namespace spk
