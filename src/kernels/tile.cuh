// Products of up to eight rows with FP8 matrices on the matrix unit: sixteen weight rows a block,
// the columns in eight parts, one for each warp.
//
// E4M3 codes become halves exactly. A number of x becomes two halves, hi + lo * 2^-11, after a
// power of two that brings the largest of its row's 64 columns to [2^14, 2^15): 22 bits of it are
// kept, less only for numbers 2^14 times smaller than that largest one. The pair takes two of the
// eight columns of an instruction, so four rows share each, for the price of one.
//
// Row-invariant: the number of row i is, per warp, the sum over its steps of 64 columns in
// ascending order of (hi + lo * 2^-11) * scale, hi and lo each one chain of four instructions; then
// warps in order. An instruction's column does not depend on the other columns; neither
// instantiation nor grid changes an operand.
#pragma once

#include "kernels/matvec.cuh"

namespace spk::gpu {

// ---- the matrix unit ----
// c += a b: a is 16 x 16 halves, b 16 x 8, c floats, spread over the lanes as PTX says of
// mma.m16n8k16.
SPK_DEVICE void multiply_tiles(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if defined(__CUDA_ARCH__)
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  emulated_multiply_tiles(c, a, b0, b1);
#endif
}
// Two floats as halves, rounded to even; `low` in the low 16 bits.
SPK_DEVICE unsigned floats_to_halves(float low, float high) {
#if defined(__CUDA_ARCH__)
  unsigned halves;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(high), "f"(low));
  return halves;
#else
  return emulated_half(low) | emulated_half(high) << 16;
#endif
}

// ---- x as halves ----
constexpr float kLowPart = 0x1p-11f;
// The power of two that brings numbers up to `largest` (a float's bits) below 2^15, and its
// inverse. What is no number stays none.
SPK_DEVICE float half_factor(unsigned largest, float& inverse) {
  const unsigned exponent = largest >> 23;
  const unsigned f = exponent == 255u ? 127u : exponent < 14u ? 254u : 268u - exponent;
  inverse = __uint_as_float(f == 254u ? 0x00400000u : (254u - f) << 23);
  return __uint_as_float(f << 23);
}

// Steps of 64 columns that a warp keeps at once, and the words of one step: hi and lo of each row,
// as the lanes want them: [plane of 8 columns][part][lane's quarter][4 words].
constexpr int tile_steps(int rows) { return rows == 1 ? 20 : rows == 2 ? 10 : rows == 4 ? 5 : 2; }
template <int R>
struct TileStage {
  static constexpr int kParts = 2 * R, kPlane = kParts * 16, kStep = 2 * kPlane;  // words
  unsigned* words;  // [tile_steps(R), kStep] of this warp
  float* inverses;  // [tile_steps(R), R]
};

// Steps first .. first + count of x to the warp's stage. Two neighbouring columns a lane, read one
// by one, since rows may lie anywhere; a row's steps are asked for while those of the row before
// are converted.
// Not unrolled over the rows: code that runs once waits for its instructions.
template <int R>
SPK_DEVICE void stage_halves(const View& x, int n, int first, int count,
                             const TileStage<R>& stage) {
  using S = TileStage<R>;
  constexpr int kAtOnce = R <= 4 ? 5 : 2;
  const int lane = threadIdx.x % kWarp;
  // Columns 2 lane and 2 lane + 1: quarter lane / 8, plane lane / 4 % 2, word lane % 4.
  unsigned* const to = stage.words + lane / 4 % 2 * S::kPlane + lane / 8 * 4 + lane % 4;
  const auto load = [&](int row, int s0, float2(&v)[kAtOnce]) {
    const float* from = row_of(x, min(row, n - 1)) + (first + s0) * kTileStep + 2 * lane;
#pragma unroll
    for (int s = 0; s < kAtOnce; ++s)
      v[s] =
          s0 + s < count ? float2{from[s * kTileStep], from[s * kTileStep + 1]} : float2{0.f, 0.f};
  };
  __syncwarp();  // everyone is done with what is there
#pragma unroll 1
  for (int s0 = 0; s0 < count; s0 += kAtOnce) {
    float2 v[kAtOnce], next[kAtOnce];
    load(0, s0, v);
#pragma unroll 1
    for (int i = 0; i < n; ++i) {
      load(i + 1, s0, next);  // no row: the last one again
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s) {
        if (s0 + s >= count) break;
        float inverse;
        const float factor =
            half_factor(warp_largest(max_of(__float_as_uint(v[s].x) & 0x7fffffffu,
                                            __float_as_uint(v[s].y) & 0x7fffffffu)),
                        inverse);
        const float low = v[s].x * factor, high = v[s].y * factor;
        const unsigned hi = floats_to_halves(low, high);
        float hi_low, hi_high;
        halves_to_floats(hi, hi_low, hi_high);
        unsigned* at = to + (s0 + s) * S::kStep + 2 * i * 16;
        at[0] = hi;
        at[16] = floats_to_halves((low - hi_low) * 2048.f, (high - hi_high) * 2048.f);
        if (lane == 0) stage.inverses[(s0 + s) * R + i] = inverse;
      }
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s) v[s] = next[s];
    }
  }
  __syncwarp();
}

// ---- weights ----
// The two weight rows of a lane, eight apart in the tile: its quarter of the codes from the warp's
// first step on, and the scales of the rows.
struct TileRows {
  const unsigned char *upper, *lower;
  const float *upper_scales, *lower_scales;
};
template <int F>
SPK_DEVICE TileRows tile_rows(const Matrix& m, i64 upper, i64 lower, int first) {
  const unsigned char* codes = m.codes + first * kTileStep + threadIdx.x % 4 * 16;
  const float* scales = reinterpret_cast<const float*>(m.scales);
  const int blocks = F == kFp8 ? (m.cols + 127) / 128 : 1, per_scale = F == kFp8 ? 128 : 1;
  return {codes + upper * m.row_bytes, codes + lower * m.row_bytes,
          scales + upper / per_scale * blocks, scales + lower / per_scale * blocks};
}
// The lane's codes of some steps, sixteen columns of each of its rows, and their scales.
constexpr int kTileAhead = 5;
template <int F, int A>
struct TileFlight {
  uint4 codes[A][2];
  float scale[A][2];

  // Step `at` of the warp's, which begin at step `first` of the row, to place f.
  SPK_DEVICE void load(int f, const TileRows& w, int first, int at) {
    codes[f][0] = *reinterpret_cast<const uint4*>(w.upper + at * kTileStep);
    codes[f][1] = *reinterpret_cast<const uint4*>(w.lower + at * kTileStep);
    const int block = F == kFp8 ? (first + at) * kTileStep / 128 : 0;
    scale[f][0] = w.upper_scales[block];
    scale[f][1] = w.lower_scales[block];
  }
  SPK_DEVICE void start(const TileRows& w, int first, int count) {
#pragma unroll
    for (int f = 0; f < A; ++f)
      if (f < count) load(f, w, first, f);
  }
};

// Eight codes of two rows each become the operand; `word` of the lane's sixteen columns.
SPK_DEVICE void tile_operand(const uint4 (&codes)[2], int word, unsigned (&a)[4]) {
  e4m3_word_to_halves(word_of(codes[0], word), a[0], a[2]);
  e4m3_word_to_halves(word_of(codes[1], word), a[1], a[3]);
}

// One step: sum[h][k] of the lane's two weight rows h and row lane % 4 + 4 k of x.
template <int F, int R>
SPK_DEVICE void add_step(const uint4 (&codes)[2], const float (&scale)[2], int held,
                         const TileStage<R>& stage, float (&sum)[2][2]) {
  using S = TileStage<R>;
  constexpr int kTiles = R == 8 ? 2 : 1;
  const int lane = threadIdx.x % kWarp;
  float c[kTiles][4] = {};
#pragma unroll
  for (int plane = 0; plane < 2; ++plane) {
    uint4 b[kTiles];
#pragma unroll
    for (int k = 0; k < kTiles; ++k) {
      b[k] = uint4{0, 0, 0, 0};
      if (R >= 4 || lane < 8 * R)
        b[k] = reinterpret_cast<const uint4*>(stage.words + held * S::kStep +
                                              plane * S::kPlane)[k * kWarp + lane];
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      unsigned a[4];
      tile_operand(codes, 2 * plane + half, a);
#pragma unroll
      for (int k = 0; k < kTiles; ++k)
        multiply_tiles(c[k], a, half == 0 ? b[k].x : b[k].z, half == 0 ? b[k].y : b[k].w);
    }
  }
#pragma unroll
  for (int k = 0; k < kTiles; ++k) {
    const int row = lane % 4 + 4 * k;
    const float inverse = row < R ? stage.inverses[held * R + row] * decode_factor<F>() : 0.f;
    sum[0][k] = fmaf(fmaf(c[k][1], kLowPart, c[k][0]), scale[0] * inverse, sum[0][k]);
    sum[1][k] = fmaf(fmaf(c[k][3], kLowPart, c[k][2]), scale[1] * inverse, sum[1][k]);
  }
}

// Shared memory of a block, and what it holds.
template <int R>
struct TileShared {
  static constexpr int kStageWords = kWarps * tile_steps(R) * TileStage<R>::kStep;
  static constexpr int kInverses = kWarps * tile_steps(R) * R;
  static constexpr int kParts = kWarps * kTileGroup * R;  // of one of two buffers
  unsigned* words;
  float* inverses;
  float* parts;
};

// The steps of this warp: a contiguous part of the columns.
struct TileSlice {
  int first, count;
};
SPK_DEVICE TileSlice tile_slice(int cols) {
  const int steps = cols / kTileStep, share = (steps + kWarps - 1) / kWarps;
  const int first = min(static_cast<int>(threadIdx.x) / kWarp * share, steps);
  return {first, min(share, steps - first)};
}
// Steps of a flight: as equal as they can be, and not more than the stage holds.
template <int R, int A>
SPK_DEVICE int flight_steps(int count) {
  constexpr int kMost = A < tile_steps(R) ? A : tile_steps(R);
  const int flights = (count + kMost - 1) / kMost;
  return flights == 0 ? 0 : (count + flights - 1) / flights;
}

// The block's sixteen weight rows times x: parts[warp][row][i], there after the barrier at the end.
// `flight` holds the first steps already, and at the end, with `more`, those of `next`: a place is
// filled again as soon as it is used, so that memory never waits. `staged`: so does the stage with
// all of the warp's columns.
template <int F, int R, int A>
SPK_DEVICE void tile_products(const TileRows& w, const TileRows& next, bool more,
                              const TileSlice& slice, const View& x, int n, bool staged,
                              TileFlight<F, A>& flight, const TileShared<R>& shared, float* parts) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const TileStage<R> stage = {shared.words + warp * tile_steps(R) * TileStage<R>::kStep,
                              shared.inverses + warp * tile_steps(R) * R};
  const int ahead = flight_steps<R, A>(slice.count);
  float sum[2][2] = {};
  int held = 0, kept = staged ? slice.count : 0;  // steps in the stage: [held, kept)
  for (int at = 0; at < slice.count; at += ahead) {
    const int flying = min(ahead, slice.count - at);
    if (at + flying > kept) {
      held = at;
      kept = min(at + tile_steps(R), slice.count);
      stage_halves<R>(x, n, slice.first + held, kept - held, stage);
    }
#pragma unroll
    for (int f = 0; f < A; ++f) {
      if (f >= flying) break;
      add_step<F, R>(flight.codes[f], flight.scale[f], at + f - held, stage, sum);
      const int after = at + ahead + f;
      if (after < slice.count) {
        flight.load(f, w, slice.first, after);
      } else if (more) {
        flight.load(f, next, slice.first, f);
      }
    }
  }
#pragma unroll
  for (int k = 0; k < (R == 8 ? 2 : 1); ++k) {
    const int i = lane % 4 + 4 * k;
    if (i >= R) continue;
    float* to = parts + (warp * kTileGroup + lane / 4) * R + i;
    to[0] = sum[0][k];
    to[8 * R] = sum[1][k];
  }
  __syncthreads();
}
// Weight row r of the block and row i of x: warps in order.
template <int R>
SPK_DEVICE float sum_of_parts(const float* parts, int r, int i) {
  float sum = parts[r * R + i];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) sum += parts[(w * kTileGroup + r) * R + i];
  return sum;
}

// The block's rows of a group, and where their numbers go; rows past the end of the product: the
// last one again.
struct TileTarget {
  View y;
  int first, rows;  // of the product: the tile's first one, and how many there are from it on
};
template <int F>
SPK_DEVICE TileTarget aim_tile(const ProductsArgs& a, int group, int first_step, TileRows& w) {
  int at = 0;
#pragma unroll
  for (int k = 1; k < kMaxProducts; ++k) at += k < a.count && group >= a.p[k].first_group ? 1 : 0;
  const Product& p = a.p[at];
  const int first = (group - p.first_group) * kTileGroup;
  const int row = first + static_cast<int>(threadIdx.x) % kWarp / 4;
  const i64 base = p.first_row + blockIdx.y * a.w_batch;
  w = tile_rows<F>(p.w, base + min(row, p.rows - 1), base + min(row + 8, p.rows - 1), first_step);
  return {p.y, first, p.rows - first};
}

// A few rows of a BF16 matrix, as matvec does them; `group` of its rows.
template <int R>
SPK_DEVICE void side_product(const Product& p, int group, const View& in, int n, int row0,
                             float4* stage) {
  constexpr int W = weight_rows(R);
  const int first = (group * kWarps + static_cast<int>(threadIdx.x) / kWarp) * W;
  WeightRow w[W];
#pragma unroll
  for (int r = 0; r < W; ++r) w[r] = {p.w, p.first_row + min(first + r, p.rows - 1)};
  Flight<kBf16, W> flight;
  flight.load(w, 0, min(p.w.cols, staged_columns(R)));
  wait_for_previous();
  let_next_start();
  const float* x[R];
#pragma unroll
  for (int i = 0; i < R; ++i) x[i] = row_of(in, min(i, n - 1));
  float sum[W][R];
  dots<kBf16, R, W>(w, x, n, stage, false, flight, sum);
  if (threadIdx.x % kWarp != 0) return;
#pragma unroll
  for (int i = 0; i < R; ++i) {
    if (i >= n) break;
    float* y = row_at(p.y, row0 + i) + first;
#pragma unroll
    for (int r = 0; r < W; ++r)
      if (first + r < p.rows) y[r] = sum[r][i];
  }
}

// Grid: (blocks that work off the groups in turns, batch, n / kMaxRowsInvariant). The last
// side_blocks of the first take `side`, a BF16 product of the same x.
template <int F, int R>
__global__ void __launch_bounds__(kThreads, tile_blocks(R))
    tiles(const __grid_constant__ TilesArgs t) {
  const ProductsArgs& a = t.p;
  using S = TileShared<R>;
  SPK_SHARED(uint4, words, S::kStageWords / 4);
  SPK_SHARED(float, inverses, S::kInverses);
  SPK_SHARED(float, parts, 2 * S::kParts);
  const S shared = {reinterpret_cast<unsigned*>(words), inverses, parts};
  const int row0 = blockIdx.z * kMaxRowsInvariant, n = min(a.n - row0, R);
  const View x = {row_at(a.x, row0) + blockIdx.y * a.x_batch, a.x.stride};
  const int blocks = static_cast<int>(gridDim.x) - t.side_blocks;
  if (static_cast<int>(blockIdx.x) >= blocks) {
    side_product<R>(t.side, static_cast<int>(blockIdx.x) - blocks, x, n, row0,
                    reinterpret_cast<float4*>(words));
    return;
  }
  TileRows w;
  TileFlight<F, kTileAhead> flight;
  int group = blockIdx.x;
  const TileSlice slice = tile_slice(a.p[0].w.cols);
  TileTarget target = aim_tile<F>(a, group, slice.first, w);
  // Weights depend on nothing: the first are on their way while the kernel before still runs.
  flight.start(w, slice.first, flight_steps<R, kTileAhead>(slice.count));
  wait_for_previous();
  bool staged = false;
  for (int turn = 0;; turn = 1 - turn) {
    group += blocks;
    const bool more = group < a.groups;
    // Not before the last group: blocks of the next kernel take registers that this one could use.
    if (!more) let_next_start();
    const TileTarget now = target;
    TileRows next = w;
    if (more) target = aim_tile<F>(a, group, slice.first, next);
    float* mine = parts + turn * S::kParts;
    tile_products<F, R, kTileAhead>(w, next, more, slice, x, n, staged, flight, shared, mine);
    staged = slice.count <= tile_steps(R);
    for (int e = threadIdx.x; e < kTileGroup * R; e += kThreads) {
      const int i = e / kTileGroup, r = e % kTileGroup;
      if (i < n && r < now.rows)
        (row_at(now.y, row0 + i) + blockIdx.y * a.y_batch)[now.first + r] =
            gated(a, row0 + i, sum_of_parts<R>(mine, r, i));
    }
    if (!more) break;
    w = next;
  }
}

}  // namespace spk::gpu
