// The pieces of attention become one: the second launch of its split form (mla.cuh).
//
// Segments follow one another in every column of z, two operations each; what takes time is to have
// their numbers there. A block has a head's 128 columns. All its threads bring 64 segments at once,
// 32 KB, while four warps add those before them; the factors depend on the segments' largest scores
// alone, and a warp that adds nothing makes them in the meantime.
#pragma once

#include "kernels/mla.cuh"

namespace spk::gpu {

constexpr int kMergeAtOnce = 64;

// Of the warp: factors of segments first .. first + kMergeAtOnce - 1 as merge_softmax has them, and
// their sums; `top` is the largest score of all before.
template <typename Piece>
SPK_DEVICE void merge_factors(const AttendArgs& a, const Piece& piece, int first, int segments,
                              float& top, float4* to) {
  constexpr int kRounds = kMergeAtOnce / kWarp;
  const int lane = threadIdx.x % kWarp;
  float own[kRounds], sum[kRounds];
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const i64 at = piece(min(first + r * kWarp + lane, segments - 1));
    own[r] = a.piece_top[at];
    sum[r] = a.piece_sum[at];
  }
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const int i = first + r * kWarp + lane;
    float here = own[r];  // the largest so far
    if (first + r > 0 && top > here) here = top;
#pragma unroll
    for (int d = 1; d < kWarp; d *= 2) {
      const float other = __shfl_sync(kAllLanes, here, lane - d);
      here = lane >= d && other > here ? other : here;
    }
    const float left = __shfl_sync(kAllLanes, here, lane - 1);
    const float before = lane > 0 ? left : top;
    // The first segment is taken as it is.
    to[r * kWarp + lane] = {i == 0 ? 0.f : expf(before - here), i == 0 ? 1.f : expf(own[r] - here),
                            sum[r], 0.f};
    top = __shfl_sync(kAllLanes, here, kWarp - 1);
  }
}

// Grid: (heads, latent / kMergeColumns, rows).
template <int L>
__global__ void __launch_bounds__(kThreads) attend_merge(const AttendArgs a) {
  constexpr int kPerThread = kMergeAtOnce / kWarps;
  static_assert(kMergeColumns == 4 * kWarp, "a warp a segment");
  SPK_SHARED(float4, values, kMergeAtOnce * kWarp);
  SPK_SHARED(float4, factors, 2 * kMergeAtOnce);
  start_after_previous();
  const int h = blockIdx.x, first_column = static_cast<int>(blockIdx.y) * kMergeColumns;
  const int row = blockIdx.z, t = threadIdx.x, lane = t % kWarp, warp = t / kWarp;
  const int segments = segment_of(a.step->first_position + row) + 1;
  const auto piece = [&](int segment) {
    return (static_cast<i64>(segment) * a.n + row) * a.heads + h;
  };
  float4 held[kPerThread];
  const auto load = [&](int first) {
    const int column = first_column + 4 * lane, c = column < L ? column : 0;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i)
      held[i] = four_of<L>(a.piece_z + piece(min(first + i * kWarps + warp, segments - 1)) * L + c,
                           L - c);
  };
  float top = 0.f, z = 0.f, total = 0.f;
  load(0);
  if (warp == kWarps - 1) merge_factors(a, piece, 0, segments, top, factors);
  for (int first = 0, turn = 0; first < segments; first += kMergeAtOnce, turn = 1 - turn) {
    const int next = first + kMergeAtOnce;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) values[(i * kWarps + warp) * kWarp + lane] = held[i];
    __syncthreads();
    if (next < segments) {
      load(next);
      if (warp == kWarps - 1)
        merge_factors(a, piece, next, segments, top, factors + (1 - turn) * kMergeAtOnce);
    }
    if (t < kMergeColumns) {
      const float* value = reinterpret_cast<const float*>(values) + t;
      const float4* factor = factors + turn * kMergeAtOnce;
      const int count = min(segments - first, kMergeAtOnce);
#pragma unroll 8
      for (int i = 0; i < count; ++i) {
        const float4 f = factor[i];
        const bool only = first + i == 0;
        total = only ? f.z : fmaf(total, f.x, f.z * f.y);
        z = only ? value[i * kMergeColumns] : fmaf(f.y, value[i * kMergeColumns], f.x * z);
      }
    }
    __syncthreads();  // before the next segments' values
  }
  const int c = first_column + t;
  if (t < kMergeColumns && c < L) row_at(a.z, row)[static_cast<i64>(h) * L + c] = z * (1.f / total);
}

}  // namespace spk::gpu
