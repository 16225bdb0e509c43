// The mixture of experts: choice, work items, gate/up/activation, down, weighted sum.
//
// The choice is exact: groups and top-k by value, ties to the lower index. Work items gather the
// rows that chose the same expert, so that its weights are read once for up to eight rows; a pair's
// numbers are those of matvec's order, so they do not depend on who shares the item.
#pragma once

#include "kernels/matvec.cuh"

namespace spk::gpu {

struct Best {
  float value;
  int index;
};
constexpr int kNobody = 0x7fffffff;
SPK_DEVICE bool is_better(const Best& a, const Best& b) {
  return a.value > b.value || (a.value == b.value && a.index < b.index);
}
SPK_DEVICE Best warp_best(Best x) {
#pragma unroll
  for (int d = kWarp / 2; d > 0; d /= 2) {
    const Best other = {__shfl_xor_sync(kAllLanes, x.value, d),
                        __shfl_xor_sync(kAllLanes, x.index, d)};
    if (is_better(other, x)) x = other;
  }
  return x;
}

// Grid: rows; one warp a row.
template <int = 0>
__global__ void __launch_bounds__(kWarp) route(const RouteArgs a) {
  start_after_previous();
  SPK_SHARED(float, biased, kMaxExperts);
  SPK_SHARED(float, group, kMaxGroups);
  SPK_SHARED(int, taken, kMaxExperts / kWarp);      // bit = lane, word = e / kWarp
  const float kOut = __uint_as_float(0xff800000u);  // minus infinity: biased scores may be negative
  const int lane = threadIdx.x, per_group = a.experts / a.groups;
  float* score = row_at(a.scores, blockIdx.x);
  int* ids = a.ids.data + blockIdx.x * a.ids.stride;
  for (int e = lane; e < a.experts; e += kWarp) {
    const float s = sigmoid(score[e]);
    score[e] = s;
    const float b = s + a.bias[e];
    biased[e] = b == b ? b : kOut;
  }
  for (int w = lane; w < kMaxExperts / kWarp; w += kWarp) taken[w] = 0;
  __syncwarp();
  if (a.forced.data) {
    for (int k = lane; k < a.top_k; k += kWarp)
      ids[k] = a.forced.data[blockIdx.x * a.forced.stride + k];
  } else {
    for (int g = lane; g < a.groups; g += kWarp) {
      float first = kOut, second = kOut;
      for (int e = g * per_group; e < (g + 1) * per_group; ++e) {
        const float x = biased[e];
        if (x > first) {
          second = first;
          first = x;
        } else if (x > second) {
          second = x;
        }
      }
      group[g] = per_group > 1 ? first + second : first;
    }
    __syncwarp();
    for (int g = lane; g < a.groups; g += kWarp) {
      int better = 0;
      for (int other = 0; other < a.groups; ++other)
        better += is_better({group[other], other}, {group[g], g}) ? 1 : 0;
      if (better < a.keep_groups) continue;
      for (int e = g * per_group; e < (g + 1) * per_group; ++e) biased[e] = kOut;
    }
    __syncwarp();
    for (int k = 0; k < a.top_k; ++k) {
      Best best = {kOut, kNobody};
      for (int e = lane; e < a.experts; e += kWarp) {
        const Best x = {biased[e], e};
        const bool is_taken = (taken[e / kWarp] >> lane & 1) != 0;
        if (!is_taken && is_better(x, best)) best = x;
      }
      best = warp_best(best);
      if (lane == 0) ids[k] = best.index;
      if (lane == best.index % kWarp) taken[best.index / kWarp] |= 1 << lane;
      __syncwarp();
    }
  }
  __syncwarp();
  float sum = 1e-20f;
  for (int k = 0; k < a.top_k; ++k) sum += score[ids[k]];
  for (int k = lane; k < a.top_k; k += kWarp)
    row_at(a.weights, blockIdx.x)[k] = score[ids[k]] / sum * a.scale;
}

// One block: items in ascending order of experts, pairs in ascending order.
template <int = 0>
__global__ void __launch_bounds__(kThreads) expert_items(const ItemsArgs a) {
  start_after_previous();
  constexpr int kPerThread = kMaxExperts / kThreads;
  SPK_SHARED(int, items_before, kThreads);
  SPK_SHARED(int, used_before, kThreads);
  const int t = threadIdx.x, pairs = a.n * a.top_k;
  int chosen[kPerThread] = {};
  for (int p = 0; p < pairs; ++p) {
    const int e = a.ids.data[p / a.top_k * a.ids.stride + p % a.top_k];
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) chosen[j] += e == t * kPerThread + j ? 1 : 0;
  }
  int items = 0, used = 0;
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    items += (chosen[j] + a.item_rows - 1) / a.item_rows;
    used += chosen[j] > 0 ? 1 : 0;
  }
  items_before[t] = items;
  used_before[t] = used;
  __syncthreads();
  for (int d = 1; d < kThreads; d *= 2) {  // running sums
    const int add_items = t >= d ? items_before[t - d] : 0;
    const int add_used = t >= d ? used_before[t - d] : 0;
    __syncthreads();
    items_before[t] += add_items;
    used_before[t] += add_used;
    __syncthreads();
  }
  if (t == kThreads - 1) {
    *a.count = items_before[t];
    const auto distinct = static_cast<unsigned long long>(used_before[t]);
    a.totals[0] += distinct;
    a.totals[1] += distinct * a.expert_bytes;
  }
  int item = items_before[t] - items;
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    if (chosen[j] == 0) continue;
    const int expert = t * kPerThread + j;
    int left = chosen[j], filled = 0;
    int* to = a.items + static_cast<i64>(item) * kItemInts;
    for (int p = 0; p < pairs; ++p) {
      if (a.ids.data[p / a.top_k * a.ids.stride + p % a.top_k] != expert) continue;
      if (filled == 0) {
        to[0] = expert;
        to[1] = left < a.item_rows ? left : a.item_rows;
      }
      to[2 + filled] = p;
      if (++filled == a.item_rows) {
        left -= a.item_rows;
        filled = 0;
        ++item;
        to += kItemInts;
      }
    }
    if (filled > 0) ++item;
  }
}

// Grid: (width / (kWarps * 2), items). A warp streams two rows of gate and the same two of up.
template <int F, int R>
__global__ void SPK_MANY_REGISTERS expert_up(const ExpertsArgs a) {
  start_after_previous();
  if (static_cast<int>(blockIdx.y) >= *a.count) return;
  const int* item = a.items + static_cast<i64>(blockIdx.y) * kItemInts;
  const int first = (blockIdx.x * kWarps + threadIdx.x / kWarp) * 2, n = item[1];
  if (first >= a.width) return;  // a whole warp
  const ExpertWeights& e = a.experts[item[0]];
  const int second = min(first + 1, a.width - 1);
  const WeightRow w[kWeightRows] = {
      {e.gate, first}, {e.gate, second}, {e.up, first}, {e.up, second}};
  const float* x[R];
#pragma unroll
  for (int i = 0; i < R; ++i) x[i] = row_of(a.x, item[2 + min(i, n - 1)] / a.top_k);
  float sum[kWeightRows][R];
  dots<F, R>(w, x, n, is_aligned(a.x.data, a.x.stride), sum);
  if (threadIdx.x % kWarp != 0) return;
#pragma unroll
  for (int i = 0; i < R; ++i) {
    if (i >= n) break;
    float* act = a.act + static_cast<i64>(item[2 + i]) * a.width;
    act[first] = activate(sum[0][i], sum[2][i], a.limit);
    if (first + 1 < a.width) act[first + 1] = activate(sum[1][i], sum[3][i], a.limit);
  }
}

// Grid: (hidden / (kWarps * kWeightRows), items).
template <int F, int R>
__global__ void SPK_MANY_REGISTERS expert_down(const ExpertsArgs a) {
  start_after_previous();
  if (static_cast<int>(blockIdx.y) >= *a.count) return;
  const int* item = a.items + static_cast<i64>(blockIdx.y) * kItemInts;
  const int first = (blockIdx.x * kWarps + threadIdx.x / kWarp) * kWeightRows, n = item[1];
  if (first >= a.hidden) return;  // a whole warp
  const Matrix& down = a.experts[item[0]].down;
  WeightRow w[kWeightRows];
#pragma unroll
  for (int r = 0; r < kWeightRows; ++r) w[r] = {down, min(first + r, a.hidden - 1)};
  const float* x[R];
#pragma unroll
  for (int i = 0; i < R; ++i) x[i] = a.act + static_cast<i64>(item[2 + min(i, n - 1)]) * a.width;
  float sum[kWeightRows][R];
  dots<F, R>(w, x, n, is_aligned(a.act, a.width), sum);
  if (threadIdx.x % kWarp != 0) return;
#pragma unroll
  for (int i = 0; i < R; ++i) {
    if (i >= n) break;
    float* out = a.out + static_cast<i64>(item[2 + i]) * a.hidden + first;
#pragma unroll
    for (int r = 0; r < kWeightRows; ++r)
      if (first + r < a.hidden) out[r] = sum[r][i];
  }
}

// Grid: (hidden / kThreads, rows). Slots in order, the shared expert last.
template <int = 0>
__global__ void __launch_bounds__(kThreads) expert_sum(const ExpertSumArgs a) {
  start_after_previous();
  const int c = blockIdx.x * kThreads + threadIdx.x;
  const i64 row = blockIdx.y;
  if (c >= a.hidden) return;
  const float* weight = row_of(a.weights, row);
  float sum = 0.f;
  for (int k = 0; k < a.top_k; ++k)
    sum = fmaf(weight[k], a.out[(row * a.top_k + k) * a.hidden + c], sum);
  if (a.shared) sum += a.shared[row * a.hidden + c];
  row_at(a.o, row)[c] = sum;
}

// Activations of the FP8 mode: E4M3 codes times a power of two per 32 columns, the largest value's
// exponent on 2^8. Grid: (columns / kThreads, rows); a warp takes a group.
template <int = 0>
__global__ void __launch_bounds__(kThreads) quantise_rows(const QuantiseArgs a) {
  start_after_previous();
  const int c = blockIdx.x * kThreads + threadIdx.x;
  const float x = c < a.cols ? row_of(a.x, blockIdx.y)[c] : 0.f;
  const float largest = warp_max(fabsf(x));
  // Exponent bits of the largest value; 0 and denormals get scale 2^-126 and become 0 or stay
  // exact.
  const int exponent = static_cast<int>(__float_as_uint(largest) >> 23) - 127 - 8;
  const int bounded = exponent < -126 ? -126 : exponent;
  const float scale = __uint_as_float(static_cast<unsigned>(bounded + 127) << 23);
  if (c < a.cols) row_at(a.y, blockIdx.y)[c] = round_to_e4m3(x / scale) * scale;
}

}  // namespace spk::gpu
