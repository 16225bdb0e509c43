// Products of a few rows with stored matrices: a warp takes two or four weight rows and streams
// them once, sixteen bytes a lane and load and eight loads in flight, for up to eight rows
// of x, which lie in shared memory in the order in which the lanes want them.
//
// Row-invariant: the number of row i is, per lane, the sum over its chunks of 16 bytes in ascending
// order, each the sum of its products in ascending order times its scale; then the butterfly over
// lanes. Neither the rows that share the pass, nor the instantiation, nor the grid changes it.
#pragma once

#include "kernels/weights.cuh"

namespace spk::gpu {

struct WeightRow {
  Matrix m;
  i64 row;
};

// Whether rows of x allow 16-byte loads.
SPK_DEVICE bool is_aligned(const float* x) {
  return reinterpret_cast<unsigned long long>(x) % 16 == 0;
}

// Four numbers of x; numbers from `left` on count as zero and are not read.
SPK_DEVICE float4 load_x(const float* x, int left) {
  if (left >= 4 && is_aligned(x)) return *reinterpret_cast<const float4*>(x);
  float4 v;
  v.x = left > 0 ? x[0] : 0.f;
  v.y = left > 1 ? x[1] : 0.f;
  v.z = left > 2 ? x[2] : 0.f;
  v.w = left > 3 ? x[3] : 0.f;
  return v;
}

template <int F>
struct Steps {
  static constexpr int kNumbers = Codec<F>::kNumbers;  // of a lane's 16 bytes
  static constexpr int kQuads = kNumbers / 4;          // float4s of x that belong to them
  static constexpr int kColumns = kWarp * kNumbers;    // of a warp's load
};

// x[i][first .. first + columns) to shared memory, for a warp's loads: [row][step][quad][lane], so
// that lanes read side by side what they need at the same time.
template <int F, int R>
SPK_DEVICE void stage_x(const float* const (&x)[R], int n, int first, int cols, float4* stage) {
  using S = Steps<F>;
  constexpr int kRow = staged_columns(R) / 4;
  const int quads =
      (min(cols - first, staged_columns(R)) + S::kColumns - 1) / S::kColumns * (S::kColumns / 4);
#pragma unroll
  for (int i = 0; i < R; ++i) {
    if (i >= n) break;
    for (int g = threadIdx.x; g < quads; g += kThreads) {
      const int step = g / (kWarp * S::kQuads), within = g % (kWarp * S::kQuads);
      const int at = step * kWarp * S::kQuads + within % S::kQuads * kWarp + within / S::kQuads;
      stage[i * kRow + at] = load_x(x[i] + first + 4 * g, cols - first - 4 * g);
    }
  }
}

// Sixteen bytes of codes of each of W rows, times x: added to the sums. `stage`: the lane's first
// quad of row 0.
template <int F, int R, int W>
SPK_DEVICE void add_chunk(const uint4 (&codes)[W], const float (&scale)[W], const float4* stage,
                          int n, float (&sum)[W][R]) {
  constexpr int kPerWord = Codec<F>::kNumbers / 4, kRow = staged_columns(R) / 4;
  float part[W][R];
#pragma unroll
  for (int r = 0; r < W; ++r)
#pragma unroll
    for (int i = 0; i < R; ++i) part[r][i] = kIsScaled<F> ? 0.f : sum[r][i];
  // As many words at a time as make at least four numbers: one of FP8 or MXFP4, two of BF16, four
  // of
  // F32.
  constexpr int kWords = kPerWord >= 4 ? 1 : 4 / kPerWord, kAtOnce = kWords * kPerWord;
#pragma unroll
  for (int word = 0; word < 4; word += kWords) {
    float value[W][kAtOnce];
#pragma unroll
    for (int r = 0; r < W; ++r) {
#pragma unroll
      for (int k = 0; k < kWords; ++k) {
        float numbers[kPerWord];
        decode<F>(word_of(codes[r], word + k), numbers);
#pragma unroll
        for (int j = 0; j < kPerWord; ++j) value[r][k * kPerWord + j] = numbers[j];
      }
    }
#pragma unroll
    for (int q = 0; q < kAtOnce / 4; ++q) {
#pragma unroll
      for (int i = 0; i < R; ++i) {
        if (i >= n) break;
        const float4 v = stage[i * kRow + (word * kPerWord / 4 + q) * kWarp];
#pragma unroll
        for (int r = 0; r < W; ++r) {
          part[r][i] = fmaf(value[r][4 * q], v.x, part[r][i]);
          part[r][i] = fmaf(value[r][4 * q + 1], v.y, part[r][i]);
          part[r][i] = fmaf(value[r][4 * q + 2], v.z, part[r][i]);
          part[r][i] = fmaf(value[r][4 * q + 3], v.w, part[r][i]);
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < W; ++r)
#pragma unroll
    for (int i = 0; i < R; ++i)
      if (i < n) sum[r][i] = kIsScaled<F> ? fmaf(part[r][i], scale[r], sum[r][i]) : part[r][i];
}

// Codes and scales of a lane's chunks that are asked for before the first is used.
template <int F, int W>
struct Flight {
  static constexpr int kChunks = 8 / W;
  uint4 codes[kChunks][W];
  float scale[kChunks][W];

  // Chunks from column c0 (the warp's) on; those past `end` are not read.
  SPK_DEVICE void load(const WeightRow (&w)[W], int c0, int end) {
    using S = Steps<F>;
    const int lane = threadIdx.x % kWarp;
#pragma unroll
    for (int f = 0; f < kChunks; ++f) {
      const int c = c0 + f * S::kColumns + lane * S::kNumbers;
      if (c >= end) break;
#pragma unroll
      for (int r = 0; r < W; ++r) {
        const unsigned char* row = w[r].m.codes + w[r].row * w[r].m.row_bytes;
        codes[f][r] = reinterpret_cast<const uint4*>(row)[c / S::kNumbers];
        scale[f][r] = scale_of<F>(w[r].m, w[r].row, c) * decode_factor<F>();
      }
    }
  }
};

// sum[w][i] = row w of the weights times x[i], i < n; all lanes get it. All threads of the block
// come here together. `flight` holds the first chunks already; `staged`: so does `stage` with all
// columns of x.
template <int F, int R, int W>
SPK_DEVICE void dots(const WeightRow (&w)[W], const float* const (&x)[R], int n, float4* stage,
                     bool staged, Flight<F, W>& flight, float (&sum)[W][R]) {
  using S = Steps<F>;
  constexpr int kTile = staged_columns(R);
  const int lane = threadIdx.x % kWarp, cols = w[0].m.cols;
#pragma unroll
  for (int r = 0; r < W; ++r)
#pragma unroll
    for (int i = 0; i < R; ++i) sum[r][i] = 0.f;
  for (int tile = 0; tile < cols; tile += kTile) {
    const int end = min(tile + kTile, cols);
    if (!staged) {
      __syncthreads();  // everyone is done with what is there
      stage_x<F, R>(x, n, tile, cols, stage);
      __syncthreads();
    }
    for (int c0 = tile; c0 < end; c0 += Flight<F, W>::kChunks * S::kColumns) {
      if (c0 > 0) flight.load(w, c0, end);
#pragma unroll
      for (int f = 0; f < Flight<F, W>::kChunks; ++f) {
        const int c = c0 + f * S::kColumns;
        if (c + lane * S::kNumbers >= end) break;
        add_chunk<F, R, W>(flight.codes[f], flight.scale[f], stage + (c - tile) / 4 + lane, n, sum);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < W; ++r)
#pragma unroll
    for (int i = 0; i < R; ++i)
      if (i < n) sum[r][i] = warp_sum(sum[r][i]);
}

// The warp's weight rows of a group of one product; rows past its end: the last one again.
template <int W>
SPK_DEVICE int rows_of_group(const ProductsArgs& a, int group, WeightRow (&w)[W], Product& p) {
  // Constant indices only: another would copy the arguments to local memory.
  p = a.p[0];
#pragma unroll
  for (int k = 1; k < kMaxProducts; ++k)
    if (k < a.count && group >= a.p[k].first_group) p = a.p[k];
  const int first = ((group - p.first_group) * kWarps + static_cast<int>(threadIdx.x) / kWarp) * W;
#pragma unroll
  for (int r = 0; r < W; ++r)
    w[r] = {p.w, p.first_row + blockIdx.y * a.w_batch + min(first + r, p.rows - 1)};
  return first;
}

// A number of the block's batch and this row, behind the gate where there is one.
SPK_DEVICE float gated(const ProductsArgs& a, int row, float y) {
  return a.gate.data ? y * sigmoid(row_of(a.gate, row)[blockIdx.y]) : y;
}

// Grid: (blocks that work off the groups in turns, batch, n / R). R: 1, 2, 4 or 8, the rows of x of
// a block.
template <int F, int R>
__global__ void __launch_bounds__(kThreads, F == kMxfp4 ? 1 : stream_blocks(R))
    matvec(const ProductsArgs a) {
  constexpr int W = weight_rows(R);
  SPK_SHARED(float4, stage, R * staged_columns(R) / 4);
  WeightRow w[W];
  Product p;
  Flight<F, W> flight;
  int group = blockIdx.x;
  int first = rows_of_group<W>(a, group, w, p);
  // Weights depend on nothing: the first are on their way while the kernel before still runs.
  flight.load(w, 0, min(a.p[0].w.cols, staged_columns(R)));
  wait_for_previous();
  const int row0 = blockIdx.z * R, n = min(a.n - row0, R);
  const float* x[R];
#pragma unroll
  for (int i = 0; i < R; ++i) x[i] = row_of(a.x, row0 + min(i, n - 1)) + blockIdx.y * a.x_batch;
  bool staged = false;
  while (true) {
    // Not before the last group: blocks of the next kernel take registers that this one could use.
    if (group + static_cast<int>(gridDim.x) >= a.groups) let_next_start();
    float sum[W][R];
    dots<F, R, W>(w, x, n, stage, staged, flight, sum);
    staged = a.p[0].w.cols <= staged_columns(R);
    if (threadIdx.x % kWarp == 0) {
#pragma unroll
      for (int i = 0; i < R; ++i) {
        if (i >= n) break;
        float* y = row_at(p.y, row0 + i) + blockIdx.y * a.y_batch + first;
#pragma unroll
        for (int r = 0; r < W; ++r)
          if (first + r < p.rows) y[r] = gated(a, row0 + i, sum[r][i]);
      }
    }
    group += gridDim.x;
    if (group >= a.groups) break;
    first = rows_of_group<W>(a, group, w, p);
    flight.load(w, 0, min(a.p[0].w.cols, staged_columns(R)));
  }
}

}  // namespace spk::gpu
