// Measured read bandwidth of memory: the yardstick of every speed figure that the program prints.
#pragma once

#include <cstdint>

namespace spk {

// Size of the last-level cache that these processors share, bytes; a guess (32 MiB) when the system
// does not tell.
int64_t last_level_cache_bytes();

// Below this a pass is over before the threads have met.
inline constexpr int64_t kLeastBandwidthBuffer = 16 << 20;

// Bytes/s that `threads` threads read together from memory, never from a cache: the best of several
// passes within about 0.3 s over a buffer of at most `most` bytes (freed before the return), page
// faults not counted. A buffer of less than four times the last-level cache is flushed from the
// caches before each pass. 0 when `most` is less than the constant above, or the buffer or the
// threads cannot be had: a figure must not cost a finished answer.
double measure_read_bandwidth(int threads, int64_t most = int64_t{1} << 30);

}  // namespace spk
