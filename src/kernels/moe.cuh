// The mixture of experts: work items, gate/up/activation, down, weighted sum.
//
// Work items gather the rows that chose the same expert (route.cuh), so that its weights are read
// once for up to eight rows; a pair's numbers are those of matvec's order, so they do not depend on
// who shares the item.
#pragma once

#include "kernels/matvec.cuh"

namespace spk::gpu {

constexpr int kNobody = 0x7fffffff;

// Expert of a thread's pair.
SPK_DEVICE int expert_of_pair(const ItemsArgs& a, int pair) {
  return pair < a.n * a.top_k ? a.ids.data[pair / a.top_k * a.ids.stride + pair % a.top_k]
                              : kNobody;
}
// One block of at least kThreads: items in ascending order of experts, pairs in ascending order.
// For up to eight rows a thread takes a pair, which has chosen `expert`, and looks at all others.
SPK_DEVICE void few_items(const ItemsArgs& a, int expert) {
  SPK_SHARED(int, id, kThreads);
  SPK_SHARED(int, items_of, kThreads);  // of the pair that names its expert first, else 0
  const int t = threadIdx.x, pairs = a.n * a.top_k;
  if (t < pairs) id[t] = expert;
  __syncthreads();
  int same = 0, before = 0;
  // Eight at a time: one read of shared memory after the other is a chain of sixty.
#pragma unroll 8
  for (int p = 0; p < pairs; ++p) {
    same += id[p] == expert ? 1 : 0;
    before += id[p] == expert && p < t ? 1 : 0;
  }
  const bool leads = t < pairs && before == 0;
  if (t < pairs) items_of[t] = leads ? (same + a.item_rows - 1) / a.item_rows : 0;
  __syncthreads();
  int first_item = 0, items = 0, used = 0;
#pragma unroll 8
  for (int p = 0; p < pairs; ++p) {
    first_item += id[p] < expert ? items_of[p] : 0;
    items += items_of[p];
    used += items_of[p] > 0 ? 1 : 0;
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
  few_items(a, expert_of_pair(a, threadIdx.x));
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

// Columns c, c + apart, ...: slots in order, the shared expert last. Loads of all of them are under
// way before the first is used.
template <int N>
SPK_DEVICE void expert_sums(const ExpertSumArgs& a, i64 row, int c, int apart, float (&sum)[N]) {
  constexpr int kAtOnce = N == 1 ? 8 : 4;  // slots
  const float* weight = row_of(a.weights, row);
  const float* out = a.out + row * a.top_k * a.hidden;
  float shared[N];
#pragma unroll
  for (int j = 0; j < N; ++j) {
    sum[j] = 0.f;
    shared[j] =
        a.shared && c + j * apart < a.hidden ? a.shared[row * a.hidden + c + j * apart] : 0.f;
  }
#pragma unroll 1
  for (int first = 0; first < a.top_k; first += kAtOnce) {
    float value[kAtOnce][N], w[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int k = first + i;
      w[i] = k < a.top_k ? weight[k] : 0.f;
#pragma unroll
      for (int j = 0; j < N; ++j)
        value[i][j] =
            k < a.top_k && c + j * apart < a.hidden ? out[k * a.hidden + c + j * apart] : 0.f;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
      for (int j = 0; j < N; ++j)
        if (first + i < a.top_k) sum[j] = fmaf(w[i], value[i][j], sum[j]);
  }
#pragma unroll
  for (int j = 0; j < N; ++j)
    if (a.shared) sum[j] += shared[j];
}

// Grid: (hidden / kThreads, rows).
template <int = 0>
__global__ void __launch_bounds__(kThreads) expert_sum(const ExpertSumArgs a) {
  start_after_previous();
  const int c = blockIdx.x * kThreads + threadIdx.x;
  if (c >= a.hidden) return;
  float sum[1];
  expert_sums<1>(a, blockIdx.y, c, 0, sum);
  row_at(a.o, blockIdx.y)[c] = sum[0];
}

// Grid: rows; kSumNormThreads threads. expert_sum, add_rows and rms_norm<false> in one, with their
// bits: the squares are summed as rms_norm does, by kThreads threads.
template <int = 0>
__global__ void __launch_bounds__(kSumNormThreads) sum_norm(const SumNormArgs a) {
  let_next_start();
  constexpr int kHeld = kSumNormColumns / kSumNormThreads, kAtOnce = 3;
  static_assert(kHeld % kAtOnce == 0, "");
  SPK_SHARED(float, value, kSumNormColumns);
  SPK_SHARED(float, parts, kWarps);
  const int t = threadIdx.x, lane = t % kWarp, warp = t / kWarp, cols = a.norm.cols;
  const i64 row = blockIdx.x;
  constexpr int kLineFloats = kLineBytes / static_cast<int>(sizeof(float));
  if (t * kLineFloats < cols) ask_for_line(a.norm.w + t * kLineFloats);
  wait_for_previous();
  float* x = row_at(a.norm.x, row);
#pragma unroll
  for (int first = 0; first < kHeld; first += kAtOnce) {
    const int c0 = t + first * kSumNormThreads;
    if (c0 >= cols) break;
    float before[kAtOnce], sum[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      before[j] = c0 + j * kSumNormThreads < cols ? x[c0 + j * kSumNormThreads] : 0.f;
    expert_sums<kAtOnce>(a.sum, row, c0, kSumNormThreads, sum);
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int c = c0 + j * kSumNormThreads;
      if (c >= cols) break;
      row_at(a.sum.o, row)[c] = sum[j];
      value[c] = x[c] = before[j] + sum[j];
    }
  }
  float w[kHeld];
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int c = t + j * kSumNormThreads;
    w[j] = c < cols ? a.norm.w[c] : 0.f;
  }
  __syncthreads();
  if (warp < kWarps) {
    float sum = 0.f;
    for (int c = t; c < cols; c += kThreads) sum = fmaf(value[c], value[c], sum);
    sum = warp_sum(sum);
    if (lane == 0) parts[warp] = sum;
  }
  __syncthreads();
  float sum = parts[0];
#pragma unroll
  for (int i = 1; i < kWarps; ++i) sum += parts[i];
  const float scale = 1.f / sqrtf(sum / static_cast<float>(cols) + a.norm.eps);
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int c = t + j * kSumNormThreads;
    if (c >= cols) break;
    row_at(a.norm.y, row)[c] = w[j] * (value[c] * scale);
  }
}

}  // namespace spk::gpu
