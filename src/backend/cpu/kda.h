// Lengths that decide how the delta rule is cut.
#pragma once

#include <cstdint>

namespace spk::cpu {

inline constexpr int64_t kChunk = 64;  // rows of one chunk, and the grid of positions it ends on
inline constexpr int64_t kSubBlock =
    16;  // 16 rows * lower bound 5 = 80 < 88.7, where exp leaves float
inline constexpr int64_t kRecurrentRows = 8;  // up to so many rows are computed one by one

}  // namespace spk::cpu
