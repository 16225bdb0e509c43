// A KDA layer between its first and its last products, in one launch: convolution, gates, the fold
// of accepted records, the recurrence, gated norm. For the few rows of a step that is no prompt.
//
// The bits are those of conv_step, kda_gate, fold_state, kda_rows and norm_gate: the same
// operations in the same order, with what they hand on in shared memory. At these sizes latency is
// all that counts, so everything is asked for before anything is used, and each row, channel and
// stream has a thread of its own. A block owns a head: it reads the records and tails that it
// replaces before a barrier and writes them behind it.
#pragma once

#include "kernels/kda.cuh"

namespace spk::gpu {

// Four keys of a slice; every lane reads the same ones.
SPK_DEVICE float4 four_keys(const float* from, int j) {
  return reinterpret_cast<const float4*>(from)[j];
}

// The two halves of a row for one state element.
SPK_DEVICE void see(float& s, float alpha, float k, float& seen) {
  s = decayed(s, alpha);
  seen = fmaf(s, k, seen);
}
SPK_DEVICE void take(float& s, float k, float u, float q, float& out) {
  s = updated(s, k, u);
  out = fmaf(q, s, out);
}

// Grid: heads; kda_block_threads(D) threads.
template <int D, int K>
__global__ void __launch_bounds__(kda_block_threads(D), 1)
    kda_block(const __grid_constant__ KdaBlockArgs a) {
  let_next_start();
  constexpr int kKeys = D / kKdaSlices, kAll = kda_block_threads(D), kBlockWarps = kAll / kWarp;
  constexpr int kParts = kAll / D, kPast = K - 1, kTails = 3 * kPast;
  constexpr int kRounds = (kTails + kParts - 1) / kParts;
  constexpr int kInputs = kPast + kMaxVerifyRows;  // of a channel: the tail, then the rows
  static_assert(kParts == kMaxVerifyRows && kBlockWarps >= kMaxVerifyRows && 3 * K <= 2 * kParts &&
                    kInputs >= kParts,
                "");
  SPK_SHARED(float, q, kAll);
  SPK_SHARED(float, k, kAll);
  SPK_SHARED(float, v, kAll);  // of a row that is done: its outputs
  SPK_SHARED(float, alpha, kAll);
  SPK_SHARED(float, gates, kAll);
  SPK_SHARED(float, early, 3 * kInputs * D);
  float* const inputs = early;  // [3, kInputs, D], for the convolution
  float *const past_k = early, *const past_u = early + kAll;  // then the records to fold
  float* const past_alpha = early + 2 * kAll;
  SPK_SHARED(float, late, 2 * kAll);
  float* const taps = late;                              // [3, D, K]
  float *const parts = late, *const outs = late + kAll;  // in the recurrence
  SPK_SHARED(float, bias, D);
  SPK_SHARED(float, o_norm, D);
  SPK_SHARED(float, beta, kMaxVerifyRows);
  const int t = threadIdx.x, lane = t % kWarp, warp = t / kWarp;
  // Of the state: a value column and a slice of its keys.
  const int slice = warp % kKdaSlices, key0 = slice * kKeys;
  const int tile = warp / kKdaSlices * kKdaSlices * kKdaColumns;  // of parts and outs
  const int column = warp / kKdaSlices * kKdaColumns + lane;
  // Of the inputs: a channel of a row; when there is one row, of one of the five kinds (q, k, v, f,
  // gate).
  const int part = t / D, c = t % D;
  const bool single = a.n == 1;
  const int row = single ? 0 : part;
  const auto takes = [&](int kind) { return single ? part == kind : part < a.n; };
  const int head = blockIdx.x * D, channel = head + c;
  const int fold = a.step->fold;  // not written by kernels
  const bool verify = a.step->verify != 0;

  // Weights: on their way before the wait, put down behind the loads that follow it.
  float tap[3];
#pragma unroll
  for (int i = 0; i < 3; ++i) tap[i] = t < D * K ? a.taps[i][head * K + t] : 0.f;
  const float dt_bias = t < D ? a.dt_bias[channel] : 0.f;
  const float norm = t < D ? a.o_norm[t] : 0.f;
  const float a_log = a.a_log[blockIdx.x];
  constexpr int kLines = D * D * static_cast<int>(sizeof(float)) / kLineBytes;
  static_assert(D * K <= kAll && kLines <= kAll, "");
  if (t < kLines)
    ask_for_line(a.state + static_cast<i64>(head) * D + t * (kLineBytes / sizeof(float)));
  wait_for_previous();

  float* const state = a.state + static_cast<i64>(head + key0) * D + column;
  float s[kKeys];
#pragma unroll
  for (int j = 0; j < kKeys; ++j) s[j] = state[j * D];
  float fold_k = 0.f, fold_u = 0.f, fold_g = 0.f;
  if (part < fold) {
    fold_k = row_of(a.record_k, part)[channel];
    fold_u = row_of(a.record_u, part)[channel];
    fold_g = row_of(a.record_g, part)[channel];
  }
  float x[3];
#pragma unroll
  for (int i = 0; i < 3; ++i) x[i] = takes(i) ? row_of(a.x[i], row)[channel] : 0.f;
  float g = takes(3) ? row_of(a.f, row)[channel] : 0.f;
  const float b = takes(3) && c == 0 ? row_of(a.b, row)[blockIdx.x] : 0.f;
  const float gate = takes(4) ? row_of(a.gate, row)[channel] : 0.f;
  float past[kRounds];
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const int m = r * kParts + part;
    if (m < kTails)
      past[r] = folded_tail<K>(a.tail, a.record_in, m / kPast, m % kPast, fold, channel);
  }

#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const int m = r * kParts + part;
    if (m < kTails) inputs[(m / kPast * kInputs + m % kPast) * D + c] = past[r];
  }
#pragma unroll
  for (int i = 0; i < 3; ++i)
    if (takes(i)) inputs[(i * kInputs + kPast + row) * D + c] = x[i];
#pragma unroll
  for (int i = 0; i < 3; ++i)
    if (t < D * K) taps[i * D * K + t] = tap[i];
  if (t < D) {
    bias[t] = dt_bias;
    o_norm[t] = norm;
  }
  __syncthreads();

  const int here = row * D + c;
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    if (!takes(i)) continue;
    const float* const w = taps + (i * D + c) * K;
    const float* const in = inputs + (i * kInputs + row) * D + c;
    const float own = in[kPast * D];
    float sum = w[K - 1] * own;
#pragma unroll
    for (int j = 0; j < kPast; ++j) sum = fmaf(w[j], in[j * D], sum);
    (i == 0 ? q : i == 1 ? k : v)[here] = silu(sum);
    if (verify) row_at(a.record_in, i * kMaxVerifyRows + row)[channel] = own;
  }
  if (takes(3)) {
    g = a.lower_bound * sigmoid(expf(a_log) * (g + bias[c]));
    alpha[here] = expf(g);
    if (c == 0) beta[row] = sigmoid(b);
    if (verify) row_at(a.record_g, row)[channel] = g;
  }
  if (takes(4)) gates[here] = sigmoid(gate);
    // A verify pass leaves the folded tail, any other the inputs of its own last rows.
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const int m = r * kParts + part, moved = verify ? 0 : a.n;
    if (m < kTails)
      row_at(a.tail, m)[channel] = inputs[(m / kPast * kInputs + m % kPast + moved) * D + c];
  }
  __syncthreads();

  if (part < fold) {
    past_k[t] = fold_k;
    past_u[t] = fold_u;
    past_alpha[t] = expf(fold_g);
  }
#pragma unroll 1
  for (int task = warp; task < 2 * a.n; task += kBlockWarps) {
    const int i = task / 2;
    const bool is_k = task % 2 != 0;
    float* const y = (is_k ? k : q) + i * D;
    unit_vector<D>(y, is_k ? 1.f : 1.f / sqrtf(static_cast<float>(D)), y);
    if (verify && is_k)  // a lane reads what it wrote itself
      for (int at = lane; at < D; at += kWarp) row_at(a.record_k, i)[head + at] = y[at];
  }
  __syncthreads();

#pragma unroll 1
  for (int i = 0; i < fold; ++i) {
    const float u = past_u[i * D + column];
#pragma unroll
    for (int j = 0; j < kKeys / 4; ++j) {
      const float4 k4 = four_keys(past_k + i * D + key0, j);
      const float4 alpha4 = four_keys(past_alpha + i * D + key0, j);
      s[4 * j] = updated(decayed(s[4 * j], alpha4.x), k4.x, u);
      s[4 * j + 1] = updated(decayed(s[4 * j + 1], alpha4.y), k4.y, u);
      s[4 * j + 2] = updated(decayed(s[4 * j + 2], alpha4.z), k4.z, u);
      s[4 * j + 3] = updated(decayed(s[4 * j + 3], alpha4.w), k4.w, u);
    }
  }
  if (verify && fold > 0) {
#pragma unroll
    for (int j = 0; j < kKeys; ++j) state[j * D] = s[j];
  }

#pragma unroll 1
  for (int i = 0; i < a.n; ++i) {
    const float* const k_i = k + i * D + key0;
    float seen = 0.f;
#pragma unroll
    for (int j = 0; j < kKeys / 4; ++j) {
      const float4 k4 = four_keys(k_i, j), alpha4 = four_keys(alpha + i * D + key0, j);
      see(s[4 * j], alpha4.x, k4.x, seen);
      see(s[4 * j + 1], alpha4.y, k4.y, seen);
      see(s[4 * j + 2], alpha4.z, k4.z, seen);
      see(s[4 * j + 3], alpha4.w, k4.w, seen);
    }
    parts[t] = seen;
    __syncthreads();
    const float u = beta[i] * (v[i * D + column] - sum_slices(parts + tile, lane));
    float out = 0.f;
#pragma unroll
    for (int j = 0; j < kKeys / 4; ++j) {
      const float4 k4 = four_keys(k_i, j), q4 = four_keys(q + i * D + key0, j);
      take(s[4 * j], k4.x, u, q4.x, out);
      take(s[4 * j + 1], k4.y, u, q4.y, out);
      take(s[4 * j + 2], k4.z, u, q4.z, out);
      take(s[4 * j + 3], k4.w, u, q4.w, out);
    }
    outs[t] = out;
    if (verify && slice == 3) row_at(a.record_u, i)[head + column] = u;
    __syncthreads();
    if (slice == 0) v[i * D + column] = sum_slices(outs + tile, lane);
  }
  if (!verify) {
#pragma unroll
    for (int j = 0; j < kKeys; ++j) state[j * D] = s[j];
  }
  __syncthreads();
  if (warp >= a.n) return;
  float value[D / kWarp];
  float sum = 0.f;
#pragma unroll
  for (int j = 0; j < D / kWarp; ++j) {
    value[j] = v[warp * D + j * kWarp + lane];
    sum = fmaf(value[j], value[j], sum);
  }
  const float scale = 1.f / sqrtf(warp_sum(sum) / static_cast<float>(D) + a.eps);
#pragma unroll
  for (int j = 0; j < D / kWarp; ++j) {
    const int at = j * kWarp + lane;
    row_at(a.o, warp)[head + at] = o_norm[at] * (value[j] * scale) * gates[warp * D + at];
  }
}

}  // namespace spk::gpu
