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
    await_own_copies();
    make_room_for_bulk_copies();  // which take this memory next
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
#pragma unroll 1
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

// By a warp: `bytes` that begin at `from`, in vectors.
SPK_DEVICE void bring_by_lanes(unsigned char* to, const unsigned char* from, int bytes) {
#pragma unroll 1
  for (int v = thread_now() % kWarp * 16; v < bytes; v += kWarp * 16)
    bring_vector(to + v, from + v);
}

// ---- gate and up ----
// Chunks of kResidentQuad units of an expert, a warp each. All blocks take as many as fit beside a
// waiting tile of the shared expert; the blocks without such a tile share what is left.
struct UpChunks {
  const LayerArgs& l;
  int warps;          // that have memory for a chunk
  int rounds, count;  // chunks of every block, and of this one
  int first_left, step_left;
  SPK_DEVICE explicit UpChunks(int which) : l(resident_memory().layers[which]) {
    const ChunkPlan& plan = l.chunks;
    const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
    warps = block < plan.tiles ? plan.warps_beside : plan.warps;
    rounds = plan.rounds;
    const int left = plan.chunks - rounds * blocks, from = block - plan.tiles;
    step_left = blocks - plan.tiles;
    first_left = rounds * blocks + from;
    count = rounds + (from >= 0 ? max(left - from + step_left - 1, 0) / step_left : 0);
  }
  SPK_DEVICE int chunk(int k) const {
    return k < rounds ? k * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x)
                      : first_left + (k - rounds) * step_left;
  }
};
// What a warp keeps of a chunk: gate's codes and scales, then up's.
struct ChunkMemory {
  int codes, scales;  // bytes of either matrix
  unsigned char* at;
  SPK_DEVICE explicit ChunkMemory(const ExpertsArgs& e) {
    codes = kResidentQuad * (e.hidden / 2);
    scales = kResidentQuad * (e.hidden / kQuantGroup);
    at = resident_memory().ring + thread_now() / kWarp * (2 * (codes + scales));
  }
};
// By a warp.
SPK_CALLED void ask_for_chunk(int which, int chunk) {
  const LayerArgs& l = resident_memory().layers[which];
  const ExpertsArgs& e = l.e;
  const ChunkMemory to(e);
  Arrival* const arrival = WarpCopies::own();
  const int lane = thread_now() % kWarp, expert = chunk / l.chunks.per_expert;
  const i64 first = (chunk - expert * l.chunks.per_expert) * kResidentQuad;
  const ExpertWeights& w = e.experts[resident_memory().slots[expert]];
  // All before the first copy: a load waits behind the copies that were asked for before it.
  const unsigned char* const codes = (lane == 0 ? w.gate : w.up).codes + first * (e.hidden / 2);
  const i64 scales = first * (e.hidden / kQuantGroup);
  const unsigned char* const gate_scales = w.gate.scales + scales;
  const unsigned char* const up_scales = w.up.scales + scales;
  if (lane == 0) announce(arrival, 2 * to.codes);
  __syncwarp();
  bring_by_lanes(to.at + to.codes, gate_scales, to.scales);
  bring_by_lanes(to.at + 2 * to.codes + to.scales, up_scales, to.scales);
  if (lane < 2) bring(to.at + lane * (to.codes + to.scales), codes, to.codes, arrival);
}
// Behind ask_for_experts().
SPK_DEVICE void experts_up(int which, WarpCopies& copies, float* act) {
  const UpChunks chunks(which);
  const ExpertsArgs& e = chunks.l.e;
  QuantRows x = resident_memory().quantised;
  x.cols = e.hidden;
  const int lane = thread_now() % kWarp, warp = thread_now() / kWarp;
  if (warp >= chunks.warps) return;
  const ChunkMemory of(e);
  const unsigned char *const gate = of.at, *const up = gate + of.codes + of.scales;
#pragma unroll 1
  for (int k = warp; k < chunks.count; k += chunks.warps) {
    if (k > warp || !chunks.l.shared_waits) ask_for_chunk(which, chunks.chunk(k));
    copies.wait();
    float sum[2][1];
    dots_in_memory<2>({gate, up}, {gate + of.codes, up + of.codes}, x, 0, sum);
    if (lane % kRowLanes == 0)
      post(act + chunks.chunk(k) * kResidentQuad + lane / kRowLanes,
           activate(sum[0][0], sum[1][0], e.limit));
    __syncwarp();  // before the next copies
  }
}

// ---- down ----
// This block's rows of the last product, of all chosen experts and of the shared one. Their weights
// take the ring's last slots, so that the next layer's pieces begin in the first one.
struct DownRows {
  int first, end;  // of the block
  int code_bytes, scale_bytes, region;
  int slots;  // of the ring that the weights of the first rows take up
  SPK_DEVICE explicit DownRows(const ExpertsArgs& e) {
    const int blocks = static_cast<int>(gridDim.x), quads = e.hidden / kResidentQuad;
    const int per = (quads + blocks - 1) / blocks * kResidentQuad;
    first = min(static_cast<int>(blockIdx.x) * per, e.hidden);
    end = min(first + per, e.hidden);
    code_bytes = kResidentQuad * (e.width / 2);
    scale_bytes = kResidentQuad * (e.width / kQuantGroup);
    region = code_bytes + scale_bytes;
    const int rows = max(rows_at(first), 0);
    slots = min((jobs(e, rows) * region + rows * e.shared_width + kSlotBytes - 1) / kSlotBytes,
                kResidentSlots);
  }
  SPK_DEVICE int rows_at(int row) const { return min(kResidentDown, end - row); }
  SPK_DEVICE int jobs(const ExpertsArgs& e, int rows) const {
    return e.top_k * (rows / kResidentQuad);
  }
  SPK_DEVICE unsigned char* memory() const {
    return resident_memory().ring + (kResidentSlots - slots) * kSlotBytes;
  }
  // Weights of rows [row, row + rows): a warp's jobs are (expert, four rows); a lane asks for the
  // codes of one or knows where its scales are. Where those of its expert begin: from memory, so
  // early.
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
    unsigned char* const to = memory();
    const int lane = thread_now() % kWarp, warp = thread_now() / kWarp;
    const int all = jobs(e, rows), job = job_now();
    const int mine = warp < all ? (all - warp + kResidentWarps - 1) / kResidentWarps : 0;
    const bool last = warp == kResidentWarps - 1, codes = lane % 2 == 0;
    if (lane == 0 && mine > 0) announce(own, mine * code_bytes);
    if (last && lane == 0) announce(shared, rows * e.shared_width);
    __syncwarp();
    source += (row + job / e.top_k * kResidentQuad) *
              static_cast<i64>(codes ? e.width / 2 : e.width / kQuantGroup);
    if (codes && job < all) bring(to + job * region, source, code_bytes, own);
#pragma unroll 1
    for (int k = 0; k < mine; ++k) {
      const auto scales =
          __shfl_sync(kAllLanes, reinterpret_cast<unsigned long long>(source), 2 * k + 1);
      bring_by_lanes(to + (warp + k * kResidentWarps) * region + code_bytes,
                     reinterpret_cast<const unsigned char*>(scales), scale_bytes);
    }
    if (!last) return;
    if (lane == 0)
      bring(to + all * region, e.shared.down.codes + row * e.shared.down.row_bytes,
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
      const unsigned char* const at = memory() + job * region;
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
    const unsigned char* const at = memory() + all * region;
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

// Asks for each warp's first chunk, unless a tile of the shared expert needs its memory still.
// Returns where the codes or scales of the lane's job of the last product begin (DownRows).
SPK_DEVICE const unsigned char* ask_for_experts(int which) {
  const UpChunks chunks(which);
  const ExpertsArgs& e = chunks.l.e;
  const int warp = thread_now() / kWarp;
  // First: a load waits behind the copies that were asked for before it.
  const DownRows down(e);
  const unsigned char* const source = down.source(e, down.rows_at(down.first));
  if (chunks.l.shared_waits && warp < min(chunks.warps, chunks.count))
    ask_for_chunk(which, chunks.chunk(warp));
  return source;
}

}  // namespace spk::gpu
