// Measured read bandwidth of memory: the yardstick of every speed figure that the program prints.
#pragma once

#include <cstdint>

namespace spk {

// Size of the last-level cache that these processors share, bytes; a guess (32 MiB) when the system
// does not tell.
int64_t last_level_cache_bytes();

// Bytes/s that `threads` threads read together from a buffer of more than four times the last-level
// cache (64 MiB to 1 GiB, freed before the return). The best of several passes within about 0.3 s,
// page faults not counted. Error(kResource) when the buffer cannot be had.
double measure_read_bandwidth(int threads);

}  // namespace spk
