// Gated latent attention: attention in latent space. What comes before it is in latent.cuh, the
// merge of its pieces in mla_merge.cuh.
//
// Both products run on the matrix unit (tf32.cuh): sixteen heads of one row are the rows of a tile,
// so a latent that is read once serves sixteen of them. Latents go from memory to the registers
// that the instruction reads, without a stop in shared memory: a lane takes four neighbouring
// numbers, whose order along a sum is free. For the scores the warps share out the columns, for the
// values those of the result, and a step's 32 latents of 74 KB are read from memory once and from
// the L1 the second time.
//
// Order of a row's sums: positions in steps of 32, on a grid of absolute positions. In a step a
// score is the sum over the warps, in order, of their columns ascending; weights are relative to
// the largest score so far, and what was summed before is brought down to it. The steps of a
// segment (args.cuh) follow one another, and segments are merged in order. A few rows spread their
// segments over blocks and merge in a second launch, many rows merge as they go; both do the same
// operations in the same order, so a row's bits depend on its position alone.
#pragma once

#include "kernels/tf32.cuh"

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

// Columns c .. c + 3 of a row of W, zeros behind its end.
template <int W>
SPK_DEVICE float4 four_of(const float* row, int c) {
  if constexpr (W % 16 == 0) {
    return *reinterpret_cast<const float4*>(row + c);
  } else if constexpr (W % 4 == 0) {
    return c < W ? *reinterpret_cast<const float4*>(row + c) : float4{0.f, 0.f, 0.f, 0.f};
  } else {  // rows begin anywhere
    return {c < W ? row[c] : 0.f, c + 1 < W ? row[c + 1] : 0.f, c + 2 < W ? row[c + 2] : 0.f,
            c + 3 < W ? row[c + 3] : 0.f};
  }
}

// One row's sixteen heads, by kThreads threads with attend_shared() bytes of memory.
template <int L, int P>
struct AttendTile {
  static constexpr int kWidth = L + P;
  static constexpr int kSteps = (kWidth + 15) / 16;  // of sixteen columns
  static constexpr int kMostSteps = (kSteps + kWarps - 1) / kWarps;
  static constexpr int kGroups = (L + 31) / 32;  // of 32 columns of the result
  static constexpr int kMostGroups = (kGroups + kWarps - 1) / kWarps;
  static constexpr int kSlices = kAttendStep / 16;    // of sixteen positions
  static constexpr int kTiles = kAttendStep / 8;      // of eight
  static constexpr int kStride = attend_row(kWidth);  // of the queries
  static constexpr int kPart = kAttendPart, kWeight = kAttendWeight;
  static constexpr int kWarpHeads = kAttendHeads / kWarps;  // whose weights a warp makes

  float* query;    // [heads, kStride]
  float* parts;    // [warps, heads, kPart] of the scores
  float* weights;  // [heads, kWeight]
  float* keeps;    // [heads] what becomes of the sums so far
  float* takes;    // [heads]
  float* others;   // [heads]

  int lane, warp, g, j;
  Softmax seen[kWarpHeads];  // of the warp's heads, in the segment
  float z[kMostGroups][4][4] = {};

  SPK_DEVICE AttendTile(float* memory, int thread)
      : query(memory),
        parts(query + kAttendHeads * kStride),
        weights(parts + kWarps * kAttendHeads * kPart),
        keeps(weights + kAttendHeads * kWeight),
        takes(keeps + kAttendHeads),
        others(takes + kAttendHeads),
        lane(thread % kWarp),
        warp(thread / kWarp),
        g(lane / 4),
        j(lane % 4) {}

  SPK_DEVICE void stage_query(const AttendArgs& a, int row, int h0) {
    const float* latent = row_of(a.q_latent, row);
    const float* rope = row_of(a.q, row) + a.nope;
#pragma unroll 4
    for (int e = warp * kWarp + lane; e < kAttendHeads * kSteps * 16; e += kThreads) {
      const int c = e % (kSteps * 16), at = e / (kSteps * 16);
      const i64 h = min(h0 + at, a.heads - 1);  // no head: the last one again
      query[at * kStride + c] = c < L        ? latent[h * L + c]
                                : c < kWidth ? rope[h * a.width + c - L]
                                             : 0.f;
    }
  }

  // The warp's columns of the scores of a step: positions from `first` on, of which `count` are
  // there; for those behind them the last one again.
  SPK_DEVICE void add_scores(const float* first, int pitch, int count) {
    const int begin = kSteps * warp / kWarps, steps = kSteps * (warp + 1) / kWarps - begin;
    const float* from[kTiles];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) from[n] = first + min(8 * n + g, count - 1) * pitch;
    float4 b[2][kTiles];
    const auto load = [&](int s) {
      const int c = 16 * min(begin + s, kSteps - 1) + 4 * j;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) b[s % 2][n] = four_of<kWidth>(from[n], c);
    };
    float c[kTiles][4] = {};
    load(0);
#pragma unroll
    for (int s = 0; s < kMostSteps; ++s) {
      if (s + 1 < kMostSteps) load(s + 1);
      if (s < steps) {
        const float* q = query + g * kStride + 16 * (begin + s) + 4 * j;
        const SplitRows rows(*reinterpret_cast<const float4*>(q),
                             *reinterpret_cast<const float4*>(q + 8 * kStride));
#pragma unroll
        for (int n = 0; n < kTiles; ++n)
          multiply_split(c[n], rows, b[s % 2][n].x, b[s % 2][n].y, b[s % 2][n].z, b[s % 2][n].w);
      }
    }
    float* to = parts + (warp * kAttendHeads + g) * kPart + 2 * j;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      *reinterpret_cast<float2*>(to + 8 * n) = {c[n][0], c[n][1]};
      *reinterpret_cast<float2*>(to + 8 * kPart + 8 * n) = {c[n][2], c[n][3]};
    }
  }

  // A head's scores of a step, a lane a position, become weights. `opens`: the segment's first.
  SPK_DEVICE void weigh(int count, bool opens, float scale) {
    static_assert(kAttendStep == kWarp, "a lane a position");
#pragma unroll
    for (int k = 0; k < kWarpHeads; ++k) {
      const int h = warp * kWarpHeads + k;
      float score = parts[h * kPart + lane];
#pragma unroll
      for (int w = 1; w < kWarps; ++w) score += parts[(w * kAttendHeads + h) * kPart + lane];
      score *= scale;
      const bool there = lane < count;
      const float largest = warp_max(there ? score : __uint_as_float(0xff800000u));
      const float top = opens || largest > seen[k].top ? largest : seen[k].top;
      const float keep = opens ? 0.f : expf(seen[k].top - top);
      const float weight = there ? expf(score - top) : 0.f;
      const float sum = warp_sum(weight);
      seen[k] = {top, opens ? sum : fmaf(seen[k].sum, keep, sum)};
      weights[h * kWeight + lane] = weight;
      if (lane == 0) keeps[h] = keep;
    }
  }

  // z of the warp's columns: what was summed before, and the step's latents by their weights. Of
  // four neighbouring columns one goes to each of four tiles.
  SPK_DEVICE void add_values(const float* first, int pitch, int count, bool opens) {
    const float upper = opens ? 0.f : keeps[g], lower = opens ? 0.f : keeps[g + 8];
#pragma unroll
    for (int k = 0; k < kMostGroups; ++k)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        z[k][e][0] = opens ? 0.f : z[k][e][0] * upper;
        z[k][e][1] = opens ? 0.f : z[k][e][1] * upper;
        z[k][e][2] = opens ? 0.f : z[k][e][2] * lower;
        z[k][e][3] = opens ? 0.f : z[k][e][3] * lower;
      }
    if (warp * kMostGroups >= kGroups) return;
    constexpr int kTurns = kSlices * kMostGroups;
    float4 b[2][4];
    const auto load = [&](int turn) {
      const int slice = turn / kMostGroups, group = warp * kMostGroups + turn % kMostGroups;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        b[turn % 2][i] =
            four_of<kWidth>(first + min(16 * slice + 4 * j + i, count - 1) * pitch,
                            L % 32 == 0 || 32 * group + 4 * g < L ? 32 * group + 4 * g : 0);
    };
    load(0);
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      if (turn + 1 < kTurns) load(turn + 1);
      const float* weight = weights + g * kWeight + 16 * (turn / kMostGroups) + 4 * j;
      const SplitRows rows(*reinterpret_cast<const float4*>(weight),
                           *reinterpret_cast<const float4*>(weight + 8 * kWeight));
      const float4(&v)[4] = b[turn % 2];
      float(&to)[4][4] = z[turn % kMostGroups];
      multiply_split(to[0], rows, v[0].x, v[1].x, v[2].x, v[3].x);
      multiply_split(to[1], rows, v[0].y, v[1].y, v[2].y, v[3].y);
      multiply_split(to[2], rows, v[0].z, v[1].z, v[2].z, v[3].z);
      multiply_split(to[3], rows, v[0].w, v[1].w, v[2].w, v[3].w);
    }
  }

  // One segment, or what of it is in front of `end`. Threads of other tiles of the block have as
  // many steps.
  SPK_DEVICE void run(const AttendArgs& a, i64 begin, i64 end) {
    const int pitch = static_cast<int>(a.latent.stride);
    for (i64 start = begin; start < end; start += kAttendStep) {
      const float* first = row_of(a.latent, start);
      const int count = static_cast<int>(end - start < kAttendStep ? end - start : kAttendStep);
      if (const i64 left = end - start - kAttendStep; left > 0)
        ask_for_rows(first + kAttendStep * pitch, pitch, left);
      add_scores(first, pitch, count);
      __syncthreads();
      weigh(count, start == begin, a.scale);
      __syncthreads();
      add_values(first, pitch, count, start == begin);
    }
  }
  // A step's latents, by the block.
  SPK_DEVICE static void ask_for_rows(const float* first, int pitch, i64 rows) {
    const int bytes = static_cast<int>(rows < kAttendStep ? rows : kAttendStep) * pitch * 4;
    const int threads = static_cast<int>(blockDim.x);
    for (int at = static_cast<int>(threadIdx.x) * kLineBytes; at < bytes;
         at += threads * kLineBytes)
      ask_for_line(reinterpret_cast<const char*>(first) + at);
  }

  // Column of z[k][e][i], i % 2 = 0; the one of i + 1 is four further.
  SPK_DEVICE int column(int k, int e) const { return 32 * (warp * kMostGroups + k) + 8 * j + e; }
};

// Grid: (segments, tiles of heads / those of a block, rows); kThreads threads and attend_shared()
// bytes a tile. Leaves pieces for attend_merge.
template <int L, int P>
__global__ void __launch_bounds__(kAttendTiles* kThreads, 1) attend(const AttendArgs a) {
  using Tile = AttendTile<L, P>;
  SPK_DYNAMIC_SHARED(memory);
  let_next_start();
  // The longest segments are the last ones: they start first.
  const int segment = static_cast<int>(gridDim.x) - 1 - static_cast<int>(blockIdx.x);
  const i64 begin = segment_begin(segment);
  // Lines of the cache may be asked for before anything of this step is there.
  if (begin < a.positions)
    Tile::ask_for_rows(row_of(a.latent, begin), static_cast<int>(a.latent.stride),
                       a.positions - begin);
  wait_for_previous();
  const int row = blockIdx.z, thread = threadIdx.x % kThreads, at = threadIdx.x / kThreads;
  const i64 seen = a.step->first_position + row + 1;
  if (begin >= seen) return;  // the whole block: this row ends before
  const int tiles = static_cast<int>(blockDim.x) / kThreads;
  const int h0 = (static_cast<int>(blockIdx.y) * tiles + at) * kAttendHeads;
  Tile tile(reinterpret_cast<float*>(memory) + at * attend_floats(L + P), thread);
  tile.stage_query(a, row, h0);
  __syncthreads();
  const i64 end = segment_begin(segment + 1);
  tile.run(a, begin, end < seen ? end : seen);
  const i64 piece = (static_cast<i64>(segment) * a.n + row) * a.heads + h0;
#pragma unroll
  for (int k = 0; k < Tile::kWarpHeads; ++k) {
    const int h = tile.warp * Tile::kWarpHeads + k;
    if (tile.lane != 0 || h0 + h >= a.heads) continue;
    a.piece_top[piece + h] = tile.seen[k].top;
    a.piece_sum[piece + h] = tile.seen[k].sum;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int h = tile.g + 8 * half;
    if (h0 + h >= a.heads) continue;
    float* to = a.piece_z + (piece + h) * L;
#pragma unroll
    for (int k = 0; k < Tile::kMostGroups; ++k)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int c = tile.column(k, 4 * i);
        const float(&z)[4][4] = tile.z[k];
        const int p = 2 * half + i;
        if constexpr (L % 4 == 0) {
          if (c < L) *reinterpret_cast<float4*>(to + c) = {z[0][p], z[1][p], z[2][p], z[3][p]};
        } else {
#pragma unroll
          for (int e = 0; e < 4; ++e)
            if (c + e < L) to[c + e] = z[e][p];
        }
      }
  }
}

// The same without pieces: a tile's block takes all segments of a row, one after the other. Grid:
// (1, tiles of heads, rows).
template <int L, int P>
__global__ void __launch_bounds__(kThreads, 1) attend_whole(const AttendArgs a) {
  using Tile = AttendTile<L, P>;
  SPK_DYNAMIC_SHARED(memory);
  start_after_previous();
  const int row = blockIdx.z, h0 = static_cast<int>(blockIdx.y) * kAttendHeads;
  const i64 seen = a.step->first_position + row + 1;
  Tile tile(reinterpret_cast<float*>(memory), threadIdx.x);
  tile.stage_query(a, row, h0);
  __syncthreads();
  Softmax total[Tile::kWarpHeads];
  float z[Tile::kMostGroups][4][4];
  const int segments = segment_of(seen - 1) + 1;
  for (int segment = 0; segment < segments; ++segment) {
    const i64 end = segment_begin(segment + 1);
    tile.run(a, segment_begin(segment), end < seen ? end : seen);
#pragma unroll
    for (int k = 0; k < Tile::kWarpHeads; ++k) {
      const int h = tile.warp * Tile::kWarpHeads + k;
      float keep = 0.f, take = 1.f;
      if (segment == 0) {
        total[k] = tile.seen[k];
      } else {
        merge_softmax(total[k], tile.seen[k], keep, take);
      }
      if (tile.lane == 0) {
        tile.takes[h] = take;
        tile.others[h] = keep;
      }
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < Tile::kMostGroups; ++k)
#pragma unroll
      for (int e = 0; e < 4; ++e)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int h = tile.g + i / 2 * 8;
          z[k][e][i] = segment == 0
                           ? tile.z[k][e][i]
                           : fmaf(tile.takes[h], tile.z[k][e][i], tile.others[h] * z[k][e][i]);
        }
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < Tile::kWarpHeads; ++k)
    if (tile.lane == 0) tile.takes[tile.warp * Tile::kWarpHeads + k] = 1.f / total[k].sum;
  __syncthreads();
#pragma unroll
  for (int k = 0; k < Tile::kMostGroups; ++k)
#pragma unroll
    for (int e = 0; e < 4; ++e)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int h = tile.g + i / 2 * 8, c = tile.column(k, e) + i % 2 * 4;
        if (h0 + h < a.heads && c < L)
          row_at(a.z, row)[static_cast<i64>(h0 + h) * L + c] = z[k][e][i] * tile.takes[h];
      }
}

}  // namespace spk::gpu
