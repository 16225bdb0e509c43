#include "support/malloc_count.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SPK_COUNT_MALLOC 0
#elif defined(__has_feature)
#define SPK_COUNT_MALLOC                                                   \
  !(__has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer))
#else
#define SPK_COUNT_MALLOC 1
#endif

namespace spk {

namespace {

std::atomic<uint64_t> total_calls{0};
std::atomic<uint64_t> total_bytes{0};

}  // namespace

bool malloc_count_works() { return SPK_COUNT_MALLOC; }

MallocCount::MallocCount() : calls_(total_calls.load()), bytes_(total_bytes.load()) {}
uint64_t MallocCount::calls() const { return total_calls.load() - calls_; }
uint64_t MallocCount::bytes() const { return total_bytes.load() - bytes_; }

}  // namespace spk

#if SPK_COUNT_MALLOC

extern "C" {

// glibc's allocator under the names that it keeps for interposers.
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* pointer, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* pointer);

}  // extern "C"

namespace {

void note(size_t size) {
  spk::total_calls.fetch_add(1, std::memory_order_relaxed);
  spk::total_bytes.fetch_add(size, std::memory_order_relaxed);
}

}  // namespace

extern "C" {

void* malloc(size_t size) {
  note(size);
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  note(count * size);
  return __libc_calloc(count, size);
}
void* realloc(void* pointer, size_t size) {
  note(size);
  return __libc_realloc(pointer, size);
}
void* memalign(size_t alignment, size_t size) {
  note(size);
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  note(size);
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** result, size_t alignment, size_t size) {
  note(size);
  void* pointer = __libc_memalign(alignment, size);
  if (pointer == nullptr) return ENOMEM;
  *result = pointer;
  return 0;
}
void free(void* pointer) { __libc_free(pointer); }

}  // extern "C"

#endif  // SPK_COUNT_MALLOC
