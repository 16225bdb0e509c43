// Verbs that go over rows of activations: embedding, norms, sums, activations, gates.
//
// All are bound by launch and latency at 1..8 rows; a block takes a row.
#pragma once

#include "kernels/weights.cuh"

namespace spk::gpu {

// Grid: rows.
template <int F>
__global__ void __launch_bounds__(kThreads) embed(const EmbedArgs a) {
  start_after_previous();
  const i64 token = a.tokens[blockIdx.x * a.token_stride];
  float* y = row_at(a.y, blockIdx.x);
  for (int c = threadIdx.x; c < a.table.cols; c += kThreads) y[c] = weight_at<F>(a.table, token, c);
}

// Grid: rows. A thread holds its numbers: all loads are under way before the first is used.
template <bool kAdd>
__global__ void __launch_bounds__(kThreads) rms_norm(const NormArgs a) {
  let_next_start();
  constexpr int kHeld = 16;
  const int t = threadIdx.x;
  float w[kHeld];  // weights depend on nothing
#pragma unroll
  for (int j = 0; j < kHeld; ++j) w[j] = t + j * kThreads < a.cols ? a.w[t + j * kThreads] : 0.f;
  wait_for_previous();
  float* x = row_at(a.x, blockIdx.x);
  float* y = row_at(a.y, blockIdx.x);
  const float* o = kAdd ? row_of(a.o, blockIdx.x) : x;
  float value[kHeld];
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int c = t + j * kThreads;
    value[j] = c < a.cols ? x[c] : 0.f;
    if constexpr (kAdd) value[j] += c < a.cols ? o[c] : 0.f;
  }
  float sum = 0.f;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) sum = fmaf(value[j], value[j], sum);
  for (int c = t + kHeld * kThreads; c < a.cols; c += kThreads) {  // beyond what is held
    float more = x[c];
    if constexpr (kAdd) {
      more += o[c];
      x[c] = more;
    }
    sum = fmaf(more, more, sum);
  }
  const float scale = 1.f / sqrtf(block_sum(sum) / static_cast<float>(a.cols) + a.eps);
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int c = t + j * kThreads;
    if (c >= a.cols) break;
    if constexpr (kAdd) x[c] = value[j];
    y[c] = w[j] * (value[j] * scale);
  }
  // A thread reads what it wrote itself; y may be x.
  for (int c = t + kHeld * kThreads; c < a.cols; c += kThreads) y[c] = a.w[c] * (x[c] * scale);
}

// Grid: (columns / kThreads, rows); also the next two.
template <int = 0>
__global__ void __launch_bounds__(kThreads) add_rows(const AddArgs a) {
  start_after_previous();
  const int c = blockIdx.x * kThreads + threadIdx.x;
  if (c < a.cols) row_at(a.x, blockIdx.y)[c] += row_of(a.o, blockIdx.y)[c];
}

template <int = 0>
__global__ void __launch_bounds__(kThreads) swiglu(const SwigluArgs a) {
  start_after_previous();
  const int c = blockIdx.x * kThreads + threadIdx.x;
  if (c >= a.cols) return;
  float* gate = row_at(a.gate, blockIdx.y) + c;
  *gate = activate(*gate, row_of(a.up, blockIdx.y)[c], a.limit);
}

template <int = 0>
__global__ void __launch_bounds__(kThreads) head_gate(const HeadGateArgs a) {
  start_after_previous();
  const int c = blockIdx.x * kThreads + threadIdx.x;
  if (c < a.cols) row_at(a.o, blockIdx.y)[c] *= sigmoid(row_of(a.gate, blockIdx.y)[c / a.v_dim]);
}

// Grid: (heads / kWarps, rows); a warp takes a head of D.
template <int D>
__global__ void __launch_bounds__(kThreads) norm_gate(const NormGateArgs a) {
  start_after_previous();
  const int h = blockIdx.x * kWarps + threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  if (h >= a.heads) return;  // a whole warp
  float* o = row_at(a.o, blockIdx.y) + h * D;
  const float* gate = row_of(a.gate, blockIdx.y) + h * D;
  float value[D / kWarp];
  float sum = 0.f;
#pragma unroll
  for (int j = 0; j < D / kWarp; ++j) {
    value[j] = o[j * kWarp + lane];
    sum = fmaf(value[j], value[j], sum);
  }
  const float scale = 1.f / sqrtf(warp_sum(sum) / static_cast<float>(D) + a.eps);
#pragma unroll
  for (int j = 0; j < D / kWarp; ++j) {
    const int c = j * kWarp + lane;
    o[c] = a.w[c] * (value[j] * scale) * sigmoid(gate[c]);
  }
}

// Grid: any; kReadThreads threads. Four 16-byte loads in flight per thread.
template <int = 0>
__global__ void __launch_bounds__(kReadThreads) read_all(const ReadArgs a) {
  start_after_previous();
  constexpr int kFlight = 4;
  const uint4* data = reinterpret_cast<const uint4*>(a.data);
  const i64 count = a.bytes / 16, stride = static_cast<i64>(gridDim.x) * kReadThreads;
  unsigned sum = 0;
  for (i64 i = static_cast<i64>(blockIdx.x) * kReadThreads + threadIdx.x; i < count;
       i += stride * kFlight) {
    uint4 v[kFlight];
#pragma unroll
    for (int j = 0; j < kFlight; ++j)
      v[j] = i + j * stride < count ? data[i + j * stride] : uint4{0, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < kFlight; ++j) sum += v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  if (sum == 0x9e3779b9u) *a.sink = sum;
}

}  // namespace spk::gpu
