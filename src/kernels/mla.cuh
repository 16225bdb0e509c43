// Gated latent attention: attention in latent space. What comes before it is in latent.cuh, a step
// of 32 positions in mla_step.cuh, the merge of the pieces in mla_merge.cuh.
//
// Order of a row's sums: the steps of a segment (args.cuh: a grid of absolute positions) follow one
// another, and segments are merged in order. A few rows spread their segments over blocks and merge
// in a second launch, many rows merge as they go; both do the same operations in the same order, so
// a row's bits depend on its position alone.
#pragma once

#include "kernels/mla_step.cuh"

namespace spk::gpu {

// A weighted sum over some positions, relative to its largest score.
struct Softmax {
  float top;
  float sum;
};
// to = to + from: the factors of both weighted sums.
SPK_DEVICE void merge_softmax(Softmax& to, const Softmax& from, float& keep, float& take) {
  const float top = from.top > to.top ? from.top : to.top;
  keep = expf(to.top - top);
  take = expf(from.top - top);
  to.sum = fmaf(to.sum, keep, from.sum * take);
  to.top = top;
}

// ---- a segment ----
// Lines of latents are brought into the L2, by the block.
SPK_DEVICE void ask_for_rows(const float* first, int pitch, int rows) {
  const int bytes = min(rows, kAttendStep) * pitch * 4, threads = static_cast<int>(blockDim.x);
  for (int at = static_cast<int>(threadIdx.x) * kLineBytes; at < bytes; at += threads * kLineBytes)
    ask_for_line(reinterpret_cast<const char*>(first) + at);
}
// Positions from `begin` on, `length` of them: all tiles of a block have as many steps.
template <int L, int P>
SPK_DEVICE void attend_segment(const AttendArgs& a, i64 begin, int length,
                               float (&z)[AttendShape<L, P>::kOwnGroups][4][4]) {
  AttendStep step = {row_of(a.latent, begin), static_cast<int>(a.latent.stride), 0};
#pragma unroll 1
  for (bool opens = true; length > 0; opens = false) {
    step.count = min(length, kAttendStep);
    length -= kAttendStep;
    if (length > 0) ask_for_rows(step.first + kAttendStep * step.pitch, step.pitch, length);
    add_scores<L, P>(step);
    __syncthreads();
    weigh<L, P>(step.count, opens, a.scale);
    __syncthreads();
    add_values<L, P>(step, opens, z);
    step.first += kAttendStep * step.pitch;
  }
}
// Of a segment: how many positions a row that sees `seen` has in it; none: 0 or less.
SPK_DEVICE int segment_length(i64 begin, i64 end, i64 seen) {
  return static_cast<int>((end < seen ? end : seen) - begin);
}

// Grid: (segments, tiles of heads / those of a block, rows); kThreads threads and attend_floats()
// of memory for each tile. Leaves pieces for attend_merge.
template <int L, int P>
__global__ void __launch_bounds__(kAttendTiles* kThreads, 1) attend(const AttendArgs a) {
  using S = AttendShape<L, P>;
  let_next_start();
  // The longest segments are the last ones: they start first.
  const int last = static_cast<int>(gridDim.x) - 1;
  const i64 begin = segment_begin(last - static_cast<int>(blockIdx.x));
  // Lines of the cache may be asked for before anything of this step is there.
  if (begin < a.positions)
    ask_for_rows(row_of(a.latent, begin), static_cast<int>(a.latent.stride),
                 static_cast<int>(a.positions - begin));
  wait_for_previous();
  const int length = segment_length(begin, segment_begin(last - static_cast<int>(blockIdx.x) + 1),
                                    a.step->first_position + static_cast<int>(blockIdx.z) + 1);
  if (length <= 0) return;  // the whole block: this row ends before
  stage_query<L, P>(a);
  __syncthreads();
  float z[S::kOwnGroups][4][4] = {};
  attend_segment<L, P>(a, begin, length, z);
  const AttendPlace<L, P> p;
  const int segment = last - static_cast<int>(blockIdx.x), row = blockIdx.z;
  const i64 piece = (static_cast<i64>(segment) * a.n + row) * a.heads + p.first_head;
  const int heads = a.heads - p.first_head;
#pragma unroll
  for (int k = 0; k < kWarpHeads; ++k) {
    const int h = p.warp * kWarpHeads + k;
    if (p.lane != 0 || h >= heads) continue;
    a.piece_top[piece + h] = p.tops[h];
    a.piece_sum[piece + h] = p.sums[h];
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int h = p.g + i / 2 * 8;
    if (h >= heads) continue;
    float* to = a.piece_z + (piece + h) * L;
#pragma unroll
    for (int k = 0; k < S::kOwnGroups; ++k) {
      const int c = column_of(p, k) + i % 2 * 4;
      if constexpr (L % 4 == 0) {
        if (c < L)
          *reinterpret_cast<float4*>(to + c) = {z[k][0][i], z[k][1][i], z[k][2][i], z[k][3][i]};
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (c + e < L) to[c + e] = z[k][e][i];
      }
    }
  }
}

// The same without pieces: a tile's block takes all segments of a row, one after the other. Grid:
// (1, tiles of heads, rows).
template <int L, int P>
__global__ void __launch_bounds__(kThreads, 1) attend_whole(const AttendArgs a) {
  using S = AttendShape<L, P>;
  start_after_previous();
  stage_query<L, P>(a);
  __syncthreads();
  const AttendPlace<L, P> p;
  const int row = blockIdx.z;
  const i64 seen = a.step->first_position + row + 1;
  Softmax total[kWarpHeads];
  float z[S::kOwnGroups][4][4] = {}, piece[S::kOwnGroups][4][4] = {};
  for (int segment = 0; segment_begin(segment) < seen; ++segment) {
    const i64 begin = segment_begin(segment);
    attend_segment<L, P>(a, begin, segment_length(begin, segment_begin(segment + 1), seen), piece);
#pragma unroll
    for (int k = 0; k < kWarpHeads; ++k) {
      const int h = p.warp * kWarpHeads + k;
      const Softmax from = {p.tops[h], p.sums[h]};
      float keep = 0.f, take = 1.f;
      if (segment == 0) {
        total[k] = from;
      } else {
        merge_softmax(total[k], from, keep, take);
      }
      if (p.lane == 0) {
        p.takes[h] = take;
        p.others[h] = keep;
      }
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < S::kOwnGroups; ++k)
#pragma unroll
      for (int e = 0; e < 4; ++e)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int h = p.g + i / 2 * 8;
          const float take = p.takes[h], keep = p.others[h], more = piece[k][e][i];
          z[k][e][i] = segment == 0 ? more : fmaf(take, more, keep * z[k][e][i]);
        }
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kWarpHeads; ++k)
    if (p.lane == 0) p.takes[p.warp * kWarpHeads + k] = 1.f / total[k].sum;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int h = p.g + i / 2 * 8;
    if (p.first_head + h >= a.heads) continue;
    float* to = row_at(a.z, row) + static_cast<i64>(p.first_head + h) * L;
#pragma unroll
    for (int k = 0; k < S::kOwnGroups; ++k)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (const int c = column_of(p, k) + i % 2 * 4 + e; c < L) to[c] = z[k][e][i] * p.takes[h];
  }
}

}  // namespace spk::gpu
