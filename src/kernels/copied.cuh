// MXFP4 experts with int8 activations of up to eight rows, weights by bulk copies into shared
// memory: what is on its way is bounded by that and not by registers. Two launches that stream from
// their first to their last byte: gate, up and activation; the last product with the weighted sum.
// Products and sums as in packed.cuh and moe.cuh, bit for bit.
//
// Two blocks of 256 threads a multiprocessor stay and take pieces of equal size in turns. A warp
// asks for its own piece, and for the next one as soon as it is done with it.
#pragma once

#include "kernels/packed.cuh"
#include "kernels/ring.cuh"

namespace spk::gpu {

// Where there are no bulk copies nobody launches these kernels; they are compiled all the same.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int kRegistersOf = 1;
#else
constexpr int kRegistersOf = kCopiedBlocks;
#endif
static_assert(kCopiedQuad == kWarpRows && kCopiedDownRows == kTileGroup, "");
static_assert(kCopiedQuad * kWarps == kPackedUnits, "");

// What lies in memory that no launch writes that may still run: past the L1, which may be older.
SPK_DEVICE int peek(const int* at) {
#if defined(__CUDA_ARCH__)
  int x;
  asm volatile("{ .reg .u64 g; cvta.to.global.u64 g, %1; ld.relaxed.gpu.global.s32 %0, [g]; }"
               : "=r"(x)
               : "l"(at)
               : "memory");
  return x;
#else
  return *at;
#endif
}
// In front of a barrier of the block behind which copies come to where its threads have written.
SPK_DEVICE void make_room_for_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
template <int R>
SPK_DEVICE TileShared<R> tile_memory(unsigned char* at) {
  using S = TileShared<R>;
  static_assert((S::kStageWords + S::kInverses + S::kParts) * 4 <= kCopiedTile, "");
  unsigned* const words = reinterpret_cast<unsigned*>(at);
  float* const inverses = reinterpret_cast<float*>(words + S::kStageWords);
  return {words, inverses, inverses + S::kInverses};
}

// ---- products ----
// A group of a row of x. In memory the first halves of a row's groups lie side by side, then the
// second halves: lanes read sixteen bytes each without a gap.
struct GroupOfX {
  uint4 head, tail;
  uint2 start;  // its scale, and where its sum starts
};
SPK_DEVICE GroupOfX group_of(const unsigned char* halves, const unsigned char* words, int groups,
                             int g) {
  const uint4* const half = reinterpret_cast<const uint4*>(halves);
  return {half[g], half[groups + g], reinterpret_cast<const uint2*>(words)[g]};
}

// As kPlusLow and so on, for codes that meet one row only: bytes 141 + m (m - 115) where a code is
// not negative, 141 - m where it is, and ones (-1) where the other table counts. So no instruction
// joins the two, both meet the row, and their sum is 116 too small again.
constexpr unsigned kAloneLow = 0x908f8e8du, kAloneHigh = 0x99959391u;
constexpr unsigned kNegatedLow = 0x8a8b8c8du, kNegatedHigh = 0x81858789u;
// Tables that stay in registers, because they depend on an argument (`zero`) and the thread: what
// all threads have in common would be moved there anew for every look-up.
struct Tables {
  unsigned alone, negated;
  SPK_DEVICE explicit Tables(int zero)
      : alone(kAloneLow + static_cast<unsigned>(zero) * threadIdx.x),
        negated(kNegatedLow + static_cast<unsigned>(zero) * threadIdx.x) {}
};

SPK_DEVICE float exact_part(int total, const GroupOfX& x) {
  return (__uint_as_float(static_cast<unsigned>(total)) - kRound) * __uint_as_float(x.start.x);
}
SPK_DEVICE float group_alone(const Tables& low, const uint4& codes, const GroupOfX& x) {
  int total = static_cast<int>(x.start.y);
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const unsigned code = word_of(codes, w), flipped = code ^ 0x88888888u;
    const uint4& q = w < 2 ? x.head : x.tail;
    const unsigned first = word_of(q, w % 2 * 2), second = word_of(q, w % 2 * 2 + 1);
    total = dot4(pick_bytes(low.alone, kAloneHigh, code), first, total);
    total = dot4(pick_bytes(low.negated, kNegatedHigh, flipped), first, total);
    total = dot4(pick_bytes(low.alone, kAloneHigh, code >> 16), second, total);
    total = dot4(pick_bytes(low.negated, kNegatedHigh, flipped >> 16), second, total);
  }
  return exact_part(total, x);
}
SPK_DEVICE void bytes_of(const uint4& codes, unsigned (&bytes)[8]) {
#pragma unroll
  for (int w = 0; w < 4; ++w) codes_to_bytes(word_of(codes, w), bytes[2 * w], bytes[2 * w + 1]);
}
SPK_DEVICE float group_of_bytes(const unsigned (&bytes)[8], const GroupOfX& x) {
  int total = static_cast<int>(x.start.y);
#pragma unroll
  for (int w = 0; w < 4; ++w) total = dot4(bytes[w], word_of(x.head, w), total);
#pragma unroll
  for (int w = 0; w < 4; ++w) total = dot4(bytes[4 + w], word_of(x.tail, w), total);
  return exact_part(total, x);
}
SPK_DEVICE float sum_of_lanes(float x) {
#pragma unroll
  for (int d = kRowLanes / 2; d > 0; d /= 2) x += __shfl_xor_sync(kAllLanes, x, d);
  return x;
}

// ---- gate and up ----
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

// ---- down ----
constexpr int kDownAhead = 2;  // steps of the shared expert's tile on their way
template <int R>
struct DownMemory {
  unsigned char *slots, *shared;
  float *outs, *weights;  // [pairs, down_rows], [pairs]
  int* items;
  Arrival* arrivals;
  int slot;  // bytes

  SPK_DEVICE explicit DownMemory(const CopiedArgs& a) {
    SPK_DYNAMIC_SHARED(memory);
    const int pairs = a.e.n * a.e.top_k;
    slot = copied_weights(a.down_rows, a.e.width);
    slots = memory;
    shared = slots + kWarps * a.down_stages * slot;
    arrivals = reinterpret_cast<Arrival*>(shared + kCopiedTile);
    outs = reinterpret_cast<float*>(arrivals + kWarps * a.down_stages);
    weights = outs + pairs * a.down_rows;
    items = reinterpret_cast<int*>(weights + pairs);
  }
};
// The weights of some rows of an item times N of its pairs; what is asked for arrives at `arrival`.
template <int N>
SPK_DEVICE void down_products(const CopiedArgs& a, const Tables& low, const unsigned char* slot,
                              int rows, const int* pairs, Arrival* arrival, int turn, float* outs) {
  constexpr int kHeld = N == 1 ? 3 : 1, kSteps = kCopiedDownRows / kCopiedQuad;
  const int cols = a.e.width, groups = cols / kQuantGroup, lane = threadIdx.x % kWarp;
  const int quarter = lane / kRowLanes;
  const unsigned char* const scales = slot + rows * (cols / 2);
  float sum[kSteps][N];
#pragma unroll
  for (int s = 0; s < kSteps; ++s)
#pragma unroll
    for (int i = 0; i < N; ++i) sum[s][i] = 0.f;
#pragma unroll 1
  for (int first = lane % kRowLanes; first < groups + lane % kRowLanes;
       first += kHeld * kRowLanes) {
    // Past the end the last group again, which is not used.
    GroupOfX x[kHeld][N];
#pragma unroll
    for (int f = 0; f < kHeld; ++f)
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const i64 row = static_cast<i64>(pairs[i]);
        x[f][i] = group_of(reinterpret_cast<const unsigned char*>(a.act.codes) + row * cols,
                           reinterpret_cast<const unsigned char*>(a.act.groups + row * 2 * groups),
                           groups, min(first + f * kRowLanes, groups - 1));
      }
    wait_for(arrival, turn);
#pragma unroll
    for (int f = 0; f < kHeld; ++f) {
      const int g = first + f * kRowLanes;
      if (g >= groups) break;
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        if (s * kCopiedQuad >= rows) break;
        const int r = min(s * kCopiedQuad + quarter, rows - 1);
        const uint4 code = reinterpret_cast<const uint4*>(slot + r * (cols / 2))[g];
        const float factor = e8m0_to_float(scales[r * groups + g]);
        if constexpr (N == 1) {
          sum[s][0] = fmaf(group_alone(low, code, x[f][0]), factor, sum[s][0]);
        } else {
          unsigned bytes[8];
          bytes_of(code, bytes);
#pragma unroll
          for (int i = 0; i < N; ++i)
            sum[s][i] = fmaf(group_of_bytes(bytes, x[f][i]), factor, sum[s][i]);
        }
      }
    }
  }
  __syncwarp();
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    if (s * kCopiedQuad >= rows) break;
    const int r = s * kCopiedQuad + quarter;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float y = sum_of_lanes(sum[s][i]);
      if (lane % kRowLanes == 0 && r < rows) outs[pairs[i] * a.down_rows + r] = y;
    }
  }
}

// Grid: at most kCopiedBlocks a multiprocessor, each takes the rows of a block in turns: of all
// items, an item a warp, and of the shared expert, and their weighted sum.
template <int R>
__global__ void __launch_bounds__(kThreads, kRegistersOf)
    copied_down(const __grid_constant__ CopiedArgs a) {
  const ExpertsArgs& e = a.e;
  const Tables low(a.zero);
  const DownMemory<R> m(a);
  const TileShared<R> shared = tile_memory<R>(m.shared);
  const int t = threadIdx.x, warp = t / kWarp, lane = t % kWarp;
  const int blocks = static_cast<int>(gridDim.x), pairs = e.n * e.top_k, stages = a.down_stages;
  start_arrivals(m.arrivals, kWarps * stages);
  // The items and their weights were there before the launch in front let this one start, because
  // it waited for them first: so experts are asked for while it runs.
  const int count = min(peek(e.count), a.most_items);
#pragma unroll 1
  for (int k = t; k < count * kItemInts; k += kThreads) m.items[k] = peek(e.items + k);
#pragma unroll 1
  for (int k = t; k < pairs; k += kThreads)
    m.weights[k] = __uint_as_float(static_cast<unsigned>(
        peek(reinterpret_cast<const int*>(row_of(a.weights, k / e.top_k)) + k % e.top_k)));
  __syncthreads();
  const int mine = warp < count ? (count - warp + kWarps - 1) / kWarps : 0;
  const auto rows_from = [&](int row) { return min(a.down_rows, e.hidden - row); };
  const int apart = blocks * a.down_rows;
  int asked = 0, asked_job = 0, asked_row = static_cast<int>(blockIdx.x) * a.down_rows;
  // Where the next weights of a lane begin, its codes or its scales: read early.
  const unsigned char* from = nullptr;
  const auto look_up = [&] {
    if (mine == 0 || lane >= 2) return;
    const Matrix& w = e.experts[m.items[(warp + asked_job * kWarps) * kItemInts]].down;
    from = lane == 0 ? w.codes : w.scales;
  };
  const auto ask = [&] {
    if (mine == 0 || asked_row >= e.hidden) return;
    const int rows = rows_from(asked_row);
    const int stage = warp * stages + asked % stages;
    if (lane == 0) announce(m.arrivals + stage, copied_weights(rows, e.width));
    __syncwarp();
    if (lane < 2) {
      const int row = lane == 0 ? e.width / 2 : e.width / kQuantGroup;
      bring(m.slots + stage * m.slot + (lane == 0 ? 0 : rows * (e.width / 2)),
            from + static_cast<i64>(asked_row) * row, rows * row, m.arrivals + stage);
    }
    ++asked;
    if (++asked_job == mine) {
      asked_job = 0;
      asked_row += apart;
    }
    look_up();
  };
  look_up();
#pragma unroll 1
  for (int s = 0; s < stages; ++s) ask();
  const TileSlice slice = tile_slice(e.shared.down.cols);
  int done = 0;
  for (int row = static_cast<int>(blockIdx.x) * a.down_rows; row < e.hidden; row += apart) {
    const int rows = rows_from(row);
    const TileRows w = tile_rows<kFp8>(e.shared.down, row + min(lane / 4, rows - 1),
                                       row + min(lane / 4 + kTileGroup / 2, rows - 1), slice.first);
    TileFlight<kFp8, kDownAhead> flight;
    flight.start(w, slice.first, flight_steps<R, kDownAhead>(slice.count));
    wait_for_previous();  // of the first turn; it costs nothing later
    let_next_start();
    const int r = t % rows, i = t / rows;  // the thread's number of the sum
    float* const to = a.residual.data && i < e.n ? row_at(a.residual, i) + row + r : nullptr;
    const float before = to ? *to : 0.f;
#pragma unroll 1
    for (int job = 0; job < mine; ++job, ++done) {
      const int* const item = m.items + (warp + job * kWarps) * kItemInts;
      const int stage = warp * stages + done % stages, n = item[1];
      const unsigned char* const slot = m.slots + stage * m.slot;
      int k = 0;
      if (R > 1) {
#pragma unroll 1
        for (; k + 2 <= n; k += 2)
          down_products<2>(a, low, slot, rows, item + 2 + k, m.arrivals + stage, done / stages,
                           m.outs);
      }
      if (k < n)
        down_products<1>(a, low, slot, rows, item + 2 + k, m.arrivals + stage, done / stages,
                         m.outs);
      __syncwarp();  // before the next copies
      ask();
    }
    // Ends with a barrier: everyone's products are there too.
    tile_products<kFp8, R, kDownAhead>(w, w, false, slice,
                                       {e.shared_act, static_cast<i64>(e.shared_width)}, e.n, false,
                                       flight, shared, shared.parts);
    if (i < e.n) {
      float sum = 0.f;
#pragma unroll 4
      for (int k = i * e.top_k; k < (i + 1) * e.top_k; ++k)
        sum = fmaf(m.weights[k], m.outs[k * a.down_rows + r], sum);
      sum += sum_of_parts<R>(shared.parts, r, i);
      row_at(a.o, i)[row + r] = sum;
      if (to) *to = before + sum;
    }
    __syncthreads();  // before the next rows' numbers
  }
}

}  // namespace spk::gpu
