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

// The words of one step of 64 columns: hi and lo of each row, as the lanes want them: [plane of 8
// columns][part][lane's quarter][4 words]. Of four rows and more a row's two parts change places in
// the second plane, so that lanes that write both planes at a time meet in no bank.
template <int R>
struct TileStage {
  static constexpr int kParts = 2 * R, kPlane = kParts * 16, kStep = 2 * kPlane;  // words
  static constexpr int kTurned = R >= 4 ? 1 : 0;
  unsigned* words;  // [steps that a warp keeps, kStep] of this warp
  float* inverses;  // [steps, R]
};

// The larger one; what is no number wins.
SPK_DEVICE float larger(float a, float b) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
#else
  return a > b || a != a ? a : b;
#endif
}

// Four numbers, or one, to shared memory without a register on the way: there, for the lane that
// asked, behind copies_are_there().
template <int Numbers>
SPK_DEVICE void copy_numbers(unsigned* to, const float* from) {
#if defined(__CUDA_ARCH__)
  asm volatile(
      "{ .reg .u64 s, g; .reg .u32 a; cvta.to.shared.u64 s, %0; cvt.u32.u64 a, s; "
      "cvta.to.global.u64 g, %1; cp.async.ca.shared.global [a], [g], %2; }" ::"l"(to),
      "l"(from), "n"(4 * Numbers)
      : "memory");
#else
  for (int k = 0; k < Numbers; ++k) to[k] = __float_as_uint(from[k]);
#endif
}
SPK_DEVICE void copies_are_there() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Eight numbers of a step, of which eight lanes have all, as halves: hi, and the rest lo. Returns
// the inverse of their factor.
SPK_DEVICE float split_numbers(const uint4& first, const uint4& second, uint4& hi, uint4& lo) {
  float v[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) v[k] = __uint_as_float(word_of(k < 4 ? first : second, k % 4));
  float top = 0.f;
#pragma unroll
  for (int k = 0; k < 4; ++k) top = larger(top, larger(fabsf(v[k]), fabsf(v[k + 4])));
#pragma unroll
  for (int d = 1; d < 8; d *= 2) top = larger(top, __shfl_xor_sync(kAllLanes, top, d));
  float inverse;
  const float factor = half_factor(__float_as_uint(top), inverse);
  unsigned halves[4], rest[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const float low = v[2 * k] * factor, high = v[2 * k + 1] * factor;
    halves[k] = floats_to_halves(low, high);
    float hi_low, hi_high;
    halves_to_floats(halves[k], hi_low, hi_high);
    rest[k] = floats_to_halves((low - hi_low) * 2048.f, (high - hi_high) * 2048.f);
  }
  hi = uint4{halves[0], halves[1], halves[2], halves[3]};
  lo = uint4{rest[0], rest[1], rest[2], rest[3]};
  return inverse;
}

// Steps first .. first + count of x to the warp's stage: eight lanes a row's step, eight columns a
// lane, so four of them in a round. First all numbers as they are, each lane's to the very words
// that its halves will take, so that memory is waited for once, whatever the number of rows.
template <int R>
SPK_DEVICE void stage_halves(const View& x, int n, int first, int count,
                             const TileStage<R>& stage) {
  using S = TileStage<R>;
  constexpr int kAtOnce = kWarp / 8, kRows = R < kAtOnce ? R : kAtOnce, kSteps = kAtOnce / kRows;
  constexpr int kTogether = R <= 2 ? 2 : 1;  // rounds
  const int lane = threadIdx.x % kWarp, eighth = lane % 8, plane = eighth % 2;
  const int step = lane / 8 / kRows, turned = S::kTurned * plane * 16;
  // Of a round: the lane's words of hi; lo are as far behind them as that.
  unsigned* const words =
      stage.words + step * S::kStep + plane * S::kPlane + eighth / 2 * 4 + turned;
  const int lo = 16 - 2 * turned;
  const bool aligned = is_aligned(x.data) && x.stride % 4 == 0;  // rows may lie anywhere
  __syncwarp();  // everyone is done with what is there
#pragma unroll 1
  for (int row = lane / 8 % kRows; row < n; row += kRows) {
    const float* from = row_of(x, row) + (first + step) * kTileStep + eighth * 8;
    unsigned* to = words + 2 * row * 16;
#pragma unroll 1
    for (int s = step; s < count;
         s += kSteps, from += kSteps * kTileStep, to += kSteps * S::kStep) {
      if (aligned) {
        copy_numbers<4>(to, from);
        copy_numbers<4>(to + lo, from + 4);
        continue;
      }
#pragma unroll 1
      for (int k = 0; k < 4; ++k) {
        copy_numbers<1>(to + k, from + k);
        copy_numbers<1>(to + lo + k, from + 4 + k);
      }
    }
  }
  copies_are_there();
  __syncwarp();
#pragma unroll 1
  for (int row0 = 0; row0 < n; row0 += kRows) {
    const int row = row0 + lane / 8 % kRows;
    unsigned* at = words + 2 * row * 16;
    float* inverses = stage.inverses + step * R + row;
    // The lane's step goes along; all lanes take part as long as one of them has one.
#pragma unroll 1
    for (int s = step; s - step < count; s += kTogether * kSteps) {
      uint4 v[kTogether][2];
#pragma unroll
      for (int t = 0; t < kTogether; ++t) {
        const bool there = row < n && s + t * kSteps < count;
        const uint4* const from = reinterpret_cast<const uint4*>(at + t * kSteps * S::kStep);
        v[t][0] = there ? from[0] : uint4{0, 0, 0, 0};
        v[t][1] = there ? from[lo / 4] : uint4{0, 0, 0, 0};
      }
#pragma unroll
      for (int t = 0; t < kTogether; ++t) {
        uint4 halves, rest;
        const float inverse = split_numbers(v[t][0], v[t][1], halves, rest);
        if (row < n && s + t * kSteps < count) {
          uint4* const to = reinterpret_cast<uint4*>(at + t * kSteps * S::kStep);
          to[0] = halves;
          to[lo / 4] = rest;
          if (eighth == 0) inverses[t * kSteps * R] = inverse;
        }
      }
      at += kTogether * kSteps * S::kStep;
      inverses += kTogether * kSteps * R;
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
  const int lane = threadIdx.x % kWarp, turned = lane ^ 4 * S::kTurned;
  float c[kTiles][4] = {};
#pragma unroll
  for (int plane = 0; plane < 2; ++plane) {
    uint4 b[kTiles];
#pragma unroll
    for (int k = 0; k < kTiles; ++k) {
      b[k] = uint4{0, 0, 0, 0};
      if (R >= 4 || lane < 8 * R)
        b[k] = reinterpret_cast<const uint4*>(
            stage.words + held * S::kStep + plane * S::kPlane)[k * kWarp + (plane ? turned : lane)];
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

// Shared memory of a block whose warps keep K steps, and what it holds.
template <int R, int K = tile_steps(R)>
struct TileShared {
  static constexpr int kStageWords = kWarps * K * TileStage<R>::kStep;
  static constexpr int kInverses = kWarps * K * R;
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
template <int R, int A, int K = tile_steps(R)>
SPK_DEVICE int flight_steps(int count) {
  constexpr int kMost = A < K ? A : K;
  const int flights = (count + kMost - 1) / kMost;
  return flights == 0 ? 0 : (count + flights - 1) / flights;
}

// The block's sixteen weight rows times x: parts[warp][row][i], there after the barrier at the end.
// `flight` holds the first steps already, and at the end, with `more`, those of `next`: a place is
// filled again as soon as it is used, so that memory never waits. `staged`: so does the stage with
// all of the warp's columns.
template <int F, int R, int A, int K>
SPK_DEVICE void tile_products(const TileRows& w, const TileRows& next, bool more,
                              const TileSlice& slice, const View& x, int n, bool staged,
                              TileFlight<F, A>& flight, const TileShared<R, K>& shared,
                              float* parts) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const TileStage<R> stage = {shared.words + warp * K * TileStage<R>::kStep,
                              shared.inverses + warp * K * R};
  const int ahead = flight_steps<R, A, K>(slice.count);
  float sum[2][2] = {};
  int held = 0, kept = staged ? slice.count : 0;  // steps in the stage: [held, kept)
  for (int at = 0; at < slice.count; at += ahead) {
    const int flying = min(ahead, slice.count - at);
    if (at + flying > kept) {
      held = at;
      kept = min(at + K, slice.count);
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

// ---- a BF16 product of the same x, beside the tiles ----
// A number is a warp's work: the order of its sums is matvec's. `task`: weight row and row of x.
constexpr int kSideAhead = 5;  // chunks asked for before the first is used
SPK_DEVICE void side_number(const Product& p, int task, const View& in, int n, int row0) {
  using S = Steps<kBf16>;
  const int lane = threadIdx.x % kWarp, row = task / n, i = task - row * n, cols = p.w.cols;
  const uint4* const codes =
      reinterpret_cast<const uint4*>(p.w.codes + (p.first_row + row) * p.w.row_bytes);
  const float* const x = row_of(in, i);
  float sum[1][1] = {};
#pragma unroll 1
  for (int c0 = lane * S::kNumbers; c0 < cols; c0 += kSideAhead * S::kColumns) {
    uint4 w[kSideAhead];
    float4 v[kSideAhead][S::kQuads];
#pragma unroll
    for (int f = 0; f < kSideAhead; ++f) {
      const int c = c0 + f * S::kColumns;
      w[f] = c < cols ? codes[c / S::kNumbers] : uint4{0, 0, 0, 0};
#pragma unroll
      for (int q = 0; q < S::kQuads; ++q) v[f][q] = load_x(x + c + 4 * q, cols - c - 4 * q);
    }
#pragma unroll
    for (int f = 0; f < kSideAhead; ++f) {
      if (c0 + f * S::kColumns >= cols) break;
#pragma unroll
      for (int q = 0; q < S::kQuads; ++q) {
        sum[0][0] = fmaf(number<kBf16>(w[f], 4 * q, 1.f), v[f][q].x, sum[0][0]);
        sum[0][0] = fmaf(number<kBf16>(w[f], 4 * q + 1, 1.f), v[f][q].y, sum[0][0]);
        sum[0][0] = fmaf(number<kBf16>(w[f], 4 * q + 2, 1.f), v[f][q].z, sum[0][0]);
        sum[0][0] = fmaf(number<kBf16>(w[f], 4 * q + 3, 1.f), v[f][q].w, sum[0][0]);
      }
    }
  }
  const float y = warp_sum(sum[0][0]);
  if (lane == 0) row_at(p.y, row0 + i)[row] = y;
}

// Has the weights of a warp's first number brought near.
SPK_DEVICE void ask_for_side(const Product& p, int task, int n) {
  const int row = min(task / n, p.rows - 1);
  const unsigned char* const codes = p.w.codes + (p.first_row + row) * p.w.row_bytes;
#pragma unroll 1
  for (i64 at = threadIdx.x % kWarp * kLineBytes; at < p.w.row_bytes; at += kWarp * kLineBytes)
    ask_for_line(codes + at);
}

// Grid: (blocks that work off the groups in turns, batch, n / R). Those from first_side on, which
// have a turn less or none, make `side` at their end.
template <int F, int R>
__global__ void __launch_bounds__(kThreads, tile_blocks(R))
    tiles(const __grid_constant__ TilesArgs t) {
  const ProductsArgs& a = t.p;
  constexpr int K = kept_steps(R);
  using S = TileShared<R, K>;
  SPK_DYNAMIC_SHARED(memory);
  unsigned* const words = reinterpret_cast<unsigned*>(memory);
  float* const inverses = reinterpret_cast<float*>(words + S::kStageWords);
  float* const parts = inverses + S::kInverses;
  static_assert(4 * (S::kStageWords + S::kInverses + 2 * S::kParts) == tiles_shared(R), "");
  const S shared = {words, inverses, parts};
  const int row0 = blockIdx.z * R, n = min(a.n - row0, R);
  const View x = {row_at(a.x, row0) + blockIdx.y * a.x_batch, a.x.stride};
  const int block = static_cast<int>(blockIdx.x) - t.first_side;  // of those with a side product
  const int task = block * kWarps + static_cast<int>(threadIdx.x) / kWarp;
  int group = blockIdx.x;
  if (group < t.blocks) {
    TileRows w;
    TileFlight<F, kTileAhead> flight;
    const TileSlice slice = tile_slice(a.p[0].w.cols);
    TileTarget target = aim_tile<F>(a, group, slice.first, w);
    // Weights depend on nothing: the first are on their way while the kernel before still runs.
    flight.start(w, slice.first, flight_steps<R, kTileAhead, K>(slice.count));
    if (block >= 0 && t.side.rows > 0) ask_for_side(t.side, task, n);
    wait_for_previous();
    bool staged = false;
    for (int turn = 0;; turn = 1 - turn) {
      group += t.blocks;
      const bool more = group < a.groups;
      // Not before the last group: blocks of the next kernel take registers that this one could
      // use.
      if (!more) let_next_start();
      const TileTarget now = target;
      TileRows next = w;
      if (more) target = aim_tile<F>(a, group, slice.first, next);
      float* mine = parts + turn * S::kParts;
      tile_products<F, R, kTileAhead>(w, next, more, slice, x, n, staged, flight, shared, mine);
      staged = slice.count <= K;
      for (int e = threadIdx.x; e < kTileGroup * R; e += kThreads) {
        const int i = e / kTileGroup, r = e % kTileGroup;
        if (i < n && r < now.rows)
          (row_at(now.y, row0 + i) + blockIdx.y * a.y_batch)[now.first + r] =
              gated(a, row0 + i, sum_of_parts<R>(mine, r, i));
      }
      if (!more) break;
      w = next;
    }
  } else {
    let_next_start();
    ask_for_side(t.side, task, n);
    wait_for_previous();
  }
  if (block < 0) return;
  const int warps = (static_cast<int>(gridDim.x) - t.first_side) * kWarps;
#pragma unroll 1
  for (int at = task; at < t.side.rows * n; at += warps) side_number(t.side, at, x, n, row0);
}

}  // namespace spk::gpu
