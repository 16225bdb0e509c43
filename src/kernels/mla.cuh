// Gated latent attention: attention in latent space. What comes before it is in latent.cuh.
//
// Attention cuts positions on a fixed grid of absolute segments. Inside a segment: scores, their
// largest, exponentials, weighted sum; segments are merged in order. A few rows spread their
// segments over blocks and merge in a second launch, many rows merge as they go; both do the same
// operations in the same order, so a row's bits depend on its position alone.
#pragma once

#include "kernels/weights.cuh"

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

// Grid: (segments, heads / kAttendHeads, rows) when split, else (1, heads / kAttendHeads, rows).
template <int L, int P, bool kSplit>
__global__ void __launch_bounds__(kThreads, 2) attend(const AttendArgs a) {
  start_after_previous();
  constexpr int kWidth = L + P;
  constexpr int kColumns = (L + kThreads - 1) / kThreads;  // of z, per thread
  // Positions that are asked for before the first is used.
  constexpr int kScoresAtOnce = 2, kPositionsAtOnce = 16;
  constexpr int kPerLane = (kWidth + kWarp - 1) / kWarp;
  static_assert(kAttendHeads == 4, "scores of a position are one float4");
  SPK_SHARED(float, query, kAttendHeads* kWidth);
  SPK_SHARED(float, scores, kSegment* kAttendHeads);  // of a position: its heads
  SPK_SHARED(float, tops, kAttendHeads);
  SPK_SHARED(float, sums, kAttendHeads);
  const int t = threadIdx.x, lane = t % kWarp, warp = t / kWarp;
  const int h0 = blockIdx.y * kAttendHeads, row = blockIdx.z;
  const int heads = min(kAttendHeads, a.heads - h0);
  const i64 seen = a.step->first_position + row + 1;
  for (int e = t; e < kAttendHeads * kWidth; e += kThreads) {
    const int h = h0 + min(e / kWidth, heads - 1), c = e % kWidth;  // no head: the last one again
    query[e] = c < L ? row_of(a.q_latent, row)[static_cast<i64>(h) * L + c]
                     : row_of(a.q, row)[static_cast<i64>(h) * a.width + a.nope + c - L];
  }
  __syncthreads();
  Softmax total[kAttendHeads];
  float z[kAttendHeads][kColumns];
  const int begin = kSplit ? blockIdx.x : 0;
  const int end = kSplit ? begin + 1 : static_cast<int>((seen + kSegment - 1) / kSegment);
  for (int segment = begin; segment < end; ++segment) {
    const i64 start = static_cast<i64>(segment) * kSegment;
    const int count = static_cast<int>(seen - start < kSegment ? seen - start : kSegment);
    if (kSplit && count <= 0) return;  // the whole block: this row ends before
    for (int m = warp; m < count; m += kWarps * kScoresAtOnce) {
      const float* c[kScoresAtOnce];
#pragma unroll
      for (int p = 0; p < kScoresAtOnce; ++p)
        c[p] = row_of(a.latent, start + min(m + p * kWarps, count - 1));
      float value[kScoresAtOnce][kPerLane];
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) {
        const int e = j * kWarp + lane;
#pragma unroll
        for (int p = 0; p < kScoresAtOnce; ++p)
          value[p][j] = kWidth % kWarp == 0 || e < kWidth ? c[p][e] : 0.f;
      }
      float dot[kScoresAtOnce][kAttendHeads] = {};
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) {
        const int e = j * kWarp + lane;
        if (kWidth % kWarp != 0 && e >= kWidth) break;
#pragma unroll
        for (int h = 0; h < kAttendHeads; ++h) {
          const float q = query[h * kWidth + e];
#pragma unroll
          for (int p = 0; p < kScoresAtOnce; ++p) dot[p][h] = fmaf(q, value[p][j], dot[p][h]);
        }
      }
#pragma unroll
      for (int p = 0; p < kScoresAtOnce; ++p) {
#pragma unroll
        for (int h = 0; h < kAttendHeads; ++h) {
          dot[p][h] = warp_sum(dot[p][h]);
          if (lane == 0 && m + p * kWarps < count)
            scores[(m + p * kWarps) * kAttendHeads + h] = dot[p][h] * a.scale;
        }
      }
    }
    __syncthreads();
    if (warp < kAttendHeads) {
      const auto score = [&](int m) -> float& { return scores[m * kAttendHeads + warp]; };
      float top = score(0);
      for (int m = lane; m < count; m += kWarp) top = score(m) > top ? score(m) : top;
      top = warp_max(top);
      float sum = 0.f;
      for (int m = lane; m < count; m += kWarp) {
        score(m) = expf(score(m) - top);
        sum += score(m);
      }
      sum = warp_sum(sum);
      if (lane == 0) {
        tops[warp] = top;
        sums[warp] = sum;
      }
    }
    __syncthreads();
    float part[kAttendHeads][kColumns] = {};
    for (int m0 = 0; m0 < count; m0 += kPositionsAtOnce) {
      float value[kPositionsAtOnce][kColumns];
#pragma unroll
      for (int m = 0; m < kPositionsAtOnce; ++m) {
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          const int c = j * kThreads + t;
          value[m][j] = m0 + m < count && c < L ? row_of(a.latent, start + m0 + m)[c] : 0.f;
        }
      }
#pragma unroll
      for (int m = 0; m < kPositionsAtOnce; ++m) {
        if (m0 + m >= count) break;
        const float4 weight = reinterpret_cast<const float4*>(scores)[m0 + m];
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          part[0][j] = fmaf(weight.x, value[m][j], part[0][j]);
          part[1][j] = fmaf(weight.y, value[m][j], part[1][j]);
          part[2][j] = fmaf(weight.z, value[m][j], part[2][j]);
          part[3][j] = fmaf(weight.w, value[m][j], part[3][j]);
        }
      }
    }
#pragma unroll
    for (int h = 0; h < kAttendHeads; ++h) {
      const Softmax piece = {tops[h], sums[h]};
      float keep = 0.f, take = 1.f;
      if (segment == begin) {
        total[h] = piece;
      } else {
        merge_softmax(total[h], piece, keep, take);
      }
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
        z[h][j] = segment == begin ? part[h][j] : fmaf(take, part[h][j], keep * z[h][j]);
    }
    __syncthreads();  // before the next segment's scores
  }
#pragma unroll
  for (int h = 0; h < kAttendHeads; ++h) {
    if (h >= heads) break;
    float* out;
    float factor = 1.f;
    if constexpr (kSplit) {
      const i64 piece = (static_cast<i64>(blockIdx.x) * a.n + row) * a.heads + h0 + h;
      out = a.piece_z + piece * L;
      if (t == 0) {
        a.piece_top[piece] = total[h].top;
        a.piece_sum[piece] = total[h].sum;
      }
    } else {
      out = row_at(a.z, row) + static_cast<i64>(h0 + h) * L;
      factor = 1.f / total[h].sum;
    }
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const int c = j * kThreads + t;
      if (c < L) out[c] = kSplit ? z[h][j] : z[h][j] * factor;
    }
  }
}

// Grid: (heads, rows): the second launch of the split form. The factors of the merges depend on the
// segments' largest scores alone, so they are made for many segments at once; then the sums follow
// one another.
template <int L>
__global__ void __launch_bounds__(kThreads) attend_merge(const AttendArgs a) {
  start_after_previous();
  constexpr int kColumns = (L + kThreads - 1) / kThreads, kAtOnce = 8;
  SPK_SHARED(float, tops, kThreads);  // of the segments up to this one
  SPK_SHARED(float, keeps, kThreads);
  SPK_SHARED(float, takes, kThreads);
  SPK_SHARED(float, sums, kThreads);
  const int h = blockIdx.x, row = blockIdx.y, t = threadIdx.x;
  const i64 seen = a.step->first_position + row + 1;
  const int segments = static_cast<int>((seen + kSegment - 1) / kSegment);
  const auto piece = [&](int segment) {
    return (static_cast<i64>(segment) * a.n + row) * a.heads + h;
  };
  float z[kColumns] = {}, total = 0.f, top_before = 0.f;
  for (int first = 0; first < segments; first += kThreads) {
    const int count = min(segments - first, kThreads);
    const float own = t < count ? a.piece_top[piece(first + t)] : __uint_as_float(0xff800000u);
    sums[t] = t < count ? a.piece_sum[piece(first + t)] : 0.f;
    tops[t] = own;
    __syncthreads();
    for (int d = 1; d < kThreads; d *= 2) {  // running maxima
      const float other = t >= d ? tops[t - d] : own;
      __syncthreads();
      tops[t] = other > tops[t] ? other : tops[t];
      __syncthreads();
    }
    const auto top_up_to = [&](int i) {
      const float here = tops[i];
      return first > 0 && top_before > here ? top_before : here;
    };
    // As merge_softmax has them; the first segment is taken as it is.
    if (t < count) {
      const float top = top_up_to(t);
      const float before = t > 0 ? top_up_to(t - 1) : top_before;
      keeps[t] = first + t == 0 ? 0.f : expf(before - top);
      takes[t] = first + t == 0 ? 1.f : expf(own - top);
    }
    const float top_behind = top_up_to(count - 1);
    __syncthreads();
    for (int i0 = 0; i0 < count; i0 += kAtOnce) {
      float value[kAtOnce][kColumns];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          const int c = j * kThreads + t;
          value[i][j] = i0 + i < count && c < L ? a.piece_z[piece(first + i0 + i) * L + c] : 0.f;
        }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (i0 + i >= count) break;
        const bool only = first + i0 + i == 0;
        const float keep = keeps[i0 + i], take = takes[i0 + i], sum = sums[i0 + i];
        total = only ? sum : fmaf(total, keep, sum * take);
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
          z[j] = only ? value[i][j] : fmaf(take, value[i][j], keep * z[j]);
      }
    }
    top_before = top_behind;
    __syncthreads();  // before the next segments' tops
  }
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
    const int c = j * kThreads + t;
    if (c < L) row_at(a.z, row)[static_cast<i64>(h) * L + c] = z[j] * (1.f / total);
  }
}

}  // namespace spk::gpu
