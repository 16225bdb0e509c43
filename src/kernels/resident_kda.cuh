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
    float* early;          // of each thread: taps and past inputs, or a and dt_bias
  };
  static constexpr int kEarly = K + kPast;
  static_assert((3 * D + kColumns * (1 + kKdaSlices) + kEarly * kResidentThreads) * 4 <=
                    kResidentScratch,
                "");
  static SPK_DEVICE Memory memory() {
    float* const at = reinterpret_cast<float*>(resident_memory().scratch);
    float *const v = at + 3 * D, *const parts = v + kColumns;
    return {at, at + D, at + 2 * D, v, parts, parts + kKdaSlices * kColumns};
  }

  static SPK_DEVICE int head_of(int unit) { return unit / kUnits; }
  static SPK_DEVICE int column_of(int unit) { return unit % kUnits * kColumns; }
  enum Kind : int { kQ, kK, kF, kV };
  static SPK_DEVICE int kind_now() { return thread_now() / D; }
  static SPK_DEVICE int channel_now(int head, int column0) {
    return head * D + thread_now() % D + (kind_now() == kV ? column0 : 0);
  }
  static SPK_DEVICE bool has_channel() { return thread_now() < 3 * D + kColumns; }
  // Of the convolution's streams q, k, v.
  static SPK_DEVICE int stream_of(int kind) { return kind == kV ? 2 : kind; }
  // What blocks of one head share (tails, records of inputs, keys and gates) is written by the last
  // of them, when all have read it: it keeps what it will write until it has seen the outputs of
  // all. They are made of every number that the others have read there, so those loads have
  // returned; a read that did not go into the outputs would not be safe. One block that has all
  // units reads them first.
  static SPK_DEVICE bool writes(int column0) {
    return has_channel() && (kind_now() == kV || column0 + kColumns == D);
  }
  // Of each thread, in the row that the norm left: past inputs, then its own input or its gate,
  // then its key.
  static constexpr int kKept = kPast + 2;
  static_assert(kKept * kResidentThreads * 4 <= kResidentRow, "");
  static SPK_DEVICE float* kept() { return resident_memory().row + thread_now(); }

  // Is under way when it returns; the state's lines come into the L2.
  static SPK_CALLED void read_early(int which, int unit) {
    const ResidentMemory resident = resident_memory();
    const KdaBlockArgs& a = resident.layers[which].kda;
    const int fold = resident.state->fold, head = head_of(unit), column0 = column_of(unit);
    constexpr int kLines = kColumns * 4 / kLineBytes;  // of a key
    static_assert(kLines * kLineBytes == kColumns * 4 && D * kLines <= kResidentThreads, "");
    if (const int t = thread_now(); t < D * kLines)
      ask_for_line(a.state + static_cast<i64>(head * D + t / kLines) * D + column0 +
                   t % kLines * (kLineBytes / 4));
    if (!has_channel()) return;
    const int kind = kind_now(), channel = channel_now(head, column0);
    float* const early = memory().early + thread_now();
    if (kind == kF) {
      bring_number(early, a.a_log + head);
      bring_number(early + kResidentThreads, a.dt_bias + channel);
      return;
    }
    const float* const taps = kind == kQ ? a.taps[0] : kind == kK ? a.taps[1] : a.taps[2];
#pragma unroll
    for (int j = 0; j < K; ++j) bring_number(early + j * kResidentThreads, taps + channel * K + j);
#pragma unroll
    for (int j = 0; j < kPast; ++j)
      bring_number(early + (K + j) * kResidentThreads,
                   folded_input<K>(a.tail, a.record_in, stream_of(kind), j, fold, channel));
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

  // Behind read_early. Awaits the head's products, of those of all heads, and
  // posts its outputs. `betas`, shared, may be written until the first barrier, the row of the norm
  // read. Leaves what write_shared() writes, behind a barrier.
  SPK_DEVICE void run(const KdaBlockArgs& a, int unit, const float* betas, const float* products,
                      float* mixed) {
    const int head = head_of(unit), column0 = column_of(unit);
    const float* const beta = betas + head;
    read_state(a, head, column0);
    if (resident_memory().state->fold > 0) fold(a, head, column0);
    const Memory m = memory();
    const int t = thread_now(), slice = t / kColumns, column = column0 + t % kColumns;
    const bool verify = a.step->verify != 0;
    float own = 0.f;  // of streams their input, of f the gate
    if (has_channel()) {
      const int kind = kind_now(), channel = channel_now(head, column0);
      const int product = kind == kF ? 3 : stream_of(kind);
      const float* const early = m.early + t;
      own = awaited(products + product * (a.heads * D) + channel);
      await_own_copies();
      if (kind == kF) {
        own = a.lower_bound * sigmoid(expf(early[0]) * (own + early[kResidentThreads]));
        m.alpha[t % D] = expf(own);
      } else {
        float sum = early[(K - 1) * kResidentThreads] * own;
#pragma unroll
        for (int j = 0; j < kPast; ++j)
          sum = fmaf(early[j * kResidentThreads], early[(K + j) * kResidentThreads], sum);
        (kind == kQ ? m.q : kind == kK ? m.k : m.v)[t % D] = silu(sum);
      }
    }
    __syncthreads();
    if (t < 2 * kWarp) {
      const bool is_k = t >= kWarp;
      float* const y = is_k ? m.k : m.q;
      unit_vector<D>(y, is_k ? 1.f : 1.f / sqrtf(static_cast<float>(D)), y);
    }
    if (writes(column0)) {
#pragma unroll
      for (int j = 0; j < kPast; ++j)
        kept()[j * kResidentThreads] = m.early[(K + j) * kResidentThreads + t];
      kept()[kPast * kResidentThreads] = own;
    }
    float* const state = a.state + static_cast<i64>(head * D + slice * kKeys) * D + column;
    if (verify && a.step->fold > 0) {
#pragma unroll
      for (int j = 0; j < kKeys; ++j) state[j * D] = s[j];
    }
    __syncthreads();
    if (writes(column0) && kind_now() == kK) kept()[(kPast + 1) * kResidentThreads] = m.k[t % D];
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
    const float u = *beta * (m.v[t % kColumns] - slices_of(m.parts, t % kColumns));
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
    __syncthreads();
    if (slice == 0) post(mixed + head * D + column, slices_of(m.parts, t));
    if (verify) {
      if (slice == 0) row_at(a.record_u, 0)[head * D + column] = u;
    } else {
#pragma unroll
      for (int j = 0; j < kKeys; ++j) state[j * D] = s[j];
    }
  }
  static SPK_CALLED void write_shared(int which, int unit) {
    const KdaBlockArgs& a = resident_memory().layers[which].kda;
    const int head = head_of(unit), column0 = column_of(unit);
    if (!writes(column0)) return;
    const bool verify = a.step->verify != 0;
    const int kind = kind_now(), channel = channel_now(head, column0), stream = stream_of(kind);
    const float* const from = kept();
    const float own = from[kPast * kResidentThreads];
    if (kind == kF) {
      if (verify) row_at(a.record_g, 0)[channel] = own;
      return;
    }
    if (verify) row_at(a.record_in, stream * kMaxVerifyRows)[channel] = own;
    if (verify && kind == kK) row_at(a.record_k, 0)[channel] = from[(kPast + 1) * kResidentThreads];
      // A verify pass leaves the folded tail, any other the inputs of its own last rows.
#pragma unroll
    for (int j = 0; j < kPast; ++j)
      row_at(a.tail, stream * kPast + j)[channel] = from[(verify ? j : j + 1) * kResidentThreads];
  }

  // y = norm of each head of `mixed`, gated, as norm_gate has it; `gate` holds sigmoids. Both are
  // awaited. By all warps, without a barrier.
  static SPK_DEVICE void gated_norm(const KdaBlockArgs& a, const float* mixed, const float* gates,
                                    float* y) {
    const int lane = thread_now() % kWarp;
    constexpr int kPer = D / kWarp, kAtOnce = 2;  // heads, whose loads go together
#pragma unroll 1
    for (int first = thread_now() / kWarp; first < a.heads; first += kAtOnce * kResidentWarps) {
      float value[kAtOnce][kPer], gate[kAtOnce][kPer], w[kPer];
#pragma unroll
      for (int j = 0; j < kPer; ++j) w[j] = a.o_norm[j * kWarp + lane];
      const auto load = [&](const float* from, float(&to)[kAtOnce][kPer]) {
#pragma unroll
        for (int h = 0; h < kAtOnce; ++h) {
          const int at = min(first + h * kResidentWarps, a.heads - 1) * D + lane;
#pragma unroll
          for (int j = 0; j < kPer; ++j) to[h][j] = look(from + at + j * kWarp);
        }
      };
      const auto missing = [](const float(&of)[kAtOnce][kPer]) {
        unsigned some = 0;
#pragma unroll
        for (int h = 0; h < kAtOnce; ++h)
#pragma unroll
          for (int j = 0; j < kPer; ++j) some |= is_there(of[h][j]) ? 0u : 1u;
        return some != 0;
      };
      load(gates, gate);
      load(mixed, value);
      look_until([&] {
        if (missing(gate)) load(gates, gate);
        if (missing(value)) load(mixed, value);
        return !missing(gate) && !missing(value);
      });
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
