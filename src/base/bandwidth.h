// Measured read bandwidth of memory: the yardstick of every speed figure that the program prints.
#pragma once

#include <cstdint>

namespace spk {

// Size of the last-level cache that these processors share, bytes; a guess (32 MiB) when the system
// does not tell.
int64_t last_level_cache_bytes();

// Bytes/s that `threads` threads read together from a buffer of more than four times the last-level
// cache (freed before the return). The best of several passes within about 0.3 s, page faults not
// counted. 0 when the buffer or the threads cannot be had: a figure must not cost a finished
// answer.
double measure_read_bandwidth(int threads);

// Size of that buffer, 64 MiB to 1 GiB.
int64_t bandwidth_buffer_bytes();

}  // namespace spk
