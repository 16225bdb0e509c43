// The last product of experts whose weights come by bulk copies (copied.cuh), and the weighted sum:
// a block has the same rows of all experts.
#pragma once

#include "kernels/copied.cuh"

namespace spk::gpu {

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
    // Two blocks of a multiprocessor do not wait for memory at the same time.
    const bool shared_first = static_cast<int>(blockIdx.x) < blocks / 2;
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      if ((half == 0) == shared_first) {
        tile_products<kFp8, R, kDownAhead>(w, w, false, slice,
                                           {e.shared_act, static_cast<i64>(e.shared_width)}, e.n,
                                           false, flight, shared, shared.parts);
      } else {
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
      }
    }
    __syncthreads();
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
