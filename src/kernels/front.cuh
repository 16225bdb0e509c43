// What stands in front of the experts' products of a few rows, in one launch: residual addition,
// norm, the router's products, their choices, work items, the quantised rows.
//
// The bits are those of rms_norm<true>, matvec, route and the kernels that make items and quantised
// rows: the same operations in the same order. Each row has blocks of its own, so that choices are
// made side by side. Every block makes the norm for itself, because waiting for another launch
// takes longer; of a row's blocks the one that is done last adds to the residual, which all others
// have read then, and chooses; of those the last one makes the items.
#pragma once

#include "kernels/route.cuh"

namespace spk::gpu {

// Where column c of a row lies in shared memory: in the order in which the lanes want it.
template <int F>
SPK_DEVICE int front_place(int c) {
  constexpr int kNumbers = Codec<F>::kNumbers, kColumns = kWarp * kNumbers;
  return c / kColumns * kColumns + c % kNumbers / 4 * (kWarp * 4) + c % kColumns / kNumbers * 4 +
         c % 4;
}

// held = w * norm(x + o) by the first kThreads threads, as rms_norm<true> has it, and to y by the
// row's first block; x is not written. `sum`: x + o, of the columns t, t + kThreads ..
template <int F>
SPK_DEVICE void norm_row(const NormArgs& a, int row, float* held, float (&sum)[kFrontHeld]) {
  SPK_SHARED(float, parts, kWarps);
  const int t = threadIdx.x;
  const bool mine = t < kThreads;
  float w[kFrontHeld];
#pragma unroll
  for (int j = 0; j < kFrontHeld; ++j) {
    const int c = t + j * kThreads;
    const bool there = mine && c < a.cols;
    sum[j] = there ? row_of(a.x, row)[c] : 0.f;
    sum[j] += there ? row_of(a.o, row)[c] : 0.f;
    w[j] = there ? a.w[c] : 0.f;
  }
  float squares = 0.f;
#pragma unroll
  for (int j = 0; j < kFrontHeld; ++j) squares = fmaf(sum[j], sum[j], squares);
  squares = warp_sum(squares);
  if (mine && t % kWarp == 0) parts[t / kWarp] = squares;
  __syncthreads();
  float total = parts[0];
#pragma unroll
  for (int k = 1; k < kWarps; ++k) total += parts[k];
  const float scale = 1.f / sqrtf(total / static_cast<float>(a.cols) + a.eps);
#pragma unroll
  for (int j = 0; j < kFrontHeld; ++j) {
    const int c = t + j * kThreads;
    if (!mine || c >= a.cols) break;
    const float y = w[j] * (sum[j] * scale);
    held[front_place<F>(c)] = y;
    if (blockIdx.x == 0) row_at(a.y, row)[c] = y;
  }
  __syncthreads();
}

// Whether this block is the last of `all` to come here, all of which see then what the others wrote
// before. The counter is left at 0 for the next launch.
SPK_DEVICE bool comes_last(int* arrived, int all, int* last) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last[0] = atomicAdd(arrived, 1) == all - 1 ? 1 : 0;
  __syncthreads();
  if (last[0] == 0) return false;
  __threadfence();
  if (threadIdx.x == 0) *arrived = 0;
  return true;
}

// Grid: (experts / (T / kWarp), rows); a warp an expert's row. F: format of the router, F32 or
// BF16.
template <int F, int T>
__global__ void __launch_bounds__(T, 1) front(const __grid_constant__ FrontArgs a) {
  static_assert(!kIsScaled<F>, "");
  let_next_start();
  SPK_SHARED(int, slots, kMaxTopK);
  SPK_SHARED(int, last, 1);
  SPK_SHARED(float4, memory, kRouteWords / 4);  // for the choice
  SPK_SHARED(float4, held, kFrontColumns / 4);  // the row behind the norm
  constexpr int kNumbers = Codec<F>::kNumbers, kColumns = kWarp * kNumbers;
  constexpr int kFlight = kFrontBytes / (kWarp * 16);
  const RouteItemsArgs& r = a.route;
  const int own = (r.route.experts + T / kWarp - 1) / (T / kWarp);
  const int t = threadIdx.x, lane = t % kWarp, cols = a.norm.cols, row = blockIdx.y;
  const int place = blockIdx.x * (T / kWarp) + t / kWarp;  // of the warp
  const int expert = min(place, r.route.experts - 1);
  const uint4* codes = reinterpret_cast<const uint4*>(a.router.codes + static_cast<i64>(expert) *
                                                                           a.router.row_bytes) +
                       lane;
  // Weights depend on nothing: they are on their way while the kernel before still runs.
  uint4 w[kFlight];
#pragma unroll
  for (int f = 0; f < kFlight; ++f)
    w[f] = f * kColumns + lane * kNumbers < cols ? codes[f * kWarp] : uint4{0, 0, 0, 0};
  const float bias = bias_of(r.route);
  wait_for_previous();
  float residual[kFrontHeld];
  float* const numbers = reinterpret_cast<float*>(held);
  norm_row<F>(a.norm, row, numbers, residual);

  if (r.x.to.codes) {
    const int warps = own * (T / kWarp);
#pragma unroll 1
    for (int g = place; g < cols / kQuantGroup; g += warps)
      quantise_group(numbers[front_place<F>(g * kQuantGroup + lane)], r.x.to, row, g);
  }

  float sum = 0.f;
#pragma unroll
  for (int f = 0; f < kFlight; ++f) {
    if (f * kColumns + lane * kNumbers >= cols) break;
#pragma unroll
    for (int q = 0; q < kNumbers / 4; ++q) {
      const float4 x = held[f * kColumns / 4 + q * kWarp + lane];
      sum = fmaf(number<F>(w[f], 4 * q, 1.f), x.x, sum);
      sum = fmaf(number<F>(w[f], 4 * q + 1, 1.f), x.y, sum);
      sum = fmaf(number<F>(w[f], 4 * q + 2, 1.f), x.z, sum);
      sum = fmaf(number<F>(w[f], 4 * q + 3, 1.f), x.w, sum);
    }
  }
  sum = warp_sum(sum);
  if (lane == 0 && place < r.route.experts) row_at(r.route.scores, row)[expert] = sum;

  if (!comes_last(r.arrived + 1 + row, own, last)) return;
#pragma unroll
  for (int j = 0; j < kFrontHeld; ++j)
    if (t < kThreads && t + j * kThreads < cols)
      row_at(a.norm.x, row)[t + j * kThreads] = residual[j];
  route_row(r.route, bias, row, slots, route_memory(memory));
  if (gridDim.y == 1) {
    few_items(r.items, t < r.route.top_k ? slots[t] : kNobody);
    return;
  }
  if (comes_last(r.arrived, static_cast<int>(gridDim.y), last))
    few_items(r.items, expert_of_pair(r.items, t));
}

}  // namespace spk::gpu
