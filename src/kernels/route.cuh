// The router's choice, and in decode steps what the experts' launches need of it.
//
// The choice is exact: groups and top-k by value, ties to the lower index. A block has a thread for
// each expert; nothing is looked for in rounds. What is left of the groups is cut down by a bound
// that top_k experts reach: the least of the best of each 32, where there are that many. Those that
// remain, a few dozen, are ranked by counting the better ones.
#pragma once

#include "kernels/packed.cuh"

namespace spk::gpu {

struct Best {
  float value;
  int index;
};
SPK_DEVICE bool is_better(const Best& a, const Best& b) {
  return a.value > b.value || (a.value == b.value && a.index < b.index);
}

// Sum of the two largest of each group; by all warps.
SPK_DEVICE void score_groups(const RouteArgs& a, const float* biased, float out, float* group) {
  const int lane = threadIdx.x % kWarp, per_group = a.experts / a.groups;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
#pragma unroll 1
  for (int g = threadIdx.x / kWarp; g < a.groups; g += warps) {
    float first = out, second = out;
#pragma unroll 1
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
}

// Shared memory of a choice.
struct RouteMemory {
  unsigned long long* list;  // [kMaxExperts] value, then the lower index
  float* biased;             // [kMaxExperts]
  float* sigmoid_of;         // [kMaxExperts]
  float* group;              // [kMaxGroups]
  unsigned* best_of;         // [kMaxExperts / kWarp]
  int* listed;
};
constexpr int kRouteWords = 4 * kMaxExperts + kMaxGroups + kMaxExperts / kWarp + 4;
SPK_DEVICE RouteMemory route_memory(float4* memory) {
  float* const words = reinterpret_cast<float*>(memory);
  float* const group = words + 4 * kMaxExperts;
  unsigned* const best_of = reinterpret_cast<unsigned*>(group + kMaxGroups);
  return {reinterpret_cast<unsigned long long*>(memory),
          words + 2 * kMaxExperts,
          words + 3 * kMaxExperts,
          group,
          best_of,
          reinterpret_cast<int*>(best_of + kMaxExperts / kWarp)};
}

// One row, by a block of at least as many threads as there are experts and kThreads. `score` and
// `bias`: of the thread's expert. slots[k], shared: the expert in slot k, there when it returns.
SPK_DEVICE void choose_row(const RouteArgs& a, float score, float bias, i64 row, int* slots,
                           const RouteMemory& m) {
  float *const biased = m.biased, *const sigmoid_of = m.sigmoid_of, *const group = m.group;
  unsigned* const best_of = m.best_of;
  unsigned long long* const list = m.list;
  int* const listed = m.listed;
  const float kOut = __uint_as_float(0xff800000u);  // minus infinity: biased scores may be negative
  const int t = threadIdx.x, lane = t % kWarp, warp = t / kWarp;
  float value = kOut;
  if (t < a.experts) {
    const float s = sigmoid(score), b = s + bias;
    value = b == b ? b : kOut;
    sigmoid_of[t] = s;
    biased[t] = value;
  }
  if (t < kMaxExperts / kWarp) best_of[t] = 0;
  if (t == 0) listed[0] = 0;
  __syncthreads();
  if (a.forced.data) {
    if (t < a.top_k) slots[t] = row_of(a.forced, row)[t];
  } else {
    if (a.groups > 1) {
      score_groups(a, biased, kOut, group);
      __syncthreads();
      const int g = t / (a.experts / a.groups);
      int better = 0;
      if (t < a.experts)
#pragma unroll 1
        for (int other = 0; other < a.groups; ++other)
          better += is_better({group[other], other}, {group[g], g}) ? 1 : 0;
      if (better >= a.keep_groups) value = kOut;
    }
    const unsigned order = t < a.experts ? order_of(value) : 0u;
    const unsigned best = warp_largest(order);
    if (lane == 0) best_of[warp] = best;
    __syncthreads();
    const unsigned here = lane < kMaxExperts / kWarp ? best_of[lane] : 0u;
    const bool counts = here > order_of(kOut);
    const unsigned least = warp_smallest(counts ? here : ~0u);
    const unsigned bound = warp_total(counts ? 1 : 0) >= a.top_k ? least : 0u;
    const unsigned long long mine =
        static_cast<unsigned long long>(order) << 32 | static_cast<unsigned>(kMaxExperts - 1 - t);
    if (t < a.experts && order >= bound) list[atomicAdd(listed, 1)] = mine;
    __syncthreads();
    const int n = listed[0];
    if (t < n) {
      const unsigned long long own = list[t];
      int better = 0;
#pragma unroll 4
      for (int i = 0; i < n; ++i) better += list[i] > own ? 1 : 0;
      if (better < a.top_k)
        slots[better] = kMaxExperts - 1 - static_cast<int>(static_cast<unsigned>(own));
    }
  }
  __syncthreads();
}
// By one warp: the weights of what was chosen.
SPK_DEVICE void weigh_row(const RouteArgs& a, const int* slots, const RouteMemory& m,
                          float* weights) {
  const int lane = threadIdx.x % kWarp;
  const float chosen = lane < a.top_k ? m.sigmoid_of[slots[lane]] : 0.f;
  float sum = 1e-20f;
#pragma unroll 1
  for (int k = 0; k < a.top_k; ++k) sum += __shfl_sync(kAllLanes, chosen, k);
  if (lane < a.top_k) weights[lane] = chosen / sum * a.scale;
}
SPK_DEVICE void route_row(const RouteArgs& a, float bias, i64 row, int* slots,
                          const RouteMemory& m) {
  const int t = threadIdx.x;
  choose_row(a, t < a.experts ? row_of(a.scores, row)[t] : 0.f, bias, row, slots, m);
  if (t >= kWarp) return;
  weigh_row(a, slots, m, row_at(a.weights, row));
  if (t < a.top_k) row_at(a.ids, row)[t] = slots[t];
}
static_assert(kMaxTopK <= kWarp && kMaxExperts / kWarp <= kWarp, "");

SPK_DEVICE float bias_of(const RouteArgs& a) {
  return static_cast<int>(threadIdx.x) < a.experts ? a.bias[threadIdx.x] : 0.f;
}

// Grid: rows; route_threads(experts) threads.
template <int = 0>
__global__ void __launch_bounds__(kMaxExperts) route(const RouteArgs a) {
  let_next_start();
  SPK_SHARED(int, slots, kMaxTopK);
  SPK_SHARED(float4, memory, kRouteWords / 4);
  const float bias = bias_of(a);
  wait_for_previous();
  route_row(a, bias, blockIdx.x, slots, route_memory(memory));
}

// For up to eight rows, with the items and quantised rows: what few_items_and_rows or
// few_expert_items would do behind it. Grid: rows, then blocks that quantise; threads as route. The
// block of the row that is done last makes the items.
template <int = 0>
__global__ void __launch_bounds__(kMaxExperts)
    route_items(const __grid_constant__ RouteItemsArgs a) {
  let_next_start();
  SPK_SHARED(int, slots, kMaxTopK);
  SPK_SHARED(float4, memory, kRouteWords / 4);
  SPK_SHARED(int, arrived_before, 1);
  const int t = threadIdx.x, row = blockIdx.x;
  const float bias = bias_of(a.route);
  wait_for_previous();
  if (row >= a.route.n) {
    const int block = row - a.route.n;
    quantise_block(a.x, block % a.x_blocks, block / a.x_blocks);
    return;
  }
  route_row(a.route, bias, row, slots, route_memory(memory));
  if (a.route.n == 1) {
    few_items(a.items, t < a.route.top_k ? slots[t] : kNobody);
    return;
  }
  __threadfence();
  __syncthreads();
  if (t == 0) arrived_before[0] = atomicAdd(a.arrived, 1);
  __syncthreads();
  if (arrived_before[0] != a.route.n - 1) return;
  __threadfence();
  if (t == 0) *a.arrived = 0;  // for the next launch
  few_items(a.items, expert_of_pair(a.items, t));
}

}  // namespace spk::gpu
