// MXFP4 experts with int8 activations (W4A8): quantised rows, integer sums of 32 columns, gate/up
// with activation, down. The same numbers as the cpu back end's packed experts (cpu/packed.h).
//
// A row of x is quantised by groups of 32: q = round(x * (127 / max|x|)), to even; its scale is
// max|x| / 127 / 2 (the half undoes the doubled codes). A code of a weight becomes twice its E2M1
// value, -12 .. 12, as a byte with -116 added; four of them meet four q in one instruction. The sum
// of a group starts at 116 times the sum of its q, which undoes the -116, plus the bits of 1.5 *
// 2^23: so its end is the bits of a float that is 1.5 * 2^23 too large, and one subtraction gives
// the number.
//
// Row-invariant: sums of groups are exact. Eight lanes share a weight row; lane l adds its groups
// l, l + 8, ... in ascending order, fma(float(sum) * scale of x, scale of w, y), then the butterfly
// over the eight. Neither the rows that share the pass nor instantiation or grid changes it.
#pragma once

#include "kernels/moe.cuh"
#include "kernels/tile.cuh"

namespace spk::gpu {

// ---- words of four bytes ----
SPK_DEVICE int dot4(unsigned a, unsigned b, int sum) {
#if defined(__CUDA_ARCH__)
  asm("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
#else
  for (int k = 0; k < 32; k += 8)
    sum += static_cast<signed char>(a >> k) * static_cast<signed char>(b >> k);
#endif
  return sum;
}
// Byte k: that of the eight in `low` and `high` which nibble k of `which` names by its lower three
// bits; with the fourth set, that byte's sign eight times.
SPK_DEVICE unsigned pick_bytes(unsigned low, unsigned high, unsigned which) {
#if defined(__CUDA_ARCH__)
  unsigned picked;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(picked) : "r"(low), "r"(high), "r"(which));
  return picked;
#else
  unsigned picked = 0;
  for (int k = 0; k < 4; ++k) {
    const unsigned nibble = which >> (4 * k) & 15u, at = nibble & 7u;
    unsigned byte = (at < 4 ? low >> (8 * at) : high >> (8 * at - 32)) & 255u;
    if (nibble >= 8) byte = byte >= 128 ? 255u : 0u;
    picked |= byte << (8 * k);
  }
  return picked;
#endif
}
SPK_DEVICE int warp_total(int x) {
#if defined(__CUDA_ARCH__)
  int y;
  asm volatile("redux.sync.add.s32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
  return y;
#else
  for (int d = kWarp / 2; d > 0; d /= 2) x += __shfl_xor_sync(kAllLanes, x, d);
  return x;
#endif
}

// ---- weights ----
constexpr int kByteOffset = 116;
// Bytes 140 + m (that is m - 116) for the magnitudes 0 1 2 3 4 6 8 12, all with their sign set, and
// the complements of 140 - m, all without: where a code is negative the first table gives ones, and
// where it is not the second gives zeros, so `first & ~second` is right for both.
constexpr unsigned kPlusLow = 0x8f8e8d8cu, kPlusHigh = 0x98949290u;
constexpr unsigned kMinusLow = 0x76757473u, kMinusHigh = 0x7f7b7977u;
// For codes that meet one row only: bytes 141 + m where a code is not negative and 141 - m where it
// is, and ones (-1) where the other table counts. So no instruction joins the two: both meet the
// row, on a pipe that is idle, and their sum is 116 too small again.
constexpr unsigned kAloneLow = 0x908f8e8du, kAloneHigh = 0x99959391u;
constexpr unsigned kNegatedLow = 0x8a8b8c8du, kNegatedHigh = 0x81858789u;
SPK_DEVICE int dot8_alone(unsigned codes, unsigned first, unsigned second, int sum) {
  const unsigned flipped = codes ^ 0x88888888u;
  sum = dot4(pick_bytes(kAloneLow, kAloneHigh, codes), first, sum);
  sum = dot4(pick_bytes(kNegatedLow, kNegatedHigh, flipped), first, sum);
  sum = dot4(pick_bytes(kAloneLow, kAloneHigh, codes >> 16), second, sum);
  return dot4(pick_bytes(kNegatedLow, kNegatedHigh, flipped >> 16), second, sum);
}
// Eight codes: those of columns 0 .. 3 and of 4 .. 7.
SPK_DEVICE void codes_to_bytes(unsigned codes, unsigned& first, unsigned& second) {
  const unsigned flipped = codes ^ 0x88888888u;
  first = pick_bytes(kPlusLow, kPlusHigh, codes) & ~pick_bytes(kMinusLow, kMinusHigh, flipped);
  second = pick_bytes(kPlusLow, kPlusHigh, codes >> 16) &
           ~pick_bytes(kMinusLow, kMinusHigh, flipped >> 16);
}

// ---- activations ----
constexpr float kRound = 12582912.f;  // 1.5 * 2^23: its last bit is 1
constexpr int kRoundBits = 0x4b400000;

// A warp's group: lane c has column c. Magnitudes compare as integers do. Where 127 / max|x| is no
// float all count as zeros; what is no number makes the group's scale one.
SPK_DEVICE void quantise_group(float x, const QuantRows& to, i64 row, int group) {
  constexpr unsigned kFinite = 0x7f800000u, kSmallest = 27u << 23;
  const int lane = threadIdx.x % kWarp;
  const unsigned largest = warp_largest(__float_as_uint(x) & 0x7fffffffu);
  const bool finite = largest < kFinite, some = finite && largest >= kSmallest;
  const float top = __uint_as_float(some ? largest : 0x3f800000u);
  const float inverse = some ? 127.f / top : 0.f;
  const float rounded = (finite ? x : 0.f) * inverse + kRound;
  const auto code = static_cast<signed char>(__float_as_uint(rounded) & 255u);
  const int sum = warp_total(code);
  to.codes[row * to.cols + group * kQuantGroup + lane] = code;
  if (lane != 0) return;
  const float scale = some ? top / 127.f * .5f : 0.f;
  unsigned* words = to.groups + 2 * (row * (to.cols / kQuantGroup) + group);
  words[0] = finite ? __float_as_uint(scale) : 0x7fc00000u;
  words[1] = static_cast<unsigned>(kRoundBits + kByteOffset * sum);
}
// By each warp of the block a group.
SPK_DEVICE void quantise_block(const QuantiseArgs& a, int block, i64 row) {
  const int t = threadIdx.x, group = block * (static_cast<int>(blockDim.x) / kWarp) + t / kWarp;
  if (group * kQuantGroup >= a.to.cols) return;
  quantise_group(row_of(a.x, row)[group * kQuantGroup + t % kWarp], a.to, row, group);
}
// Grid: (groups / kWarps, rows).
template <int = 0>
__global__ void __launch_bounds__(kThreads) quantise_rows(const QuantiseArgs a) {
  start_after_previous();
  quantise_block(a, blockIdx.x, blockIdx.y);
}
// Grid: 1 block for the items, then groups / kWarps for each row.
template <int = 0>
__global__ void __launch_bounds__(kThreads) few_items_and_rows(const PackedItemsArgs a) {
  start_after_previous();
  const int block = static_cast<int>(blockIdx.x) - 1;
  if (block < 0) {
    few_items(a.items, expert_of_pair(a.items, threadIdx.x));
    return;
  }
  const int blocks = (a.x.to.cols / kQuantGroup + kWarps - 1) / kWarps;
  quantise_block(a.x, block % blocks, block / blocks);
}

// ---- products ----
constexpr int kRowLanes = 8;                                        // of one weight row
constexpr int kWarpRows = kWarp / kRowLanes;                        // of a load of the warp
constexpr int packed_ahead(int rows) { return rows == 1 ? 5 : 4; }  // loads of a row in flight
// Blocks of which the compiler keeps the registers free.
constexpr int packed_blocks(int shared, int rows) {
  return rows <= (shared == kMxfp4 ? 2 : 4) ? 2 : 1;
}

// Two weight rows of a lane, and what it has asked for of them.
template <int A>
struct PackedFlight {
  const unsigned char* codes[2];
  const unsigned char* scales[2];
  uint4 code[A][2];
  unsigned scale[A][2];

  SPK_DEVICE void aim(int k, const Matrix& m, i64 row) {
    codes[k] = m.codes + row * m.row_bytes;
    scales[k] = m.scales + row * (m.cols / kQuantGroup);
  }
  SPK_DEVICE void load(int f, int group) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      code[f][k] = reinterpret_cast<const uint4*>(codes[k])[group];
      scale[f][k] = scales[k][group];
    }
  }
};

// One group of the lane's weight rows times the same group of each row of x.
template <int R, int W>
SPK_DEVICE void add_group(const uint4 (&code)[W], const unsigned (&scale)[W], const QuantRows& x,
                          const int (&row)[R], int n, int group, float (&sum)[W][R]) {
  constexpr bool kAlone = R == 1;
  unsigned bytes[W][8];
  float factor[W];
#pragma unroll
  for (int k = 0; k < W; ++k) {
    if (!kAlone)
#pragma unroll
      for (int w = 0; w < 4; ++w)
        codes_to_bytes(word_of(code[k], w), bytes[k][2 * w], bytes[k][2 * w + 1]);
    factor[k] = e8m0_to_float(scale[k]);
  }
  const int groups = x.cols / kQuantGroup;
#pragma unroll
  for (int i = 0; i < R; ++i) {
    if (i >= n) break;
    const i64 at = static_cast<i64>(row[i]) * groups + group;
    const uint4* q = reinterpret_cast<const uint4*>(x.codes) + 2 * at;
    const uint4 half[2] = {q[0], q[1]};
    const uint2 start = reinterpret_cast<const uint2*>(x.groups)[at];
#pragma unroll
    for (int k = 0; k < W; ++k) {
      int total = static_cast<int>(start.y);
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const unsigned first = word_of(half[w / 2], w % 2 * 2);
        const unsigned second = word_of(half[w / 2], w % 2 * 2 + 1);
        total = kAlone ? dot8_alone(word_of(code[k], w), first, second, total)
                       : dot4(bytes[k][2 * w + 1], second, dot4(bytes[k][2 * w], first, total));
      }
      const float exact = __uint_as_float(static_cast<unsigned>(total)) - kRound;
      // The scale of x first: an E8M0 of 2^127 times 0 must stay 0.
      sum[k][i] = fmaf(exact * __uint_as_float(start.x), factor[k], sum[k][i]);
    }
  }
}

// sum[k][i] = weight row k times row[i] of x, i < n; the eight lanes of a row all get it.
template <int A, int R>
SPK_DEVICE void packed_dots(PackedFlight<A>& flight, const QuantRows& x, const int (&row)[R], int n,
                            float (&sum)[2][R]) {
  const int groups = x.cols / kQuantGroup, lane = threadIdx.x % kRowLanes;
#pragma unroll
  for (int f = 0; f < A; ++f)
    if (lane + f * kRowLanes < groups) flight.load(f, lane + f * kRowLanes);
  let_next_start();
#pragma unroll
  for (int k = 0; k < 2; ++k)
#pragma unroll
    for (int i = 0; i < R; ++i) sum[k][i] = 0.f;
  for (int first = lane; first < groups; first += A * kRowLanes) {
#pragma unroll
    for (int f = 0; f < A; ++f) {
      const int group = first + f * kRowLanes, next = group + A * kRowLanes;
      if (group >= groups) break;
      add_group(flight.code[f], flight.scale[f], x, row, n, group, sum);
      if (next < groups) flight.load(f, next);
    }
  }
#pragma unroll
  for (int k = 0; k < 2; ++k) {
#pragma unroll
    for (int i = 0; i < R; ++i) {
      if (i >= n) break;
#pragma unroll
      for (int d = kRowLanes / 2; d > 0; d /= 2)
        sum[k][i] += __shfl_xor_sync(kAllLanes, sum[k][i], d);
    }
  }
}

// The block's 32 units of gate and up, activated: as floats where `floats` is wanted, and as one
// group of quantised columns.
template <int R>
SPK_DEVICE void packed_up_rows(const Matrix& gate, const Matrix& up, int first, const QuantRows& x,
                               const int (&from)[R], const ItemRows<R>& rows, float limit,
                               float* floats, const QuantRows& to, float* tile) {
  const int t = threadIdx.x, lane = t % kWarp, unit = t / kRowLanes;
  PackedFlight<packed_ahead(R)> flight;
  flight.aim(0, gate, first + unit);
  flight.aim(1, up, first + unit);
  float sum[2][R];
  packed_dots<packed_ahead(R), R>(flight, x, from, rows.n, sum);
#pragma unroll
  for (int i = 0; i < R; ++i) {
    if (i >= rows.n) break;
    if (lane % kRowLanes == 0)
      tile[i * kPackedUnits + unit] = activate(sum[0][i], sum[1][i], limit);
  }
  __syncthreads();
  const int i = t / kWarp;  // a warp a row of the item
  if (i >= rows.n) return;
  int pair = rows.at[0];
#pragma unroll
  for (int k = 1; k < R; ++k)
    if (k == i) pair = rows.at[k];
  const float x_i = tile[i * kPackedUnits + lane];
  if (floats) floats[static_cast<i64>(pair) * gate.rows + first + lane] = x_i;
  if (to.codes) quantise_group(x_i, to, pair, first / kQuantGroup);
}
template <int R>
SPK_DEVICE void packed_down_rows(const Matrix& down, int first, const QuantRows& act,
                                 const ItemRows<R>& rows, float* out) {
  constexpr int kApart =
      kWarps * kWarpRows;  // of a lane's two rows: stores of a block lie together
  const int row = first + threadIdx.x / kRowLanes, hidden = down.rows;
  PackedFlight<packed_ahead(R)> flight;
  flight.aim(0, down, row);
  flight.aim(1, down, min(row + kApart, hidden - 1));
  float sum[2][R];
  packed_dots<packed_ahead(R), R>(flight, act, rows.at, rows.n, sum);
  if (threadIdx.x % kRowLanes != 0) return;
#pragma unroll
  for (int i = 0; i < R; ++i) {
    if (i >= rows.n) break;
    float* to = out + static_cast<i64>(rows.at[i]) * hidden + row;
    to[0] = sum[0][i];
    if (row + kApart < hidden) to[kApart] = sum[1][i];
  }
}
static_assert(kPackedUnits == kWarps * kWarpRows && kPackedDownRows == 2 * kPackedUnits, "");
static_assert(kPackedUnits == kQuantGroup && kExpertRows <= kWarps, "");

// ---- the shared expert in FP8: through the matrix unit (tile.cuh) ----
// Steps in flight: the registers are the routed experts'.
constexpr int kSharedAhead = 3;
// A block's tiles one after the other: few blocks, so that all of the launch run at once. `aim(k)`
// is tile k's rows, `store(r, i, parts)` takes row r of it and row i of the bucket.
template <int R, typename Aim, typename Store>
SPK_DEVICE void shared_tiles(const TileShared<R>& shared, const TileSlice& slice, const View& x,
                             int n, Aim&& aim, Store&& store) {
  TileRows w = aim(0);
  TileFlight<kFp8, kSharedAhead> flight;
  flight.start(w, slice.first, flight_steps<R, kSharedAhead>(slice.count));
  wait_for_previous();
  for (int k = 0; k < kSharedTiles; ++k) {
    const bool more = k + 1 < kSharedTiles;
    if (!more) let_next_start();
    const TileRows next = more ? aim(k + 1) : w;
    tile_products<kFp8, R, kSharedAhead>(w, next, more, slice, x, n,
                                         k > 0 && slice.count <= tile_steps(R), flight, shared,
                                         shared.parts);
    store(k, shared.parts);
    w = next;
    __syncthreads();  // before the next tile's parts
  }
}
// Eight rows of gate and the same ones of up are a tile.
template <int R>
SPK_DEVICE void shared_up_tiles(const ExpertsArgs& e, int block, int bucket,
                                const TileShared<R>& shared) {
  constexpr int kUnits = kTileGroup / 2;
  const TileSlice slice = tile_slice(e.shared.gate.cols);
  const int first = block * kSharedUnits, row0 = bucket * R, n = min(e.n - row0, R);
  shared_tiles<R>(
      shared, slice, {row_at(e.x, row0), e.x.stride}, n,
      [&](int k) {
        const int unit =
            min(first + k * kUnits + static_cast<int>(threadIdx.x) % kWarp / 4, e.shared_width - 1);
        const TileRows gate = tile_rows<kFp8>(e.shared.gate, unit, unit, slice.first);
        const TileRows up = tile_rows<kFp8>(e.shared.up, unit, unit, slice.first);
        return TileRows{gate.upper, up.lower, gate.upper_scales, up.lower_scales};
      },
      [&](int k, const float* parts) {
        for (int t = threadIdx.x; t < kUnits * R; t += kThreads) {
          const int i = t / kUnits, r = t % kUnits, unit = first + k * kUnits + r;
          if (i >= n || unit >= e.shared_width) continue;
          e.shared_act[static_cast<i64>(row0 + i) * e.shared_width + unit] = activate(
              sum_of_parts<R>(parts, r, i), sum_of_parts<R>(parts, r + kUnits, i), e.shared_limit);
        }
      });
}
template <int R>
SPK_DEVICE void shared_down_tiles(const ExpertsArgs& e, int block, int bucket,
                                  const TileShared<R>& shared) {
  const TileSlice slice = tile_slice(e.shared.down.cols);
  const int first = block * kSharedDownRows, row0 = bucket * R, n = min(e.n - row0, R);
  shared_tiles<R>(
      shared, slice, {e.shared_act + static_cast<i64>(row0) * e.shared_width, e.shared_width}, n,
      [&](int k) {
        const int row = first + k * kTileGroup + static_cast<int>(threadIdx.x) % kWarp / 4;
        return tile_rows<kFp8>(e.shared.down, min(row, e.hidden - 1),
                               min(row + kTileGroup / 2, e.hidden - 1), slice.first);
      },
      [&](int k, const float* parts) {
        for (int t = threadIdx.x; t < kTileGroup * R; t += kThreads) {
          const int i = t / kTileGroup, r = t % kTileGroup, row = first + k * kTileGroup + r;
          if (i < n && row < e.hidden)
            e.shared_out[static_cast<i64>(row0 + i) * e.hidden + row] =
                sum_of_parts<R>(parts, r, i);
        }
      });
}
// Shared memory of either kernel for those tiles; none where the shared expert is packed too.
#define SPK_SHARED_TILES(name)                                                            \
  SPK_SHARED(uint4, name##_words, S == kMxfp4 ? 1 : TileShared<R>::kStageWords / 4);      \
  SPK_SHARED(float, name##_inverses, S == kMxfp4 ? 1 : TileShared<R>::kInverses);         \
  SPK_SHARED(float, name##_parts, S == kMxfp4 ? 1 : TileShared<R>::kParts);               \
  const TileShared<R> name = {reinterpret_cast<unsigned*>(name##_words), name##_inverses, \
                              name##_parts}

// Grid: blocks of the shared expert, then those of the items. S: format of the shared expert, which
// is packed too when it is MXFP4, and else FP8.
template <int S, int R>
__global__ void __launch_bounds__(kThreads, packed_blocks(S, R)) packed_up(const PackedArgs a) {
  static_assert(S == kMxfp4 || S == kFp8, "");
  SPK_SHARED(float, tile, R* kPackedUnits);
  SPK_SHARED_TILES(shared);
  const ExpertsArgs& e = a.e;
  int block = blockIdx.x;
  ItemRows<R> rows;
  if (block < a.shared_blocks * a.shared_buckets) {
    const int bucket = block / a.shared_blocks;
    block %= a.shared_blocks;
    if constexpr (S == kMxfp4) {
      wait_for_previous();
      if (!shared_rows(e, bucket, rows)) return;
      packed_up_rows<R>(e.shared.gate, e.shared.up, block * kPackedUnits, a.x, rows.at, rows,
                        e.shared_limit, e.shared_act, a.shared_act, tile);
    } else {
      shared_up_tiles<R>(e, block, bucket, shared);
    }
    return;
  }
  wait_for_previous();
  block -= a.shared_blocks * a.shared_buckets;
  int expert;
  if (!routed_rows(e, block / a.blocks, rows, expert)) return;
  const ExpertWeights& w = e.experts[expert];
  const int first = block % a.blocks * kPackedUnits;
  // Of four rows each mostly has experts of its own, so the item of one row has code of its own.
  if (R > 1 && rows.n == 1) {
    const int from[1] = {rows.at[0] / e.top_k};
    packed_up_rows<1>(w.gate, w.up, first, a.x, from, ItemRows<1>{1, {rows.at[0]}}, e.limit, e.act,
                      a.act, tile);
    return;
  }
  int from[R];
#pragma unroll
  for (int i = 0; i < R; ++i) from[i] = rows.at[i] / e.top_k;
  packed_up_rows<R>(w.gate, w.up, first, a.x, from, rows, e.limit, e.act, a.act, tile);
}

template <int S, int R>
__global__ void __launch_bounds__(kThreads, packed_blocks(S, R)) packed_down(const PackedArgs a) {
  static_assert(S == kMxfp4 || S == kFp8, "");
  SPK_SHARED_TILES(shared);
  const ExpertsArgs& e = a.e;
  int block = blockIdx.x;
  ItemRows<R> rows;
  if (block < a.shared_blocks * a.shared_buckets) {
    const int bucket = block / a.shared_blocks;
    block %= a.shared_blocks;
    if constexpr (S == kMxfp4) {
      wait_for_previous();
      if (!shared_rows(e, bucket, rows)) return;
      packed_down_rows<R>(e.shared.down, block * kPackedDownRows, a.shared_act, rows, e.shared_out);
    } else {
      shared_down_tiles<R>(e, block, bucket, shared);
    }
    return;
  }
  wait_for_previous();
  block -= a.shared_blocks * a.shared_buckets;
  int expert;
  if (!routed_rows(e, block / a.blocks, rows, expert)) return;
  const int first = block % a.blocks * kPackedDownRows;
  if (R > 1 && rows.n == 1) {
    packed_down_rows<1>(e.experts[expert].down, first, a.act, ItemRows<1>{1, {rows.at[0]}}, e.out);
    return;
  }
  packed_down_rows<R>(e.experts[expert].down, first, a.act, rows, e.out);
}
#undef SPK_SHARED_TILES

}  // namespace spk::gpu
