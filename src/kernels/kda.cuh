// Kimi Delta Attention: short convolution, gates, the recurrence of single rows, the fold of verify
// records.
//
// The recurrence's state of a head is [D keys, D values]. A block holds 32 value columns in
// registers: lane = column, warp = one of eight slices of the keys. The state is read once and
// written once for all rows of the call; a verify pass does not write it and leaves records
// instead, which fold_state() applies later with the very same operations.
#pragma once

#include "kernels/common.cuh"

namespace spk::gpu {

// Tail entry j after `rows` recorded inputs moved in: an element of [tail, records].
template <int K>
SPK_DEVICE const float* folded_input(const View& tail, const View& record, int stream, int j,
                                     int rows, int c) {
  const int from = j + rows;
  return c + (from < K - 1 ? row_of(tail, stream * (K - 1) + from)
                           : row_of(record, stream * kMaxVerifyRows + from - (K - 1)));
}
template <int K>
SPK_DEVICE float folded_tail(const View& tail, const View& record, int stream, int j, int rows,
                             int c) {
  return *folded_input<K>(tail, record, stream, j, rows, c);
}

// Grid: (channels / kThreads, 3). A thread owns a channel: it folds, then goes through the rows.
template <int K>
__global__ void __launch_bounds__(kThreads) conv_step(const ConvArgs a) {
  start_after_previous();
  const int c = blockIdx.x * kThreads + threadIdx.x, s = blockIdx.y;
  if (c >= a.channels) return;
  const bool verify = a.step->verify != 0;
  // An index into the arguments that is not a constant would copy them to local memory.
  const View view = s == 0 ? a.x[0] : s == 1 ? a.x[1] : a.x[2];
  const float* taps = s == 0 ? a.taps[0] : s == 1 ? a.taps[1] : a.taps[2];
  float tap[K], past[K - 1];
#pragma unroll
  for (int j = 0; j < K; ++j) tap[j] = taps[c * K + j];
#pragma unroll
  for (int j = 0; j < K - 1; ++j) past[j] = folded_tail<K>(a.tail, a.record, s, j, a.step->fold, c);
  // A verify pass leaves the folded tail, any other the inputs of its own last rows.
  if (verify) {
#pragma unroll
    for (int j = 0; j < K - 1; ++j) row_at(a.tail, s * (K - 1) + j)[c] = past[j];
  }
#pragma unroll 1
  for (int i = 0; i < a.n; ++i) {
    float* x = row_at(view, i) + c;
    const float value = *x;
    if (verify) row_at(a.record, s * kMaxVerifyRows + i)[c] = value;
    float sum = tap[K - 1] * value;
#pragma unroll
    for (int j = 0; j < K - 1; ++j) sum = fmaf(tap[j], past[j], sum);
#pragma unroll
    for (int j = 0; j + 1 < K - 1; ++j) past[j] = past[j + 1];
    past[K - 2] = value;
    *x = silu(sum);
  }
  if (verify) return;
#pragma unroll
  for (int j = 0; j < K - 1; ++j) row_at(a.tail, s * (K - 1) + j)[c] = past[j];
}

// Grid as conv_step: what the next conv_step would do first.
template <int K>
__global__ void __launch_bounds__(kThreads) fold_tail(const FoldTailArgs a) {
  start_after_previous();
  const int c = blockIdx.x * kThreads + threadIdx.x, s = blockIdx.y;
  if (c >= a.channels) return;
  float past[K - 1];
#pragma unroll
  for (int j = 0; j < K - 1; ++j) past[j] = folded_tail<K>(a.tail, a.record, s, j, a.rows, c);
#pragma unroll
  for (int j = 0; j < K - 1; ++j) row_at(a.tail, s * (K - 1) + j)[c] = past[j];
}

// Grid: (heads * D / kThreads, rows).
template <int D>
__global__ void __launch_bounds__(kThreads) kda_gate(const KdaGateArgs a) {
  start_after_previous();
  const int c = blockIdx.x * kThreads + threadIdx.x;
  if (c < a.heads) {
    float* b = row_at(a.b, blockIdx.y) + c;
    *b = sigmoid(*b);
  }
  if (c >= a.heads * D) return;
  float* f = row_at(a.f, blockIdx.y) + c;
  *f = a.lower_bound * sigmoid(expf(a.a_log[c / D]) * (*f + a.dt_bias[c]));
}

// y = x / sqrt(|x|^2 + 1e-6) * scale for one head, by one warp; y may be shared or global memory.
template <int D>
SPK_DEVICE void unit_vector(const float* x, float scale, float* y) {
  const int lane = threadIdx.x % kWarp;
  float value[D / kWarp];
  float sum = 0.f;
#pragma unroll
  for (int j = 0; j < D / kWarp; ++j) {
    value[j] = x[j * kWarp + lane];
    sum = fmaf(value[j], value[j], sum);
  }
  const float factor = scale / sqrtf(warp_sum(sum) + 1e-6f);
#pragma unroll
  for (int j = 0; j < D / kWarp; ++j) y[j * kWarp + lane] = value[j] * factor;
}

// One state element takes one row. The decayed value is what the delta sees.
SPK_DEVICE float decayed(float state, float alpha) { return alpha * state; }
SPK_DEVICE float updated(float decayed_state, float k, float u) {
  return fmaf(k, u, decayed_state);
}

// Sum over the slices in order; `parts` is [kKdaSlices, kKdaColumns].
SPK_DEVICE float sum_slices(const float* parts, int lane) {
  float sum = parts[lane];
#pragma unroll
  for (int s = 1; s < kKdaSlices; ++s) sum += parts[s * kKdaColumns + lane];
  return sum;
}

// Grid: (heads, D / kKdaColumns).
template <int D>
__global__ void __launch_bounds__(kThreads) kda_rows(const KdaArgs a) {
  start_after_previous();
  constexpr int kKeys = D / kKdaSlices;
  SPK_SHARED(float, q, D);
  SPK_SHARED(float, k, D);
  SPK_SHARED(float, alpha, D);
  SPK_SHARED(float, parts, kKdaSlices* kKdaColumns);
  SPK_SHARED(float, outs, kKdaSlices* kKdaColumns);
  const int lane = threadIdx.x % kWarp, slice = threadIdx.x / kWarp;
  const i64 head = static_cast<i64>(blockIdx.x) * D;
  const int column = blockIdx.y * kKdaColumns + lane, key0 = slice * kKeys;
  const bool verify = a.step->verify != 0;
  float s[kKeys];
#pragma unroll
  for (int j = 0; j < kKeys; ++j) s[j] = row_of(a.state, head + key0 + j)[column];
  for (int i = 0; i < a.n; ++i) {
    if (slice == 0) unit_vector<D>(row_of(a.q, i) + head, 1.f / sqrtf(static_cast<float>(D)), q);
    if (slice == 1) {
      unit_vector<D>(row_of(a.k, i) + head, 1.f, k);
      if (verify && blockIdx.y == 0)
        for (int c = lane; c < D; c += kWarp) row_at(a.record_k, i)[head + c] = k[c];
    }
    if (slice == 2)
      for (int c = lane; c < D; c += kWarp) {
        const float g = row_of(a.g, i)[head + c];
        alpha[c] = expf(g);
        if (verify && blockIdx.y == 0) row_at(a.record_g, i)[head + c] = g;
      }
    __syncthreads();
    float seen = 0.f;
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
      s[j] = decayed(s[j], alpha[key0 + j]);
      seen = fmaf(s[j], k[key0 + j], seen);
    }
    parts[slice * kKdaColumns + lane] = seen;
    __syncthreads();
    const float u =
        row_of(a.beta, i)[blockIdx.x] * (row_of(a.v, i)[head + column] - sum_slices(parts, lane));
    float out = 0.f;
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
      s[j] = updated(s[j], k[key0 + j], u);
      out = fmaf(q[key0 + j], s[j], out);
    }
    outs[slice * kKdaColumns + lane] = out;
    if (verify && slice == 3) row_at(a.record_u, i)[head + column] = u;
    __syncthreads();  // also before q, k, alpha and parts are written again
    if (slice == 0) row_at(a.o, i)[head + column] = sum_slices(outs, lane);
  }
  if (verify) return;
#pragma unroll
  for (int j = 0; j < kKeys; ++j) row_at(a.state, head + key0 + j)[column] = s[j];
}

// Grid as kda_rows. A launch of its own before a pass, because that pass writes the records anew.
template <int D>
__global__ void __launch_bounds__(kThreads) fold_state(const FoldStateArgs a) {
  start_after_previous();
  constexpr int kKeys = D / kKdaSlices;
  const int lane = threadIdx.x % kWarp, slice = threadIdx.x / kWarp;
  const i64 head = static_cast<i64>(blockIdx.x) * D;
  const int column = blockIdx.y * kKdaColumns + lane, key0 = slice * kKeys;
  float s[kKeys];
#pragma unroll
  for (int j = 0; j < kKeys; ++j) s[j] = row_of(a.state, head + key0 + j)[column];
  for (int i = 0; i < a.rows; ++i) {
    const float u = row_of(a.record_u, i)[head + column];
    const float* k = row_of(a.record_k, i) + head + key0;
    const float* g = row_of(a.record_g, i) + head + key0;
#pragma unroll
    for (int j = 0; j < kKeys; ++j) s[j] = updated(decayed(s[j], expf(g[j])), k[j], u);
  }
#pragma unroll
  for (int j = 0; j < kKeys; ++j) row_at(a.state, head + key0 + j)[column] = s[j];
}

}  // namespace spk::gpu
