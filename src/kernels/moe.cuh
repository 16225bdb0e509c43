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
// Index of the best of all lanes' values, ties to the lower index; kNobody's values do not count.
SPK_DEVICE int warp_best(const Best& x) {
  const unsigned order = x.index == kNobody ? 0u : order_of(x.value);
  const unsigned top = warp_largest(order);
  return static_cast<int>(warp_smallest(static_cast<unsigned>(order == top ? x.index : kNobody)));
}

// Grid: rows; a block a row.
template <int = 0>
__global__ void __launch_bounds__(kThreads) route(const RouteArgs a) {
  start_after_previous();
  SPK_SHARED(float, biased, kMaxExperts);
  SPK_SHARED(float, sigmoid_of, kMaxExperts);
  SPK_SHARED(float, group, kMaxGroups);
  SPK_SHARED(int, candidates, kWarps* kMaxTopK);
  const float kOut = __uint_as_float(0xff800000u);  // minus infinity: biased scores may be negative
  const int t = threadIdx.x, lane = t % kWarp, warp = t / kWarp, per_group = a.experts / a.groups;
  float* score = row_at(a.scores, blockIdx.x);
  int* ids = a.ids.data + blockIdx.x * a.ids.stride;
  for (int e = t; e < a.experts; e += kThreads) {
    const float s = sigmoid(score[e]);
    score[e] = s;
    sigmoid_of[e] = s;
    const float b = s + a.bias[e];
    biased[e] = b == b ? b : kOut;
  }
  __syncthreads();
  if (!a.forced.data) {
    for (int g = warp; g < a.groups; g += kWarps) {  // the two largest of each group
      float first = kOut, second = kOut;
      for (int e = g * per_group + lane; e < (g + 1) * per_group; e += kWarp) {
        const float x = biased[e];
        second = at_least(second, at_most(x, first));
        first = at_least(first, x);
      }
#pragma unroll
      for (int d = kWarp / 2; d > 0; d /= 2) {
        const float other = __shfl_xor_sync(kAllLanes, first, d);
        const float behind = __shfl_xor_sync(kAllLanes, second, d);
        second = at_least(at_least(second, behind), at_most(first, other));
        first = at_least(first, other);
      }
      if (lane == 0) group[g] = per_group > 1 ? first + second : first;
    }
    __syncthreads();
    for (int e = t; e < a.experts; e += kThreads) {
      const int g = e / per_group;
      int better = 0;
      for (int other = 0; other < a.groups; ++other)
        better += is_better({group[other], other}, {group[g], g}) ? 1 : 0;
      if (better >= a.keep_groups) biased[e] = kOut;
    }
  }
  __syncthreads();
  // The best of each warp's share of the experts, then the best of those. A lane looks at its own
  // few numbers; what it has given away is out.
  if (!a.forced.data) {
    constexpr int kPerLane = kMaxExperts / kThreads;
    float value[kPerLane];
    bool open[kPerLane];
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const int e = j * kThreads + t;
      open[j] = e < a.experts;
      value[j] = open[j] ? biased[e] : kOut;
    }
    for (int k = 0; k < a.top_k; ++k) {
      Best own = {kOut, kNobody};
#pragma unroll
      for (int j = 0; j < kPerLane; ++j)
        if (open[j] && (own.index == kNobody || value[j] > own.value))
          own = {value[j], j * kThreads + t};
      const int best = warp_best(own);
      if (lane == 0) candidates[warp * kMaxTopK + k] = best;
#pragma unroll
      for (int j = 0; j < kPerLane; ++j)
        if (best == j * kThreads + t) open[j] = false;
    }
  }
  __syncthreads();
  if (warp != 0) return;
  int mine = 0;  // lane k keeps slot k's expert
  if (a.forced.data) {
    if (lane < a.top_k) mine = a.forced.data[blockIdx.x * a.forced.stride + lane];
  } else {
    // Each warp's list is in order, so the lane that holds it offers its head.
    int at = 0;
    for (int k = 0; k < a.top_k; ++k) {
      const int head = lane < kWarps && at < a.top_k ? candidates[lane * kMaxTopK + at] : kNobody;
      const int best = warp_best({head == kNobody ? kOut : biased[head], head});
      if (lane == k) mine = best;
      if (head == best && head != kNobody) ++at;
    }
  }
  const float chosen = lane < a.top_k ? sigmoid_of[mine] : 0.f;
  float sum = 1e-20f;
  for (int k = 0; k < a.top_k; ++k) sum += __shfl_sync(kAllLanes, chosen, k);
  if (lane >= a.top_k) return;
  ids[lane] = mine;
  row_at(a.weights, blockIdx.x)[lane] = chosen / sum * a.scale;
}

// One block: items in ascending order of experts, pairs in ascending order. For up to eight rows a
// thread takes a pair and looks at all others.
SPK_DEVICE void few_items(const ItemsArgs& a) {
  SPK_SHARED(int, id, kThreads);
  SPK_SHARED(int, items_of, kThreads);  // of the pair that names its expert first, else 0
  SPK_SHARED(int, distinct, kThreads);
  const int t = threadIdx.x, pairs = a.n * a.top_k;
  const int expert = t < pairs ? a.ids.data[t / a.top_k * a.ids.stride + t % a.top_k] : kNobody;
  id[t] = expert;
  __syncthreads();
  int same = 0, before = 0;
  for (int p = 0; p < pairs; ++p) {
    same += id[p] == expert ? 1 : 0;
    before += id[p] == expert && p < t ? 1 : 0;
  }
  const bool leads = t < pairs && before == 0;
  items_of[t] = leads ? (same + a.item_rows - 1) / a.item_rows : 0;
  distinct[t] = leads ? 1 : 0;
  __syncthreads();
  int first_item = 0, items = 0, used = 0;
  for (int p = 0; p < pairs; ++p) {
    first_item += id[p] < expert ? items_of[p] : 0;
    items += items_of[p];
    used += distinct[p];
  }
  if (t == 0) {
    *a.count = items;
    const auto read = static_cast<unsigned long long>(used);
    a.totals[0] += read;
    a.totals[1] += read * a.expert_bytes;
  }
  if (t >= pairs) return;
  int* to = a.items + static_cast<i64>(first_item + before / a.item_rows) * kItemInts;
  const int slot = before % a.item_rows, left = same - before;
  to[2 + slot] = t;
  if (slot == 0) {
    to[0] = expert;
    to[1] = left < a.item_rows ? left : a.item_rows;
  }
}
template <int = 0>
__global__ void __launch_bounds__(kThreads) few_expert_items(const ItemsArgs a) {
  start_after_previous();
  few_items(a);
}

// The same for any number of rows.
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

// Rows of x that a block works on: those of a routed item, or a bucket of all rows for the shared
// expert. False: nothing to do.
template <int R>
struct ItemRows {
  int n;
  int at[R];  // pair of a routed item, row of the shared expert
};
template <int R>
SPK_DEVICE bool shared_rows(const ExpertsArgs& a, int bucket, ItemRows<R>& rows) {
  const int row0 = bucket * R;
  rows.n = min(a.n - row0, R);
#pragma unroll
  for (int i = 0; i < R; ++i) rows.at[i] = row0 + min(i, rows.n - 1);
  return rows.n > 0;
}
template <int R>
SPK_DEVICE bool routed_rows(const ExpertsArgs& a, int number, ItemRows<R>& rows, int& expert) {
  if (number >= *a.count) return false;
  const int* item = a.items + static_cast<i64>(number) * kItemInts;
  expert = item[0];
  rows.n = item[1];
#pragma unroll
  for (int i = 0; i < R; ++i) rows.at[i] = item[2 + min(i, rows.n - 1)];
  return true;
}

// A warp's rows of gate and the same ones of up.
template <int F, int R>
SPK_DEVICE void up_rows(const Matrix& gate, const Matrix& up, int first, int width,
                        const float* const (&x)[R], const ItemRows<R>& rows, float4* stage,
                        float* act, float limit) {
  constexpr int W = weight_rows(R), kUnits = W / 2;
  WeightRow w[W];
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    w[u] = {gate, min(first + u, width - 1)};
    w[kUnits + u] = {up, min(first + u, width - 1)};
  }
  Flight<F, W> flight;
  flight.load(w, 0, min(gate.cols, staged_columns(R)));
  let_next_start();
  float sum[W][R];
  dots<F, R, W>(w, x, rows.n, stage, false, flight, sum);
  if (threadIdx.x % kWarp != 0) return;
#pragma unroll
  for (int i = 0; i < R; ++i) {
    if (i >= rows.n) break;
    float* to = act + static_cast<i64>(rows.at[i]) * width + first;
#pragma unroll
    for (int u = 0; u < kUnits; ++u)
      if (first + u < width) to[u] = activate(sum[u][i], sum[kUnits + u][i], limit);
  }
}
template <int F, int R>
SPK_DEVICE void down_rows(const Matrix& down, int first, int hidden, const float* act, int width,
                          const ItemRows<R>& rows, float4* stage, float* out) {
  constexpr int W = weight_rows(R);
  WeightRow w[W];
#pragma unroll
  for (int r = 0; r < W; ++r) w[r] = {down, min(first + r, hidden - 1)};
  Flight<F, W> flight;
  flight.load(w, 0, min(down.cols, staged_columns(R)));
  let_next_start();
  const float* x[R];
#pragma unroll
  for (int i = 0; i < R; ++i) x[i] = act + static_cast<i64>(rows.at[i]) * width;
  float sum[W][R];
  dots<F, R, W>(w, x, rows.n, stage, false, flight, sum);
  if (threadIdx.x % kWarp != 0) return;
#pragma unroll
  for (int i = 0; i < R; ++i) {
    if (i >= rows.n) break;
    float* to = out + static_cast<i64>(rows.at[i]) * hidden + first;
#pragma unroll
    for (int r = 0; r < W; ++r)
      if (first + r < hidden) to[r] = sum[r][i];
  }
}

// Grid: (units / (group_rows(R) / 2), items, and behind them those of the shared expert). F: format
// of the routed experts, S: of the shared one.
template <int F, int S, int R>
__global__ void __launch_bounds__(kThreads, R == 1 ? 3 : stream_blocks(R))
    expert_up(const ExpertsArgs a) {
  wait_for_previous();
  SPK_SHARED(float4, stage, R * staged_columns(R) / 4);
  const int first0 = blockIdx.x * (group_rows(R) / 2);
  const int first = first0 + threadIdx.x / kWarp * (weight_rows(R) / 2);
  ItemRows<R> rows;
  const float* x[R];
  // The whole block goes the same way: it meets at barriers.
  const int item = static_cast<int>(blockIdx.y);
  if (item >= a.shared_item) {
    if (first0 >= a.shared_width || !shared_rows(a, item - a.shared_item, rows)) return;
#pragma unroll
    for (int i = 0; i < R; ++i) x[i] = row_of(a.x, rows.at[i]);
    up_rows<S, R>(a.shared.gate, a.shared.up, first, a.shared_width, x, rows, stage, a.shared_act,
                  a.shared_limit);
    return;
  }
  int expert;
  if (first0 >= a.width || !routed_rows(a, item, rows, expert)) return;
#pragma unroll
  for (int i = 0; i < R; ++i) x[i] = row_of(a.x, rows.at[i] / a.top_k);
  const ExpertWeights& e = a.experts[expert];
  up_rows<F, R>(e.gate, e.up, first, a.width, x, rows, stage, a.act, a.limit);
}

// Grid: (hidden / group_rows(R), items as above).
template <int F, int S, int R>
__global__ void __launch_bounds__(kThreads, R == 1 ? 3 : stream_blocks(R))
    expert_down(const ExpertsArgs a) {
  wait_for_previous();
  SPK_SHARED(float4, stage, R * staged_columns(R) / 4);
  const int first = (blockIdx.x * kWarps + threadIdx.x / kWarp) * weight_rows(R);
  ItemRows<R> rows;
  const int item = static_cast<int>(blockIdx.y);
  if (item >= a.shared_item) {
    if (shared_rows(a, item - a.shared_item, rows))
      down_rows<S, R>(a.shared.down, first, a.hidden, a.shared_act, a.shared_width, rows, stage,
                      a.shared_out);
    return;
  }
  int expert;
  if (routed_rows(a, item, rows, expert))
    down_rows<F, R>(a.experts[expert].down, first, a.hidden, a.act, a.width, rows, stage, a.out);
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

}  // namespace spk::gpu
