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
// Of this one.
SPK_DEVICE int tiles_of_block(const LayerArgs& l, int stage) {
  const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  return max(tiles_of(l, stage) - block + blocks - 1, 0) / blocks;
}
// A block has few pieces where there are many blocks; what is past the table comes from the list.
SPK_DEVICE const Piece& piece_at(const RingState& r, int which, int number) {
  const int at = number - r.base + 1;  // behind the count
  return at < kPieceTable ? r.piece[which][at] : r.list[at];
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
// By one warp: the layer's pieces are numbered from `used` on, a multiple of kResidentSlots; slots
// before it stay empty. `turn`: the layer's number.
SPK_DEVICE void begin_layer(int which, int used, int turn) {
  const ResidentMemory m = resident_memory();
  RingState& r = *m.state;
  wait_for(m.arrivals + kListArrival, turn);
  if (thread_now() % kWarp == 0) {
#pragma unroll 1
    for (int number = r.end; number < used; ++number)
      announce(m.arrivals + number % kResidentSlots, 0);
    r.list = m.layers[which].pieces + blockIdx.x * m.layers[which].piece_stride;
    r.base = used;
    r.end = used + r.piece[which][0].bytes;
  }
  __syncwarp();
}
// A piece that takes a slot: whoever is done with one asks for the one that is kResidentSlots
// numbers on. By one thread.
SPK_DEVICE void ask_for_piece(int which, int number) {
  const ResidentMemory m = resident_memory();
  if (number >= m.state->end) return;
  const Piece& p = piece_at(*m.state, which, number);
  Arrival* const arrival = m.arrivals + number % kResidentSlots;
  unsigned char* const to = slot_of(m, number);
  announce(arrival, p.bytes + p.scale_bytes);
  if (p.bytes > 0) bring(to, p.codes, p.bytes, arrival);
  if (p.scale_bytes > 0) bring(to + kSlotCodes, p.scales, p.scale_bytes, arrival);
}
// By one warp: the pieces [first, first + count), a lane each, whose slots are free.
SPK_CALLED void ask_for_pieces(int which, int first, int count) {
  if (const int lane = thread_now() % kWarp; lane < count) ask_for_piece(which, first + lane);
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
  // Two steps at a time; the second of the last pair may lie past the warp's: it is read, not used.
  // More at once is more code than the instruction cache thanks for.
#pragma unroll 1
  for (int s = 0; s < count; s += 2) {
    uint4 code[2][2];
    load_steps(upper + s * kTileStep, odd, code[0][0], code[1][0]);
    load_steps(lower + s * kTileStep, odd, code[0][1], code[1][1]);
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      if (s + k >= count) break;
      const int step = first + s + k;
      const float scales[2] = {upper_scales[step / 2], lower_scales[step / 2]};
      add_step<kFp8, 1>(code[k], scales, step, x, sum);
    }
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
// ring were used before, and so many when it returns. The teams take tiles in turns and wait for
// nothing but their own: a slot has always the same team, whose barrier lies between two uses.
constexpr int kFirstAsking = 2;  // warp of a team
static_assert(cut_tile(kResidentColumns).pieces * kResidentTeams <= kResidentSlots &&
                  kFirstAsking + cut_tile(kResidentColumns).pieces <= kWarps,
              "");
SPK_DEVICE int run_tiles(int which, int stage, int used, const Exchange& to,
                         const ExchangePlaces& places) {
  const ResidentMemory m = resident_memory();
  const LayerArgs& l = m.layers[which];
  const int t = thread_now(), lane = t % kWarp, warp = t / kWarp % kWarps, team = t / kThreads;
  const int mine = tiles_of_block(l, stage);
  const TileCut cut = l.cut[stage];
  const int first = min(warp * cut.share, cut.steps), count = min(cut.share, cut.steps - first);
  const int cols = cut.steps * kTileStep, half = cut.pieces / 2;
  const int piece = lane / 4 / cut.rows, offset = lane / 4 % cut.rows * cols;  // of the upper row
  float* here = m.parts + team * (kWarps * kTileGroup);
  int apart = kResidentTeams * (kWarps * kTileGroup);
#pragma unroll 1
  for (int k = team; k < mine; k += kResidentTeams) {
    const int number = used + k * cut.pieces;
    // The second warp of a team posts, others ask for what takes the slots, a piece each.
    const Piece& p = piece_at(*m.state, which, number);
    const int then = p.then, place = p.to;
    const bool stores = warp == 1 && lane < p.rows;
    const float before =
        stores && then == kPostSum ? look(to.residual + (place - places.residual) + lane) : 0.f;
#pragma unroll 1
    for (int j = 0; j < cut.pieces; ++j) wait_for_piece(m, number + j);
    tile_part(slot_of(m, number + piece) + offset, slot_of(m, number + half + piece) + offset,
              reinterpret_cast<const float*>(slot_of(m, number) + kSlotCodes),
              reinterpret_cast<const float*>(slot_of(m, number + half) + kSlotCodes), first, count,
              here);
    sync_team(team);
    if (warp >= kFirstAsking && warp < kFirstAsking + cut.pieces && lane == 0)
      ask_for_piece(which, number + kResidentSlots + warp - kFirstAsking);
    if (stores) {
      float y = number_of(here, lane);
      if (then == kPostSigmoid) y = sigmoid(y);
      if (then == kPostSum) y = before + y;
      if (then == kPostActivated)
        y = activate(y, number_of(here, lane + kTileGroup / 2), l.e.shared_limit);
      if (then != kLeave) post(to.now + place + lane, y);
      // The residual for launches behind, unless the experts' sum takes its place.
      if (then == kLeave)
        l.out.y.data[place + lane] = y;
      else if (then == kPostSum && !l.adds)
        l.behind.x.data[place - places.residual + lane] = y;
    }
    here += apart;
    apart = -apart;
  }
  __syncthreads();
  return used + mine * cut.pieces;
}

}  // namespace spk::gpu
