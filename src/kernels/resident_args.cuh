// What resident.cuh is given, host and device alike: layers of a decode step by blocks that stay,
// what goes through their ring of weights, what they hand each other, and a block's shared memory.
#pragma once

#include "kernels/args.cuh"

// No padding, as there.
#if defined(__GNUC__) && !defined(__CUDACC_RTC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"
#endif

namespace spk::gpu {

constexpr int kResidentThreads = 512;
constexpr int kResidentTeams = kResidentThreads / kThreads;  // each with a tile of its own
constexpr int kResidentSlots = 8;                            // of the ring of weights
constexpr int kSlotCodes = 20480;                            // bytes of a slot for codes,
constexpr int kSlotScales = 128;  // and behind them for the scales of a row
constexpr int kSlotBytes = kSlotCodes + kSlotScales;
constexpr int kRingBytes = kResidentSlots * kSlotBytes;
constexpr int kResidentColumns = 4096;      // of a row that goes through tiles, at most
constexpr int kResidentScratch = 18 << 10;  // bytes of what a phase keeps to itself
constexpr int kResidentSlotsOfChoice = 16;  // the largest top-k
constexpr int kResidentDown = 32;           // rows of the experts' last product at a time
constexpr int kResidentQuad = 4;            // weight rows of experts that a warp takes
// How a product goes through the ring: steps of columns, those of a warp, rows and pieces of a
// tile.
struct TileCut {
  int steps, share, rows, pieces;
};
constexpr TileCut cut_tile(int cols) {
  TileCut cut{cols / kTileStep, 0, kTileGroup / 2, 2};
  cut.share = (cut.steps + kWarps - 1) / kWarps;
  while (cut.rows * cols > kSlotCodes) {
    cut.rows /= 2;
    cut.pieces *= 2;
  }
  return cut;
}
// A piece of the ring: whole rows of one matrix, one behind the other, and the scales of the first
// one where it begins the upper or the lower half of a tile. Of a tile's first piece: where its
// numbers go. A block's pieces of a layer in their order: norm weights, tiles of the first products
// and of the last, norm weights, the router's rows, tiles of the shared expert's gate and up. In
// front of them one whose `bytes` is how many there are. Where the shared expert waits
// (shared_waits below) empty ones stand before its tile, so that it takes the last slots.
enum Then : short {
  kPost,           // to the other blocks
  kPostSigmoid,    //
  kPostActivated,  // of the shared expert
  kPostSum,        // with the residual
  kLeave           // to launches behind, as the output projection's
};
struct Piece {
  const unsigned char *codes, *scales;
  int bytes, scale_bytes;
  int to;  // the first number of the tile, in what a layer exchanges (ExchangePlaces), or its row
  short rows;  // of the tile
  short then;  // what becomes of its numbers

  bool operator==(const Piece& other) const {
    return codes == other.codes && scales == other.scales && bytes == other.bytes &&
           scale_bytes == other.scale_bytes && to == other.to && rows == other.rows &&
           then == other.then;
  }
};
constexpr int kPieceTable = 64;  // a layer's first pieces, in shared memory
enum Stage : int { kStageIn, kStageOut, kStageShared, kStages };  // products by tiles
// How the gate and up of the chosen experts are cut: chunks of kResidentQuad units, a warp's memory
// each. All blocks take `rounds` of them, the blocks without a waiting tile of the shared expert
// share the others.
struct ChunkPlan {
  int per_expert, chunks, rounds;
  int tiles;                // waiting ones: of the first blocks
  int warps, warps_beside;  // with memory for a chunk: without and with a tile
};
// One layer, one row: norm, KDA; and with `feeds` addition to the residual, norm and experts, whose
// sum goes to the residual too with `adds`, and else to behind.o.
struct LayerArgs {
  TileCut cut[kStages];
  const Piece* pieces;  // [blocks, piece_stride]
  i64 piece_stride;
  NormArgs before;  // y is not written; w null: x is behind the norm already
  ProductsArgs in;  // q, k, v, f, gate; x and y are not looked at
  Matrix beta;
  KdaBlockArgs kda;  // x, f, b, gate and o are not looked at
  Product out;
  NormArgs behind;  // the addition of o is the output projection's when it feeds on
  Matrix router;
  RouteArgs route;  // scores are not looked at
  ExpertsArgs e;    // weights, sizes and limits only
  unsigned long long* totals;
  unsigned long long expert_bytes;
  int feeds, adds;
  ChunkPlan chunks;
  int gate;            // its number among the products
  int shared_waits;    // chunks.tiles > 0
  int unused[2] = {};  // whole loads of 16 bytes
};
// With so many blocks that each has one tile of the shared expert at most, it waits in the ring's
// last slots while the chosen experts' weights are on their way.
constexpr ChunkPlan plan_chunks(const TileCut& shared, int shared_width, int top_k, int width,
                                int hidden, int blocks) {
  const int bytes = 2 * kResidentQuad * (hidden / 2 + hidden / kQuantGroup);
  const auto fitting = [&](int memory) {
    const int warps = memory / bytes;
    return warps < kResidentThreads / kWarp ? warps : kResidentThreads / kWarp;
  };
  ChunkPlan p{};
  p.per_expert = width / kResidentQuad;
  p.chunks = top_k * p.per_expert;
  p.rounds = p.chunks / blocks;
  p.warps = fitting(kRingBytes);
  p.warps_beside = fitting(kRingBytes - shared.pieces * kSlotBytes);
  const int tiles = shared_width / (kTileGroup / 2);
  if (tiles >= blocks || p.warps_beside == 0) return p;
  p.tiles = tiles;
  if (p.rounds > p.warps_beside) p.rounds = p.warps_beside;
  return p;
}
constexpr int kMostLayers = 64;
// The bits of a number that has not been posted: a NaN that no operation makes, theirs are
// 0x7fffffff.
constexpr unsigned kAbsent = 0xffffffffu;
// What the blocks hand each other in a layer, as awaited numbers (awaited.cuh): where each vector
// begins, multiples of four floats. `n`: heads * head_dim.
struct ExchangePlaces {
  int products;  // q, k, v, f and the gate's sigmoids: five of n
  int mixed;     // [n]
  int residual;  // [hidden] with the mixer's output
  int scores;    // [experts]
  int shared;    // [shared_width] the shared expert's inner activations
  int act;       // [top_k, width] those of the chosen ones
  int sum;       // [hidden] the residual with the experts' output
  int floats;    // of all
};
constexpr ExchangePlaces exchange_places(int n, int hidden, int experts, int shared_width,
                                         int act) {
  ExchangePlaces p{};
  int used = 0;
  const auto take = [&used](int count) {
    const int at = used;
    used += (count + 3) / 4 * 4;
    return at;
  };
  p.products = take(5 * n);
  p.mixed = take(n);
  p.residual = take(hidden);
  p.scores = take(experts);
  p.shared = take(shared_width);
  p.act = take(act);
  p.sum = take(hidden);
  p.floats = used;
  return p;
}
// Layers use three memories in turns: one that they write and read, one of the layer before, whose
// sum is read still, and one that is made absent for the next layer.
constexpr int kExchangeTurns = 3;
// What the timed form leaves: a block's clock where parts of a layer end, and both clocks at its
// start and end, which tell cycles from nanoseconds.
enum Mark : int {
  kMarkNorm,
  kMarkIn,
  kMarkMix,
  kMarkAbsent,
  kMarkGated,
  kMarkOut,
  kMarkSecondNorm,
  kMarkRouter,
  kMarkScores,
  kMarkChoice,
  kMarkAsked,
  kMarkShared,
  kMarkUp,
  kMarkMeeting,
  kMarkStaged,
  kMarkDown,
  kMarkSum,
  kMarks
};
struct BlockClocks {
  i64 cycles[2], nanoseconds[2];
  i64 begin[kMostLayers];
  i64 end[kMostLayers][kMarks];
};
struct ResidentArgs {
  const LayerArgs* layer[kMostLayers];
  float* exchange;      // [kExchangeTurns, places.floats]: the memory of `turn` is absent
  int* turn;            // of the first layer; left as the next launch needs it
  int* arrived;         // blocks, at all meetings; 0 between launches
  BlockClocks* clocks;  // [blocks], of the timed form
  ExchangePlaces places;
  int count;
  int unused = 0;
};
// Bytes of shared memory of a block.
constexpr int kResidentStage = kResidentColumns / kTileStep * (4 * kTileStep + 4);
constexpr int kResidentParts = 2 * kResidentTeams * kWarps * kTileGroup * 4;
constexpr int kResidentRow = kFrontColumns * 4;
constexpr int kResidentQuantised = kFrontColumns + kFrontColumns / kQuantGroup * 8;
constexpr int kResidentOuts = (kResidentSlotsOfChoice + 1) * kResidentDown * 4;
constexpr int kResidentChoice = 2 * kResidentSlotsOfChoice * 4;
constexpr int kDownScales = 16;  // floats: those of two rows of the shared expert's last product
constexpr int kResidentBarriers = 256;
constexpr int kResidentState =
    48 + 2 * kPieceTable * static_cast<int>(sizeof(Piece));  // of the ring
constexpr int kResidentShared = kRingBytes + kResidentStage + kResidentParts + kResidentRow +
                                kResidentQuantised + kResidentScratch + kResidentOuts +
                                kResidentChoice + kDownScales * 4 + kResidentBarriers +
                                kResidentState + 2 * static_cast<int>(sizeof(LayerArgs));

}  // namespace spk::gpu

#if defined(__GNUC__) && !defined(__CUDACC_RTC__)
#pragma GCC diagnostic pop
#endif
