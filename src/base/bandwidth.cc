#include "base/bandwidth.h"

#include "base/error.h"
#include "base/threads.h"
#include "base/types.h"

#include <unistd.h>

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

int64_t bandwidth_buffer_bytes() {
  const int64_t wanted = 4 * last_level_cache_bytes() + 8 * kMiB;
  return std::clamp(round_up(wanted, 2 * kMiB), 64 * kMiB, 1024 * kMiB);
}

double measure_read_bandwidth(int threads) try {
  const int64_t bytes = bandwidth_buffer_bytes();
  const std::unique_ptr<void, decltype(&std::free)> memory(
      std::aligned_alloc(2 * kMiB, static_cast<size_t>(bytes)), &std::free);
  if (!memory) return 0;
  auto* data = static_cast<char*>(memory.get());
  WorkerTeam team(threads);
  // Written by the threads that will read it: never-touched pages all map to one page of zeros,
  // which stays in cache.
  team.parallel_for(bytes / kMiB, [&](int64_t first, int64_t last) {
    std::memset(data + first * kMiB, 1, static_cast<size_t>((last - first) * kMiB));
  });

  std::atomic<uint64_t> sink{0};
  double best = 0, spent = 0;
  for (int pass = 0; pass < kMinPasses || spent < kBudget; ++pass) {
    const Clock::time_point start = Clock::now();
    team.parallel_for(bytes / kMiB, [&](int64_t first, int64_t last) {
      sink.fetch_add(read_all(data + first * kMiB, (last - first) * kMiB),
                     std::memory_order_relaxed);
    });
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, static_cast<double>(bytes) / seconds);
    spent += seconds;
    if (spent > 3 * kBudget) break;
  }
  return best;
} catch (const Error&) {
  return 0;
}

}  // namespace spk
