// What stands in front of the experts' products of one row, in one launch: residual addition, norm,
// the router's products, its choice, work items, the quantised row. (Of several rows each has its
// own choice, which the last block would make one after the other.)
//
// The bits are those of rms_norm<true>, matvec, route and the kernels that make items and quantised
// rows: the same operations in the same order. Every block makes the norm for itself, because
// waiting for another launch takes longer; the block that is done last adds to the residual, which
// all others have read then, and chooses.
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
// first block; x is not written. `sum`: x + o, of the columns t, t + kThreads ..
template <int F>
SPK_DEVICE void norm_row(const NormArgs& a, float* held, float (&sum)[kFrontHeld]) {
  SPK_SHARED(float, parts, kWarps);
  const int t = threadIdx.x;
  const bool mine = t < kThreads;
  float w[kFrontHeld];
#pragma unroll
  for (int j = 0; j < kFrontHeld; ++j) {
    const int c = t + j * kThreads;
    const bool there = mine && c < a.cols;
    sum[j] = there ? a.x.data[c] : 0.f;
    sum[j] += there ? a.o.data[c] : 0.f;
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
    if (blockIdx.x == 0) a.y.data[c] = y;
  }
  __syncthreads();
}

// Grid: experts / (T / kWarp); a warp an expert's row. F: format of the router, F32 or BF16.
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
  const int t = threadIdx.x, lane = t % kWarp, cols = a.norm.cols;
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
  float* const row = reinterpret_cast<float*>(held);
  norm_row<F>(a.norm, row, residual);

  if (r.x.to.codes) {
    const int warps = own * (T / kWarp);
#pragma unroll 1
    for (int g = place; g < cols / kQuantGroup; g += warps)
      quantise_group(row[front_place<F>(g * kQuantGroup + lane)], r.x.to, 0, g);
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
  if (lane == 0 && place < r.route.experts) r.route.scores.data[expert] = sum;

  __threadfence();
  __syncthreads();
  if (t == 0) last[0] = atomicAdd(r.arrived, 1) == own - 1 ? 1 : 0;
  __syncthreads();
  if (last[0] == 0) return;
  __threadfence();
  if (t == 0) *r.arrived = 0;  // for the next launch
#pragma unroll
  for (int j = 0; j < kFrontHeld; ++j)
    if (t < kThreads && t + j * kThreads < cols) a.norm.x.data[t + j * kThreads] = residual[j];
  route_row(r.route, bias, 0, slots, route_memory(memory));
  few_items(r.items, t < r.route.top_k ? slots[t] : kNobody);
}

}  // namespace spk::gpu
