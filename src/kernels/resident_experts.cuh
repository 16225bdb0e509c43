// Experts of one row by blocks that stay: gate and up of the chosen ones, and the last product of
// all with its sum. Weights come by each warp's own copies into the ring's memory, which is free
// then. The order of sums is that of packed.cuh and of expert_sum.
#pragma once

#include "kernels/resident_tiles.cuh"

namespace spk::gpu {

// What a warp asked for itself, and what one of them did for all.
struct WarpCopies {
  int turn = 0, shared_turn = 0;
  static SPK_DEVICE Arrival* own() {
    return resident_memory().arrivals + kResidentSlots + thread_now() / kWarp;
  }
  static SPK_DEVICE Arrival* shared() { return resident_memory().arrivals + kSharedArrival; }
  SPK_DEVICE void wait() {
    wait_for(own(), turn);
    turn ^= 1;
    __syncwarp();
  }
  SPK_DEVICE void wait_shared() {
    wait_for(shared(), shared_turn);
    shared_turn ^= 1;
  }
};

// sum[k] of weight row `lane / kRowLanes` of each of W matrices in shared memory: all eight lanes.
template <int W>
SPK_DEVICE void dots_in_memory(const unsigned char* const (&codes)[W],
                               const unsigned char* const (&scales)[W], const QuantRows& x, int row,
                               float (&sum)[W][1]) {
  const int groups = x.cols / kQuantGroup, lane = thread_now() % kWarp;
  const int at = lane / kRowLanes * groups, rows[1] = {row};
#pragma unroll
  for (int k = 0; k < W; ++k) sum[k][0] = 0.f;
#pragma unroll 2
  for (int g = lane % kRowLanes; g < groups; g += kRowLanes) {
    uint4 code[W];
    unsigned scale[W];
#pragma unroll
    for (int k = 0; k < W; ++k) {
      code[k] = reinterpret_cast<const uint4*>(codes[k])[at + g];
      scale[k] = scales[k][at + g];
    }
    add_group<1, W>(code, scale, x, rows, 1, g, sum);
  }
#pragma unroll
  for (int k = 0; k < W; ++k)
#pragma unroll
    for (int d = kRowLanes / 2; d > 0; d /= 2)
      sum[k][0] += __shfl_xor_sync(kAllLanes, sum[k][0], d);
}

// ---- gate and up ----
// Chunks of kResidentQuad units of an expert, a warp each.
struct UpChunks {
  int per_expert, count, code_bytes, scale_bytes, region, warps;
  SPK_DEVICE explicit UpChunks(const ExpertsArgs& e) {
    per_expert = e.width / kResidentQuad;
    count = e.top_k * per_expert;
    code_bytes = kResidentQuad * (e.hidden / 2);
    scale_bytes = kResidentQuad * (e.hidden / kQuantGroup);
    region = 2 * (code_bytes + scale_bytes);
    warps = min(kResidentWarps, kRingBytes / region);
  }
  SPK_DEVICE void ask(const ExpertsArgs& e, const int* slots, int chunk, unsigned char* to,
                      Arrival* arrival) const {
    const int lane = thread_now() % kWarp;
    const i64 first = chunk % per_expert * kResidentQuad;
    const ExpertWeights& w = e.experts[slots[chunk / per_expert]];
    if (lane == 0) announce(arrival, region);
    __syncwarp();
    if (lane >= 4) return;  // codes and scales of gate, then of up
    const Matrix& m = lane < 2 ? w.gate : w.up;
    const bool codes = lane % 2 == 0;
    bring(to + lane / 2 * (code_bytes + scale_bytes) + (codes ? 0 : code_bytes),
          codes ? m.codes + first * (e.hidden / 2) : m.scales + first * (e.hidden / kQuantGroup),
          codes ? code_bytes : scale_bytes, arrival);
  }
};
SPK_DEVICE void experts_up(const ExpertsArgs& e, WarpCopies& copies, float* act) {
  const ResidentMemory m = resident_memory();
  QuantRows x = m.quantised;
  x.cols = e.hidden;
  const int lane = thread_now() % kWarp, warp = thread_now() / kWarp;
  const UpChunks chunks(e);
  unsigned char* const at = m.ring + warp * chunks.region;
  const int blocks = static_cast<int>(gridDim.x);
  if (warp >= chunks.warps) return;
#pragma unroll 1
  for (int chunk = static_cast<int>(blockIdx.x) + warp * blocks; chunk < chunks.count;
       chunk += blocks * chunks.warps) {
    chunks.ask(e, m.slots, chunk, at, WarpCopies::own());
    copies.wait();
    const unsigned char* const up = at + chunks.code_bytes + chunks.scale_bytes;
    float sum[2][1];
    dots_in_memory<2>({at, up}, {at + chunks.code_bytes, up + chunks.code_bytes}, x, 0, sum);
    if (lane % kRowLanes == 0)
      post(act + chunk * kResidentQuad + lane / kRowLanes, activate(sum[0][0], sum[1][0], e.limit));
    __syncwarp();  // before the next copies
  }
}

// ---- down ----
// This block's rows of the last product, of all chosen experts and of the shared one.
struct DownRows {
  int first, end;  // of the block
  int code_bytes, scale_bytes, region;
  SPK_DEVICE explicit DownRows(const ExpertsArgs& e) {
    const int blocks = static_cast<int>(gridDim.x), quads = e.hidden / kResidentQuad;
    const int per = (quads + blocks - 1) / blocks * kResidentQuad;
    first = min(static_cast<int>(blockIdx.x) * per, e.hidden);
    end = min(first + per, e.hidden);
    code_bytes = kResidentQuad * (e.width / 2);
    scale_bytes = kResidentQuad * (e.width / kQuantGroup);
    region = code_bytes + scale_bytes;
  }
  SPK_DEVICE int rows_at(int row) const { return min(kResidentDown, end - row); }
  SPK_DEVICE int jobs(const ExpertsArgs& e, int rows) const {
    return e.top_k * (rows / kResidentQuad);
  }
  // Slots of the ring that the weights of the first rows take up.
  SPK_DEVICE int slots(const ExpertsArgs& e) const {
    const int rows = max(rows_at(first), 0);
    return (jobs(e, rows) * region + rows * e.shared_width + kSlotBytes - 1) / kSlotBytes;
  }
  // Weights of rows [row, row + rows): a warp's jobs are (expert, four rows); a lane asks for the
  // codes or the scales of one. Where those of its expert begin: from memory, so early.
  SPK_DEVICE static int job_now() {
    return thread_now() / kWarp + thread_now() % kWarp / 2 * kResidentWarps;
  }
  SPK_DEVICE const unsigned char* source(const ExpertsArgs& e, int rows) const {
    const int job = job_now();
    if (job >= jobs(e, rows)) return nullptr;
    const Matrix& w = e.experts[resident_memory().slots[job % e.top_k]].down;
    return thread_now() % 2 == 0 ? w.codes : w.scales;
  }
  SPK_DEVICE void ask(const ExpertsArgs& e, int row, int rows, const unsigned char* source) const {
    Arrival *const own = WarpCopies::own(), *const shared = WarpCopies::shared();
    const ResidentMemory m = resident_memory();
    const int lane = thread_now() % kWarp, warp = thread_now() / kWarp;
    const int all = jobs(e, rows), job = job_now();
    const int mine = warp < all ? (all - warp + kResidentWarps - 1) / kResidentWarps : 0;
    const bool last = warp == kResidentWarps - 1;
    if (lane == 0 && mine > 0) announce(own, mine * region);
    if (last && lane == 0) announce(shared, rows * e.shared_width);
    __syncwarp();
    if (job < all) {
      const i64 at = row + job / e.top_k * kResidentQuad;
      const bool codes = lane % 2 == 0;
      bring(m.ring + job * region + (codes ? 0 : code_bytes),
            source + at * (codes ? e.width / 2 : e.width / kQuantGroup),
            codes ? code_bytes : scale_bytes, own);
    }
    if (!last) return;
    if (lane == 0)
      bring(m.ring + all * region, e.shared.down.codes + row * e.shared.down.row_bytes,
            rows * e.shared_width, shared);
    // Scales of the rows' one or two blocks of 128.
    const int blocks = (e.shared_width + 127) / 128, half = kDownScales / 2;
    if (lane < kDownScales && lane % half < blocks)
      m.down_scales[lane] = reinterpret_cast<const float*>(
          e.shared.down.scales)[(lane < half ? row : row + rows - 1) / 128 * blocks + lane % half];
  }
  SPK_DEVICE void products(const ExpertsArgs& e, const QuantRows& act, int row, int rows,
                           WarpCopies& copies) const {
    const ResidentMemory m = resident_memory();
    const int lane = thread_now() % kWarp, warp = thread_now() / kWarp;
    const int all = jobs(e, rows);
    if (warp < all) copies.wait();
#pragma unroll 1
    for (int job = warp; job < all; job += kResidentWarps) {
      const unsigned char* const at = m.ring + job * region;
      float sum[1][1];
      dots_in_memory<1>({at}, {at + code_bytes}, act, job % e.top_k, sum);
      if (lane % kRowLanes == 0)
        m.outs[job % e.top_k * kResidentDown + job / e.top_k * kResidentQuad + lane / kRowLanes] =
            sum[0][0];
    }
    // The shared expert: a tile a team. Rows past the end: the last one again.
    copies.wait_shared();
    const int tile = thread_now() / kThreads * kTileGroup;
    if (tile >= rows) return;
    const unsigned char* const at = m.ring + all * region;
    const int upper = min(tile + lane / 4, rows - 1);
    const int lower = min(tile + lane / 4 + kTileGroup / 2, rows - 1);
    const auto scales = [&](int r) {
      return m.down_scales + ((row + r) / 128 == row / 128 ? 0 : kDownScales / 2);
    };
    const int steps = e.shared_width / kTileStep, share = (steps + kWarps - 1) / kWarps;
    const int from = min(warp % kWarps * share, steps);
    tile_part(at + upper * e.shared_width, at + lower * e.shared_width, scales(upper),
              scales(lower), from, min(share, steps - from), m.parts + tile * kWarps);
  }
};

}  // namespace spk::gpu
