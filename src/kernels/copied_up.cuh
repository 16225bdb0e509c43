// Gate, up and activation of experts whose weights come by bulk copies (copied.cuh): tiles of 32
// units, a warp four of them, so that a block's tile is one group of the next activations.
#pragma once

#include "kernels/copied.cuh"

namespace spk::gpu {

template <int R>
struct UpMemory {
  unsigned char *slots, *x;
  float* tile;  // [2][R, kPackedUnits] activations of the block's tile
  Arrival* arrivals;
  int quad;  // bytes of four rows

  SPK_DEVICE explicit UpMemory(int hidden) {
    SPK_DYNAMIC_SHARED(memory);
    slots = memory;
    x = slots + copied_up_slots(hidden);
    tile = reinterpret_cast<float*>(x + R * copied_row(hidden));
    arrivals = reinterpret_cast<Arrival*>(tile + 2 * R * kPackedUnits);
    quad = copied_weights(kCopiedQuad, hidden);
  }
};
template <int R>
struct UpItem {
  int expert;
  ItemRows<R> rows;  // those past the n-th hold anything

  SPK_DEVICE UpItem(const CopiedArgs& a, int number) {
    const int* item = a.e.items + static_cast<i64>(min(number, a.most_items - 1)) * kItemInts;
    expert = item[0];
    rows.n = item[1];
#pragma unroll
    for (int i = 0; i < R; ++i) rows.at[i] = item[2 + i];
  }
};
// What a lane brings of an expert's units: codes and scales of gate, then of up. Where they begin
// is read early, because it is a trip to the L2.
SPK_DEVICE const unsigned char* units_of(const ExpertsArgs& e, int expert) {
  const int lane = threadIdx.x % kWarp;
  if (lane >= 4) return nullptr;
  const ExpertWeights& w = e.experts[expert];
  const Matrix& m = lane < 2 ? w.gate : w.up;
  return lane % 2 == 0 ? m.codes : m.scales;
}
// The warp's four units from `first` on.
SPK_DEVICE void ask_for_units(const ExpertsArgs& e, const unsigned char* from, int first, int quad,
                              unsigned char* to, Arrival* arrival) {
  const int lane = threadIdx.x % kWarp;
  if (lane == 0) announce(arrival, 2 * quad);
  __syncwarp();
  if (lane >= 4) return;
  const bool codes = lane % 2 == 0;
  const int row = codes ? e.hidden / 2 : e.hidden / kQuantGroup;
  bring(to + lane / 2 * quad + (codes ? 0 : kCopiedQuad * (e.hidden / 2)),
        from + static_cast<i64>(first) * row, kCopiedQuad * row, arrival);
}
// x as the kernel before left it, to shared memory in halves.
SPK_DEVICE void stage_quantised(const QuantRows& x, int n, unsigned char* to) {
  const int groups = x.cols / kQuantGroup, row_bytes = copied_row(x.cols);
  const uint4* const codes = reinterpret_cast<const uint4*>(x.codes);
  const uint2* const words = reinterpret_cast<const uint2*>(x.groups);
#pragma unroll 1
  for (int row = 0; row < n; ++row) {
    unsigned char* const at = to + row * row_bytes;
    for (int k = threadIdx.x; k < 2 * groups; k += kThreads)
      reinterpret_cast<uint4*>(at)[k % 2 * groups + k / 2] = codes[row * 2 * groups + k];
#pragma unroll 1
    for (int g = threadIdx.x; g < groups; g += kThreads)
      reinterpret_cast<uint2*>(at + x.cols)[g] = words[row * groups + g];
  }
}
// Gate and up of unit `lane / kRowLanes` of the warp's four, for rows of x in shared memory.
template <int N>
SPK_DEVICE void unit_products(const Tables& low, const unsigned char* slot, int quad, int cols,
                              const unsigned char* const (&x)[N], int n, float (&sum)[2][N]) {
  const int lane = threadIdx.x % kWarp, groups = cols / kQuantGroup;
  const int unit = lane / kRowLanes;
  const unsigned char* const codes = slot + unit * (cols / 2);
  const unsigned char* const scales = slot + kCopiedQuad * (cols / 2) + unit * groups;
#pragma unroll
  for (int k = 0; k < 2; ++k)
#pragma unroll
    for (int i = 0; i < N; ++i) sum[k][i] = 0.f;
#pragma unroll 2
  for (int g = lane % kRowLanes; g < groups; g += kRowLanes) {
    uint4 code[2];
    float factor[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      code[k] = reinterpret_cast<const uint4*>(codes + k * quad)[g];
      factor[k] = e8m0_to_float(scales[k * quad + g]);
    }
    if constexpr (N == 1) {
      const GroupOfX row = group_of(x[0], x[0] + cols, groups, g);
#pragma unroll
      for (int k = 0; k < 2; ++k)
        sum[k][0] = fmaf(group_alone(low, code[k], row), factor[k], sum[k][0]);
    } else {
      unsigned bytes[2][8];
#pragma unroll
      for (int k = 0; k < 2; ++k) bytes_of(code[k], bytes[k]);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (i >= n) break;
        const GroupOfX row = group_of(x[i], x[i] + cols, groups, g);
#pragma unroll
        for (int k = 0; k < 2; ++k)
          sum[k][i] = fmaf(group_of_bytes(bytes[k], row), factor[k], sum[k][i]);
      }
    }
  }
#pragma unroll
  for (int k = 0; k < 2; ++k)
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i >= n) break;
      sum[k][i] = sum_of_lanes(sum[k][i]);
    }
}
// Activations of the warp's units, to the block's tile.
template <int N>
SPK_DEVICE void unit_activations(const float (&sum)[2][N], int n, float limit, float* tile) {
  const int lane = threadIdx.x % kWarp;
  if (lane % kRowLanes != 0) return;
  const int unit = static_cast<int>(threadIdx.x) / kWarp * kCopiedQuad + lane / kRowLanes;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i >= n) break;
    tile[i * kPackedUnits + unit] = activate(sum[0][i], sum[1][i], limit);
  }
}

// Grid: at most kCopiedBlocks a multiprocessor. Tiles of 32 units of an item, in turns; the first
// blocks have two tiles of the shared expert in front of theirs, which are as many bytes.
template <int R>
__global__ void __launch_bounds__(kThreads, kRegistersOf)
    copied_up(const __grid_constant__ CopiedArgs a) {
  const ExpertsArgs& e = a.e;
  const Tables low(a.zero);
  const UpMemory<R> m(e.hidden);
  const int t = threadIdx.x, warp = t / kWarp, lane = t % kWarp;
  const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
  start_arrivals(m.arrivals, kWarps);
  // Where the weights lie: the choice of experts is the launch in front's.
#pragma unroll 1
  for (int at = (t * blocks + block) * kLineBytes; at < a.table_bytes;
       at += kThreads * blocks * kLineBytes)
    ask_for_line(reinterpret_cast<const unsigned char*>(e.experts) + at);
  __syncthreads();
  int tile = block - a.shared_blocks;
  if (tile < 0) {
    shared_up_tiles<R>(e, block, 0, tile_memory<R>(m.slots));
    make_room_for_copies();
    __syncthreads();
    tile += blocks;
  } else {
    wait_for_previous();
    // Blocks of the last product take the places of those that have ended, and ask for weights.
    let_next_start();
  }
  const int of_item = e.width / kPackedUnits;
  UpItem<R> item(a, tile / of_item);
  const int tiles = *e.count * of_item;
  if (tile >= tiles) return;
  unsigned char* const slot = m.slots + warp * 2 * m.quad;
  const unsigned char* from = units_of(e, item.expert);
  const auto ask = [&] {
    ask_for_units(e, from, tile % of_item * kPackedUnits + warp * kCopiedQuad, m.quad, slot,
                  m.arrivals + warp);
  };
  ask();
  UpItem<R> next(a, (tile + blocks) / of_item);
  stage_quantised(a.x, e.n, m.x);
  __syncthreads();
  for (int turn = 0;; ++turn) {
    const ItemRows<R>& rows = item.rows;
    const int group = tile % of_item;
    float* const to = m.tile + turn % 2 * R * kPackedUnits;
    tile += blocks;
    const bool more = tile < tiles;
    if (more) from = units_of(e, next.expert);
    const auto row_in_memory = [&](int pair) {
      return m.x + pair / e.top_k * copied_row(e.hidden);
    };
    wait_for(m.arrivals + warp, turn);
    __syncwarp();
    // Of several rows each mostly has experts of its own.
    if (R == 1 || rows.n == 1) {
      const unsigned char* const x[1] = {row_in_memory(rows.at[0])};
      float sum[2][1];
      unit_products<1>(low, slot, m.quad, e.hidden, x, 1, sum);
      __syncwarp();  // before the next copies
      if (more) ask();
      unit_activations<1>(sum, 1, e.limit, to);
    } else {
      const unsigned char* x[R];
#pragma unroll
      for (int i = 0; i < R; ++i) x[i] = row_in_memory(i < rows.n ? rows.at[i] : 0);
      float sum[2][R];
      unit_products<R>(low, slot, m.quad, e.hidden, x, rows.n, sum);
      __syncwarp();
      if (more) ask();
      unit_activations<R>(sum, rows.n, e.limit, to);
    }
    // One barrier a turn: who is at the next one has left this one's activations.
    __syncthreads();
    if (warp < rows.n) {
      int pair = rows.at[0];
#pragma unroll
      for (int i = 1; i < R; ++i)
        if (i == warp) pair = rows.at[i];
      const QuantisedGroup q = quantised(to[warp * kPackedUnits + lane]);
      const i64 row = static_cast<i64>(pair);
      constexpr int kHalf = kQuantGroup / 2;
      a.act.codes[row * e.width + lane / kHalf * (e.width / 2) + group * kHalf + lane % kHalf] =
          q.code;
      if (lane == 0)
        reinterpret_cast<uint2*>(a.act.groups)[row * of_item + group] =
            uint2{q.words[0], q.words[1]};
    }
    if (!more) break;
    item = next;
    next = UpItem<R>(a, (tile + blocks) / of_item);
  }
}

}  // namespace spk::gpu
