// FP8 products of one row by blocks that stay: the tiles of tile.cuh, whose weights come through a
// ring of slots in shared memory. The ring runs ahead of the products and of what they await,
// because weights depend on nothing.
//
// Two teams of eight warps take two tiles at a time. A tile is cut by rows into pieces that fit a
// slot. The order of sums is that of tile.cuh.
#pragma once

#include "kernels/resident_memory.cuh"

namespace spk::gpu {

// ---- what goes through the ring ----
// Of all blocks; they take them in turns.
SPK_DEVICE int tiles_of(const LayerArgs& l, int stage) {
  if (stage == kStageIn) return l.in.groups;
  if (stage == kStageOut) return (l.out.rows + kTileGroup - 1) / kTileGroup;
  return l.e.shared_width / (kTileGroup / 2);
}
SPK_DEVICE const Piece& piece_at(const RingState& r, int which, int number) {
  return r.piece[which][(number - r.base + 1) % kPieceTable];
}
// By one thread: the list of layer `which`, or its beginning.
SPK_DEVICE void ask_for_list(int which) {
  const ResidentMemory m = resident_memory();
  const LayerArgs& l = m.layers[which];
  const int bytes =
      min(static_cast<int>(l.piece_stride), kPieceTable) * static_cast<int>(sizeof(Piece));
  announce(m.arrivals + kListArrival, bytes);
  bring(m.state->piece[which], l.pieces + blockIdx.x * l.piece_stride, bytes,
        m.arrivals + kListArrival);
}
// By the first warp: the layer's pieces are numbered from `used` on; slots before it stay empty.
// `turn`: the layer's number.
SPK_DEVICE void begin_layer(int which, int used, int turn) {
  const ResidentMemory m = resident_memory();
  RingState& r = *m.state;
  wait_for(m.arrivals + kListArrival, turn);
  if (thread_now() == 0) {
#pragma unroll 1
    for (int number = r.asked; number < used; ++number)
      announce(m.arrivals + number % kResidentSlots, 0);
    r.list = m.layers[which].pieces + blockIdx.x * m.layers[which].piece_stride;
    r.base = r.asked = used;
    r.end = used + r.piece[which][0].bytes;
    r.there = kPieceTable;
  }
  __syncwarp();
}
// By the first warp: pieces for the slots that are free when all before `used` are, `slots` in all.
// One copy of the code, called.
SPK_CALLED void fill_ring(int which, int used, int slots) {
  const ResidentMemory m = resident_memory();
  RingState& r = *m.state;
  const int lane = thread_now() % kWarp;
#pragma unroll 1
  while (true) {
    const int asked = r.asked, wanted = min(used + slots, r.end);
    const int most = min(wanted, r.base + r.there - 1);
    __syncwarp();
    if (asked + lane < most) {
      const int number = asked + lane;
      const Piece& p = piece_at(r, which, number);
      Arrival* const arrival = m.arrivals + number % kResidentSlots;
      unsigned char* const to = slot_of(m, number);
      announce(arrival, p.bytes + p.scale_bytes);
      if (p.bytes > 0) bring(to, p.codes, p.bytes, arrival);
      if (p.scale_bytes > 0) bring(to + kSlotCodes, p.scales, p.scale_bytes, arrival);
    }
    if (lane == 0) r.asked = max(most, asked);
    __syncwarp();
    if (most >= wanted) return;
    // More of a list that is longer than the table: the oldest half makes room.
    if (r.there + lane <= r.end - r.base)
      r.piece[which][(r.there + lane) % kPieceTable] = r.list[r.there + lane];
    __syncwarp();
    if (lane == 0) r.there += kWarp;
    __syncwarp();
  }
}

// ---- tiles ----
// Sixteen codes of the lane's row in two neighbouring steps. Rows lie a multiple of 128 bytes
// apart, so those of odd rows are read the other way round: no two lanes want the same bank.
SPK_DEVICE void load_steps(const unsigned char* row, bool odd, uint4& first, uint4& second) {
  const uint4 one = *reinterpret_cast<const uint4*>(row + (odd ? kTileStep : 0));
  const uint4 other = *reinterpret_cast<const uint4*>(row + (odd ? 0 : kTileStep));
  first = odd ? other : one;
  second = odd ? one : other;
}
// A warp's steps [first, first + count) of a tile: where the lane's rows begin, and the scales of
// either in blocks of 128 columns. To parts[warp of the team][row], there after a barrier.
SPK_DEVICE void tile_part(const unsigned char* upper, const unsigned char* lower,
                          const float* upper_scales, const float* lower_scales, int first,
                          int count, float* parts) {
  const Halves x = resident_memory().halves;
  const int lane = thread_now() % kWarp, warp = thread_now() / kWarp % kWarps;
  const bool odd = lane / 4 % 2 != 0;
  const int at = lane % 4 * 16 + first * kTileStep;
  upper += at;
  lower += at;
  float sum[2][2] = {};
  const auto add = [&](int step, const uint4(&code)[2]) {
    const float scales[2] = {upper_scales[step / 2], lower_scales[step / 2]};
    add_step<kFp8, 1>(code, scales, step, x, sum);
  };
  int s = 0;
#pragma unroll 1
  for (; s + 2 <= count; s += 2) {
    uint4 code[2], next[2];
    load_steps(upper + s * kTileStep, odd, code[0], next[0]);
    load_steps(lower + s * kTileStep, odd, code[1], next[1]);
    add(first + s, code);
    add(first + s + 1, next);
  }
  if (s < count) {
    const uint4 code[2] = {*reinterpret_cast<const uint4*>(upper + s * kTileStep),
                           *reinterpret_cast<const uint4*>(lower + s * kTileStep)};
    add(first + s, code);
  }
  if (lane % 4 != 0) return;
  float* const to = parts + warp * kTileGroup + lane / 4;
  to[0] = sum[0][0];
  to[kTileGroup / 2] = sum[1][0];
}
// Row r of a tile: warps in order.
SPK_DEVICE float number_of(const float* parts, int r) { return sum_of_parts<1>(parts, r, 0); }

// What tiles of this layer post to, and the residual in front of it: of launches before, or of the
// layer before, which is there, because its norm has been made.
struct Exchange {
  float* now;
  const float* residual;
};

// All tiles of this block in one stage of layer `which`, times the staged row; `used` pieces of the
// ring were used before, and so many when it returns.
SPK_DEVICE int run_tiles(int which, int stage, int used, const Exchange& to,
                         const ExchangePlaces& places) {
  const ResidentMemory m = resident_memory();
  const LayerArgs& l = m.layers[which];
  const int t = thread_now(), lane = t % kWarp, warp = t / kWarp % kWarps, team = t / kThreads;
  const int blocks = static_cast<int>(gridDim.x), all = tiles_of(l, stage);
  const TileCut cut = l.cut[stage];
  const int first = min(warp * cut.share, cut.steps), count = min(cut.share, cut.steps - first);
  const int cols = cut.steps * kTileStep, half = cut.pieces / 2;
  const int piece = lane / 4 / cut.rows, offset = lane / 4 % cut.rows * cols;  // of the upper row
  float* here = m.parts + team * (kWarps * kTileGroup);
  int apart = kResidentTeams * (kWarps * kTileGroup);
#pragma unroll 1
  for (int tile = static_cast<int>(blockIdx.x); tile < all; tile += kResidentTeams * blocks) {
    const bool mine = tile + team * blocks < all;
    const int number = used + team * cut.pieces;
    // By the second warp of a team: the first one asks for pieces.
    const Piece& p = piece_at(*m.state, which, number);
    const bool stores = mine && warp == 1 && lane < p.rows;
    const float before =
        stores && p.then == kPostSum ? look(to.residual + (p.to - places.residual) + lane) : 0.f;
    if (mine) {
#pragma unroll 1
      for (int k = 0; k < cut.pieces; ++k) wait_for_piece(m, number + k);
      tile_part(slot_of(m, number + piece) + offset, slot_of(m, number + half + piece) + offset,
                reinterpret_cast<const float*>(slot_of(m, number) + kSlotCodes),
                reinterpret_cast<const float*>(slot_of(m, number + half) + kSlotCodes), first,
                count, here);
    }
    __syncthreads();
    used += (tile + blocks < all ? kResidentTeams : 1) * cut.pieces;
    if (t < kWarp) fill_ring(which, used, kResidentSlots);
    if (stores) {
      float y = number_of(here, lane);
      if (p.then == kPostSigmoid) y = sigmoid(y);
      if (p.then == kPostSum) y = before + y;
      if (p.then == kPostActivated)
        y = activate(y, number_of(here, lane + kTileGroup / 2), l.e.shared_limit);
      if (p.then != kLeave) post(to.now + p.to + lane, y);
      // The residual for launches behind, unless the experts' sum takes its place.
      if (p.then == kLeave)
        l.out.y.data[p.to + lane] = y;
      else if (p.then == kPostSum && !l.adds)
        l.behind.x.data[p.to - places.residual + lane] = y;
    }
    here += apart;
    apart = -apart;
  }
  return used;
}

}  // namespace spk::gpu
