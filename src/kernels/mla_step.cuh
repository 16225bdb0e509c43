// A step of latent attention: 32 positions, one row's sixteen heads, eight warps.
//
// Both products run on the matrix unit (tf32.cuh): sixteen heads are the rows of a tile, so a
// latent that is read once serves sixteen of them. Latents go from memory to the registers that the
// instruction reads, without a stop in shared memory: a lane takes four neighbouring numbers, whose
// order along a sum is free. For the scores the warps share out the columns, for the values those
// of the result; a step's latents, 74 KB, are read from memory once and from the L1 the second
// time.
//
// A score is the sum over the warps, in order, of their columns ascending. Weights are relative to
// the largest score so far, and what was summed before is brought down to it.
#pragma once

#include "kernels/tf32.cuh"

namespace spk::gpu {

// Four numbers of a row of W that has `left` from there on; zeros behind its end.
template <int W>
SPK_DEVICE float4 four_of(const float* at, int left) {
  if constexpr (W % 16 == 0) {
    return *reinterpret_cast<const float4*>(at);
  } else if constexpr (W % 4 == 0) {
    return left > 0 ? *reinterpret_cast<const float4*>(at) : float4{0.f, 0.f, 0.f, 0.f};
  } else {  // rows begin anywhere
    return {left > 0 ? at[0] : 0.f, left > 1 ? at[1] : 0.f, left > 2 ? at[2] : 0.f,
            left > 3 ? at[3] : 0.f};
  }
}

// One row's sixteen heads, by kThreads threads.
template <int L, int P>
struct AttendShape {
  static constexpr int kWidth = L + P;
  static constexpr int kSteps = (kWidth + 15) / 16;                   // of sixteen columns
  static constexpr int kGroups = (L + 31) / 32;                       // of 32 columns of the result
  static constexpr int kOwnGroups = (kGroups + kWarps - 1) / kWarps;  // of a warp
  static constexpr int kRow = attend_row(kWidth);                     // of the queries
};
constexpr int kWarpHeads = kAttendHeads / kWarps;  // whose weights a warp makes
constexpr int kSlices = kAttendStep / 16;          // of sixteen positions
constexpr int kEights = kAttendStep / 8;           // of eight

// Where a thread stands in its tile, and the tile's memory. Worked out anew in each phase, because
// registers are what there is least of.
template <int L, int P>
struct AttendPlace {
  int lane, warp, g, j;
  float* query;    // [heads, kRow]
  float* parts;    // [warps, heads, kAttendPart] of the scores
  float* weights;  // [heads, kAttendWeight]
  float* keeps;    // [heads] what becomes of the sums so far
  float* tops;     // [heads] of the segment up to here
  float* sums;     // [heads]
  float* takes;    // [heads] at the end of a segment
  float* others;   // [heads]
  int first_head;

  SPK_DEVICE AttendPlace() {
    SPK_DYNAMIC_SHARED(memory);
    const unsigned t = thread_now();
    const int tile = static_cast<int>(t / kThreads);
    lane = static_cast<int>(t % kWarp);
    warp = static_cast<int>(t / kWarp % kWarps);
    g = lane / 4, j = lane % 4;
    first_head = (static_cast<int>(blockIdx.y * (blockDim.x / kThreads)) + tile) * kAttendHeads;
    query = reinterpret_cast<float*>(memory) + tile * attend_floats(L + P);
    parts = query + kAttendHeads * AttendShape<L, P>::kRow;
    weights = parts + kWarps * kAttendHeads * kAttendPart;
    keeps = weights + kAttendHeads * kAttendWeight;
    tops = keeps + kAttendHeads;
    sums = tops + kAttendHeads;
    takes = sums + kAttendHeads;
    others = takes + kAttendHeads;
  }
};

// A warp's heads, all at once: rows may lie anywhere, so number by number.
template <int L, int P>
SPK_DEVICE void stage_query(const AttendArgs& a) {
  using S = AttendShape<L, P>;
  constexpr int kPerLane = (S::kSteps * 16 + kWarp - 1) / kWarp;
  const AttendPlace<L, P> p;
  const int row = blockIdx.z;
  float value[kWarpHeads][kPerLane];
#pragma unroll
  for (int k = 0; k < kWarpHeads; ++k) {
    // No head: the last one again.
    const i64 h = min(p.first_head + p.warp * kWarpHeads + k, a.heads - 1);
    const float* latent = row_of(a.q_latent, row) + h * L;
    const float* rope = row_of(a.q, row) + h * a.width + a.nope;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int c = i * kWarp + p.lane;
      value[k][i] = c < L ? latent[c] : c < S::kWidth ? rope[c - L] : 0.f;
    }
  }
#pragma unroll
  for (int k = 0; k < kWarpHeads; ++k)
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      if (const int c = i * kWarp + p.lane; c < S::kRow)
        p.query[(p.warp * kWarpHeads + k) * S::kRow + c] = value[k][i];
}

// ---- a step ----
// The latents of a step: rows from `first` on, of which `count` are there; for those behind them
// the last one again, whose weight is then zero.
struct AttendStep {
  const float* first;
  int pitch, count;

  // In numbers from `first`; unsigned, so that sums of it stay 32 bits wide.
  SPK_DEVICE unsigned row(int position) const { return min(position, count - 1) * pitch; }
};

// The warp's columns of the scores.
template <int L, int P>
SPK_DEVICE void add_scores(const AttendStep& step) {
  using S = AttendShape<L, P>;
  const AttendPlace<L, P> p;
  const int begin = S::kSteps * p.warp / kWarps, end = S::kSteps * (p.warp + 1) / kWarps;
  unsigned row[kEights];
#pragma unroll
  for (int n = 0; n < kEights; ++n) row[n] = step.row(8 * n + p.g);
  const auto load = [&](int s, int n) {
    const int c = 16 * min(s, S::kSteps - 1) + 4 * p.j;
    return four_of<S::kWidth>(step.first + (row[n] + c), S::kWidth - c);
  };
  float4 b[kEights];
  float c[kEights][4] = {};
  const float* q = p.query + p.g * S::kRow + 4 * p.j;
#pragma unroll
  for (int n = 0; n < kEights; ++n) b[n] = load(begin, n);
#pragma unroll 1
  for (int s = begin; s < end; ++s) {
    const float4 upper = *reinterpret_cast<const float4*>(q + 16 * s);
    const float4 lower = *reinterpret_cast<const float4*>(q + 16 * s + 8 * S::kRow);
    const SplitRows left(upper.x, upper.y, lower.x, lower.y);
#pragma unroll
    for (int n = 0; n < kEights; ++n) multiply_split(c[n], left, b[n].x, b[n].y);
    const SplitRows right(upper.z, upper.w, lower.z, lower.w);
#pragma unroll
    for (int n = 0; n < kEights; ++n) {
      multiply_split(c[n], right, b[n].z, b[n].w);
      b[n] = load(s + 1, n);  // in vain behind the last one
    }
  }
  float* to = p.parts + (p.warp * kAttendHeads + p.g) * kAttendPart + 2 * p.j;
#pragma unroll
  for (int n = 0; n < kEights; ++n) {
    *reinterpret_cast<float2*>(to + 8 * n) = {c[n][0], c[n][1]};
    *reinterpret_cast<float2*>(to + 8 * kAttendPart + 8 * n) = {c[n][2], c[n][3]};
  }
}

// The scores of a warp's heads, a lane a position, become weights. `opens`: the segment's first.
template <int L, int P>
SPK_DEVICE void weigh(int count, bool opens, float scale) {
  static_assert(kAttendStep == kWarp, "a lane a position");
  const AttendPlace<L, P> p;
#pragma unroll
  for (int k = 0; k < kWarpHeads; ++k) {
    const int h = p.warp * kWarpHeads + k;
    const float* part = p.parts + h * kAttendPart + p.lane;
    float score = part[0];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) score += part[w * kAttendHeads * kAttendPart];
    score *= scale;
    const bool there = p.lane < count;
    float top = warp_max(there ? score : __uint_as_float(0xff800000u)), keep = 0.f;
    if (!opens) {
      const float before = p.tops[h];
      top = top > before ? top : before;
      keep = expf(before - top);
    }
    const float weight = there ? expf(score - top) : 0.f;
    float sum = warp_sum(weight);
    if (!opens) sum = fmaf(p.sums[h], keep, sum);
    p.weights[h * kAttendWeight + p.lane] = weight;
    __syncwarp();  // all have read what is written now
    if (p.lane == 0) {
      p.keeps[h] = keep;
      p.tops[h] = top;
      p.sums[h] = sum;
    }
  }
}

// z of the warp's columns: what was summed before, brought down, and the step's latents by their
// weights. Of four neighbouring columns one goes to each of four tiles.
template <int L, int P>
SPK_DEVICE void add_values(const AttendStep& step, bool opens,
                           float (&z)[AttendShape<L, P>::kOwnGroups][4][4]) {
  using S = AttendShape<L, P>;
  const AttendPlace<L, P> p;
  const int first_group = p.warp * S::kOwnGroups;
  if (first_group >= S::kGroups) return;
  const float upper_keep = p.keeps[p.g], lower_keep = p.keeps[p.g + 8];
#pragma unroll
  for (int k = 0; k < S::kOwnGroups; ++k)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      z[k][e][0] = opens ? 0.f : z[k][e][0] * upper_keep;
      z[k][e][1] = opens ? 0.f : z[k][e][1] * upper_keep;
      z[k][e][2] = opens ? 0.f : z[k][e][2] * lower_keep;
      z[k][e][3] = opens ? 0.f : z[k][e][3] * lower_keep;
    }
  // Columns behind the end of the result: any other.
  const float* weight = p.weights + p.g * kAttendWeight + 4 * p.j;
#pragma unroll 1
  for (int slice = 0; slice < kSlices; ++slice, weight += 16) {
    const float4 upper = *reinterpret_cast<const float4*>(weight);
    const float4 lower = *reinterpret_cast<const float4*>(weight + 8 * kAttendWeight);
    const SplitRows left(upper.x, upper.y, lower.x, lower.y);
    const SplitRows right(upper.z, upper.w, lower.z, lower.w);
#pragma unroll
    for (int k = 0; k < S::kOwnGroups; ++k) {
      const int group = 32 * (first_group + k) + 4 * p.g, c = L % 32 == 0 || group < L ? group : 0;
      // From the L1, which is near enough not to ask ahead: that would take registers.
      __syncwarp();
      float4 b[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        b[i] = four_of<S::kWidth>(step.first + (step.row(16 * slice + 4 * p.j + i) + c),
                                  S::kWidth - c);
      multiply_split(z[k][0], left, b[0].x, b[1].x);
      multiply_split(z[k][1], left, b[0].y, b[1].y);
      multiply_split(z[k][2], left, b[0].z, b[1].z);
      multiply_split(z[k][3], left, b[0].w, b[1].w);
      multiply_split(z[k][0], right, b[2].x, b[3].x);
      multiply_split(z[k][1], right, b[2].y, b[3].y);
      multiply_split(z[k][2], right, b[2].z, b[3].z);
      multiply_split(z[k][3], right, b[2].w, b[3].w);
    }
  }
}
// The first of the columns of z[k][e][i]: the one of odd i is four further.
template <int L, int P>
SPK_DEVICE int column_of(const AttendPlace<L, P>& p, int k) {
  return 32 * (p.warp * AttendShape<L, P>::kOwnGroups + k) + 8 * p.j;
}

}  // namespace spk::gpu
