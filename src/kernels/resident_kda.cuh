// KDA of one row by blocks that stay: as kda_block, with its bits. A block takes 64 value columns
// of a head. What does not depend on the products of this step (state, records, tails, taps) is
// read and folded before the products are there; the gated norm, which wants whole heads, is made
// by those who read it.
#pragma once

#include "kernels/kda_block.cuh"
#include "kernels/resident_memory.cuh"

namespace spk::gpu {

// A thread's share: a value column and a slice of its keys, in registers; and of the inputs, one
// channel of q, k, f (all of the head) or v (the block's columns).
template <int D, int K>
struct ResidentKda {
  static constexpr int kColumns = kResidentThreads / kKdaSlices,
                       kUnits = D / kColumns;  // of a head
  static constexpr int kKeys = D / kKdaSlices, kPast = K - 1;
  static_assert(kUnits * kColumns == D && kKeys % 4 == 0, "");
  static_assert(3 * D + kColumns <= kResidentThreads, "");

  float s[kKeys] = {};

  struct Memory {
    float *q, *k, *alpha;  // [D]
    float* v;              // [kColumns]
    float* parts;          // [kKdaSlices, kColumns]
    float* beta;
    float* early;  // of each thread: taps and past inputs, or a and dt_bias
  };
  static constexpr int kEarly = K + kPast;
  static_assert((3 * D + kColumns * (1 + kKdaSlices) + 4 + kEarly * kResidentThreads) * 4 <=
                    kResidentScratch,
                "");
  static SPK_DEVICE Memory memory() {
    float* const at = reinterpret_cast<float*>(resident_memory().scratch);
    float *const v = at + 3 * D, *const parts = v + kColumns;
    float* const beta = parts + kKdaSlices * kColumns;
    return {at, at + D, at + 2 * D, v, parts, beta, beta + 4};
  }

  enum Kind : int { kQ, kK, kF, kV };
  static SPK_DEVICE int kind_now() { return thread_now() / D; }
  static SPK_DEVICE int channel_now(int head, int column0) {
    return head * D + thread_now() % D + (kind_now() == kV ? column0 : 0);
  }
  static SPK_DEVICE bool has_channel() { return thread_now() < 3 * D + kColumns; }
  // Of the convolution's streams q, k, v.
  static SPK_DEVICE int stream_of(int kind) { return kind == kV ? 2 : kind; }
  // What blocks of one head share is written by the last of them, when all have read it: they read
  // before a meeting and write behind it, or are one block.
  static SPK_DEVICE bool writes(int column0) { return kind_now() == kV || column0 + kColumns == D; }

  static SPK_DEVICE void read_early(const KdaBlockArgs& a, int head, int column0) {
    if (!has_channel()) return;
    const int kind = kind_now(), channel = channel_now(head, column0);
    float* const early = memory().early + thread_now();
    if (kind == kF) {
      early[0] = a.a_log[head];
      early[kResidentThreads] = a.dt_bias[channel];
      return;
    }
    const float* const taps = kind == kQ ? a.taps[0] : kind == kK ? a.taps[1] : a.taps[2];
#pragma unroll
    for (int j = 0; j < K; ++j) early[j * kResidentThreads] = taps[channel * K + j];
#pragma unroll
    for (int j = 0; j < kPast; ++j)
      early[(K + j) * kResidentThreads] =
          folded_tail<K>(a.tail, a.record_in, stream_of(kind), j, a.step->fold, channel);
  }
  SPK_DEVICE void read_state(const KdaBlockArgs& a, int head, int column0) {
    const int t = thread_now(), slice = t / kColumns, column = column0 + t % kColumns;
    const float* const state = a.state + static_cast<i64>(head * D + slice * kKeys) * D + column;
#pragma unroll
    for (int j = 0; j < kKeys; ++j) s[j] = state[j * D];
  }
  // The accepted records.
  SPK_DEVICE void fold(const KdaBlockArgs& a, int head, int column0) {
    const Memory m = memory();
    const int t = thread_now(), slice = t / kColumns, column = column0 + t % kColumns;
    const int rows = a.step->fold;
#pragma unroll 1
    for (int i = 0; i < rows; ++i) {
      __syncthreads();  // everyone is done with the row before
      if (t < D) {
        m.k[t] = row_of(a.record_k, i)[head * D + t];
        m.alpha[t] = expf(row_of(a.record_g, i)[head * D + t]);
      }
      const float u = row_of(a.record_u, i)[head * D + column];
      __syncthreads();
#pragma unroll
      for (int j = 0; j < kKeys / 4; ++j) {
        const float4 k = four_keys(m.k + slice * kKeys, j);
        const float4 by = four_keys(m.alpha + slice * kKeys, j);
        s[4 * j] = updated(decayed(s[4 * j], by.x), k.x, u);
        s[4 * j + 1] = updated(decayed(s[4 * j + 1], by.y), k.y, u);
        s[4 * j + 2] = updated(decayed(s[4 * j + 2], by.z), k.z, u);
        s[4 * j + 3] = updated(decayed(s[4 * j + 3], by.w), k.w, u);
      }
    }
    __syncthreads();
  }

  // Behind read_early, read_state, fold and m.beta, which is the caller's, and a barrier. The
  // outputs go to a.o.
  SPK_DEVICE void run(const KdaBlockArgs& a, int head, int column0) {
    const Memory m = memory();
    const int t = thread_now(), slice = t / kColumns, column = column0 + t % kColumns;
    const bool verify = a.step->verify != 0;
    if (has_channel()) {
      const int kind = kind_now(), channel = channel_now(head, column0);
      const float* const early = m.early + t;
      if (kind == kF) {
        const float by = expf(early[0]), f = a.f.data[channel];
        const float g = a.lower_bound * sigmoid(by * (f + early[kResidentThreads]));
        m.alpha[t % D] = expf(g);
        if (verify && writes(column0)) row_at(a.record_g, 0)[channel] = g;
      } else {
        const float own = (kind == kQ ? a.x[0] : kind == kK ? a.x[1] : a.x[2]).data[channel];
        float sum = early[(K - 1) * kResidentThreads] * own;
#pragma unroll
        for (int j = 0; j < kPast; ++j)
          sum = fmaf(early[j * kResidentThreads], early[(K + j) * kResidentThreads], sum);
        (kind == kQ ? m.q : kind == kK ? m.k : m.v)[t % D] = silu(sum);
        if (writes(column0)) {
          const int stream = stream_of(kind);
          if (verify) row_at(a.record_in, stream * kMaxVerifyRows)[channel] = own;
            // A verify pass leaves the folded tail, any other the inputs of its own last rows.
#pragma unroll
          for (int j = 0; j < kPast; ++j) {
            const int from = verify ? j : j + 1;
            row_at(a.tail, stream * kPast + j)[channel] =
                from < kPast ? early[(K + from) * kResidentThreads] : own;
          }
        }
      }
    }
    __syncthreads();
    if (t < 2 * kWarp) {
      const bool is_k = t >= kWarp;
      float* const y = is_k ? m.k : m.q;
      unit_vector<D>(y, is_k ? 1.f : 1.f / sqrtf(static_cast<float>(D)), y);
      if (verify && is_k && column0 + kColumns == D)  // a lane reads what it wrote itself
        for (int at = t % kWarp; at < D; at += kWarp) row_at(a.record_k, 0)[head * D + at] = y[at];
    }
    float* const state = a.state + static_cast<i64>(head * D + slice * kKeys) * D + column;
    if (verify && a.step->fold > 0) {
#pragma unroll
      for (int j = 0; j < kKeys; ++j) state[j * D] = s[j];
    }
    __syncthreads();
    const float* const k = m.k + slice * kKeys;
    float seen = 0.f;
#pragma unroll
    for (int j = 0; j < kKeys / 4; ++j) {
      const float4 k4 = four_keys(k, j), by = four_keys(m.alpha + slice * kKeys, j);
      see(s[4 * j], by.x, k4.x, seen);
      see(s[4 * j + 1], by.y, k4.y, seen);
      see(s[4 * j + 2], by.z, k4.z, seen);
      see(s[4 * j + 3], by.w, k4.w, seen);
    }
    m.parts[t] = seen;
    __syncthreads();
    const float u = m.beta[0] * (m.v[t % kColumns] - slices_of(m.parts, t % kColumns));
    float out = 0.f;
#pragma unroll
    for (int j = 0; j < kKeys / 4; ++j) {
      const float4 k4 = four_keys(k, j), q4 = four_keys(m.q + slice * kKeys, j);
      take(s[4 * j], k4.x, u, q4.x, out);
      take(s[4 * j + 1], k4.y, u, q4.y, out);
      take(s[4 * j + 2], k4.z, u, q4.z, out);
      take(s[4 * j + 3], k4.w, u, q4.w, out);
    }
    __syncthreads();
    m.parts[t] = out;
    if (verify) {
      if (slice == 0) row_at(a.record_u, 0)[head * D + column] = u;
    } else {
#pragma unroll
      for (int j = 0; j < kKeys; ++j) state[j * D] = s[j];
    }
    __syncthreads();
    if (slice == 0) a.o.data[head * D + column] = slices_of(m.parts, t);
  }

  // y = norm of each head of a.o, gated, as norm_gate has it; a.gate holds sigmoids. By all warps,
  // without a barrier.
  static SPK_DEVICE void gated_norm(const KdaBlockArgs& a, float* y) {
    const int lane = thread_now() % kWarp;
    constexpr int kPer = D / kWarp, kAtOnce = 2;  // heads, whose loads go together
#pragma unroll 1
    for (int first = thread_now() / kWarp; first < a.heads; first += kAtOnce * kResidentWarps) {
      float value[kAtOnce][kPer], gate[kAtOnce][kPer], w[kPer];
#pragma unroll
      for (int j = 0; j < kPer; ++j) w[j] = a.o_norm[j * kWarp + lane];
#pragma unroll
      for (int h = 0; h < kAtOnce; ++h) {
        const int at = min(first + h * kResidentWarps, a.heads - 1) * D + lane;
#pragma unroll
        for (int j = 0; j < kPer; ++j) {
          value[h][j] = a.o.data[at + j * kWarp];
          gate[h][j] = a.gate.data[at + j * kWarp];
        }
      }
#pragma unroll
      for (int h = 0; h < kAtOnce; ++h) {
        const int head = first + h * kResidentWarps;
        if (head >= a.heads) break;
        float sum = 0.f;
#pragma unroll
        for (int j = 0; j < kPer; ++j) sum = fmaf(value[h][j], value[h][j], sum);
        const float scale = 1.f / sqrtf(warp_sum(sum) / static_cast<float>(D) + a.eps);
#pragma unroll
        for (int j = 0; j < kPer; ++j)
          y[head * D + j * kWarp + lane] = w[j] * (value[h][j] * scale) * gate[h][j];
      }
    }
  }

 private:
  static SPK_DEVICE float slices_of(const float* parts, int c) {
    float sum = parts[c];
#pragma unroll
    for (int slice = 1; slice < kKdaSlices; ++slice) sum += parts[slice * kColumns + c];
    return sum;
  }
};
static_assert(kResidentColumns * 4 <= kResidentScratch, "");  // what gated_norm makes

}  // namespace spk::gpu
