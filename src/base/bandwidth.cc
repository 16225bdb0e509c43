#include "base/bandwidth.h"

#include "base/error.h"
#include "base/threads.h"
#include "base/types.h"

#include <unistd.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>

namespace spk {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr double kBudget = 0.3;  // seconds of passes
constexpr int kMinPasses = 3;

using Clock = std::chrono::steady_clock;
using Vector = uint64_t __attribute__((vector_size(16)));  // the widest load that every target has

// Adds up [data, data + bytes): four streams a quarter apart, as a matrix-vector product reads
// several rows at once.
uint64_t read_all(const char* data, int64_t bytes) {
  constexpr int64_t kStreams = 4, kLine = 64;
  const int64_t part = bytes / kStreams / kLine * kLine;
  Vector sum[4] = {};
  for (int64_t at = 0; at < part; at += kLine) {
    for (int64_t s = 0; s < kStreams; ++s) {
      const char* p = data + s * part + at;
      __builtin_prefetch(p + 2048);
      const auto* v = reinterpret_cast<const Vector*>(p);
      sum[0] ^= v[0];
      sum[1] ^= v[1];
      sum[2] ^= v[2];
      sum[3] ^= v[3];
    }
  }
  const Vector all = sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
  return all[0] ^ all[1];
}

// Writes the lines of [data, data + bytes) back and drops them from every cache; false where this
// processor offers no such thing to programs.
bool flush_lines([[maybe_unused]] const char* data, [[maybe_unused]] int64_t bytes) {
  [[maybe_unused]] constexpr int64_t kLine = 64;
#if defined(__x86_64__)
  for (int64_t at = 0; at < bytes; at += kLine) _mm_clflush(data + at);
  _mm_mfence();
  return true;
#elif defined(__aarch64__)
  for (int64_t at = 0; at < bytes; at += kLine)
    asm volatile("dc civac, %0" ::"r"(data + at) : "memory");
  asm volatile("dsb ish" ::: "memory");
  return true;
#else
  return false;
#endif
}

}  // namespace

int64_t last_level_cache_bytes() {
  // sysconf() may give the sum over a whole host to a guest; the kernel's table is per processor.
  int64_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream file(cat("/sys/devices/system/cpu/cpu0/cache/index", index, "/size"));
    int64_t size = 0;
    char unit = 0;
    if (!(file >> size)) continue;
    file >> unit;
    if (unit == 'K') size *= 1024;
    if (unit == 'M') size *= kMiB;
    largest = std::max(largest, size);
  }
  return largest > 0 ? largest : 32 * kMiB;
}

double measure_read_bandwidth(int threads, int64_t most) try {
  constexpr int64_t kPage = 2 * kMiB;                 // a large page
  const int64_t cold = 4 * last_level_cache_bytes();  // reads of so much find nothing in a cache
  const int64_t bytes = std::min(most, std::max(cold + 8 * kMiB, 64 * kMiB)) / kPage * kPage;
  if (bytes < kLeastBandwidthBuffer) return 0;  // 50 us a pass at 300 GB/s, ten joins of the team
  const std::unique_ptr<void, decltype(&std::free)> memory(
      std::aligned_alloc(kPage, static_cast<size_t>(bytes)), &std::free);
  if (!memory) return 0;
  auto* data = static_cast<char*>(memory.get());
  WorkerTeam team(threads);
  // Written by the threads that will read it: never-touched pages all map to one page of zeros,
  // which stays in cache.
  team.parallel_for(bytes / kMiB, [&](int64_t first, int64_t last) {
    std::memset(data + first * kMiB, 1, static_cast<size_t>((last - first) * kMiB));
  });

  std::atomic<uint64_t> sink{0};
  std::atomic<bool> is_cold{true};
  double best = 0, spent = 0;
  for (int pass = 0; pass < kMinPasses || spent < kBudget; ++pass) {
    const Clock::time_point begun = Clock::now();
    if (bytes < cold) {
      team.parallel_for(bytes / kMiB, [&](int64_t first, int64_t last) {
        if (!flush_lines(data + first * kMiB, (last - first) * kMiB)) is_cold = false;
      });
      if (!is_cold) return 0;
    }
    const Clock::time_point start = Clock::now();
    team.parallel_for(bytes / kMiB, [&](int64_t first, int64_t last) {
      sink.fetch_add(read_all(data + first * kMiB, (last - first) * kMiB),
                     std::memory_order_relaxed);
    });
    const Clock::time_point end = Clock::now();
    const double seconds = std::chrono::duration<double>(end - start).count();
    best = std::max(best, static_cast<double>(bytes) / seconds);
    spent += std::chrono::duration<double>(end - begun).count();
    if (spent > 3 * kBudget) break;
  }
  return best;
} catch (const Error&) {
  return 0;
}

}  // namespace spk
