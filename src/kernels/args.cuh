// What host and device must agree on, in one place: arguments of the kernels and the constants that
// decide how work is cut. Read by both compilers, so plain structs of built-in types only.
//
// Every kernel takes one struct by value. The host puts its own sizes and constants in front of
// each program as static_asserts (backend/cuda/catalog.cc), so that a disagreement does not
// compile.
#pragma once

// No padding: graphs of launches are found again by the bytes of their arguments.
#if defined(__GNUC__) && !defined(__CUDACC_RTC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"
#endif

namespace spk::gpu {

using i64 = long long;

// Weight formats, numbered as spk::Format (formats/quant.h).
enum Code : int { kF32, kBf16, kFp8, kMxfp4, kInt4, kFp8Row };

constexpr int kWarp = 32;
constexpr int kThreads = 256;  // of a block, where a kernel has no reason for another number
constexpr int kWarps = kThreads / kWarp;

// Real numbers, row-major; stride in elements between rows.
struct View {
  float* data;
  i64 stride;
};
struct IntView {
  int* data;
  i64 stride;
};

// A stored matrix. row_bytes is a multiple of 16 (32 for F32) and the rest of a row is zero, so
// that loads of 16 bytes, and of 8 numbers, need no guard. Scales: FP8 float [ceil(rows / 128),
// ceil(cols / 128)], FP8 by row float [rows], MXFP4 bytes and INT4 BF16 [rows, cols / 32], as in
// the files.
struct Matrix {
  const unsigned char* codes;
  const unsigned char* scales;
  i64 row_bytes;
  int rows;
  int cols;
};

// What changes from step to step, in device memory, so that a launch can be replayed unmodified.
struct StepInfo {
  i64 first_position;
  int rows;
  int fold;    // rows of the verify pass before that were accepted
  int verify;  // the states are not written; records are
  int unused = 0;
};

// ---- rows.cuh ----
struct EmbedArgs {
  Matrix table;
  const int* tokens;
  i64 token_stride;
  View y;
};
struct NormArgs {  // y = w * x / sqrt(mean(x^2) + eps); with add: x += o first
  View x, o, y;
  const float* w;
  int cols;
  float eps;
};
struct AddArgs {  // x += o
  View x, o;
  int cols;
  int unused = 0;
};
struct SwigluArgs {  // gate = min(silu(gate), limit) * clip(up, +-limit); limit 0: none
  View gate, up;
  int cols;
  float limit;
};
struct NormGateArgs {  // o = rms_norm per head * sigmoid(gate)
  View o, gate;
  const float* w;
  int heads;
  float eps;
};
struct HeadGateArgs {  // o[head] *= sigmoid(gate[head])
  View o, gate;
  int cols;
  int v_dim;
};

constexpr int kReadThreads = 1024;
struct ReadArgs {  // reads everything, for the bandwidth
  const unsigned char* data;
  i64 bytes;       // a multiple of 65536
  unsigned* sink;  // never written, but the compiler does not know
};

// ---- matvec.cuh, matmul.cuh ----
constexpr int kMaxRowsInvariant = 8;  // up to here a row's bits do not depend on its neighbours
// Weight rows of a warp, which share the reads of x, in the instantiation for that many rows of x;
// and of a block, a group.
constexpr int weight_rows(int rows) { return rows <= 2 ? 2 : 4; }
constexpr int group_rows(int rows) { return kWarps * weight_rows(rows); }
// Columns of x that a block keeps in shared memory at a time: at most 32 KiB.
constexpr int staged_columns(int rows) { return rows == 1 ? 4096 : rows <= 4 ? 2048 : 1024; }
// Blocks of which the compiler keeps the registers free on a multiprocessor.
constexpr int stream_blocks(int rows) { return rows <= 2 ? 2 : 1; }
// Blocks that one multiprocessor takes at once; more groups than that are worked off in turns, so
// that a block stages x once.
constexpr int kStreamBlocks = 4;
constexpr int kMaxProducts = 8;
// y[i] = w x[i] for several matrices of one format: one launch streams them one behind the other.
// Or `batch` products of one matrix that lie side by side (heads).
struct Product {
  Matrix w;
  View y;
  i64 first_row;    // of the matrix
  int rows;         // weight rows
  int first_group;  // its number among the groups of all products
};
struct ProductsArgs {
  Product p[kMaxProducts];
  View x;
  int count;
  int groups;  // of all products
  int n;       // rows of x
  int unused = 0;
  i64 w_batch;           // weight rows from batch to batch
  i64 x_batch, y_batch;  // elements
  View gate;             // [n, batches]: outputs times its sigmoids; data null: none
};
// ---- tile.cuh ----
constexpr int kTileStep = 64;   // columns of a step of the matrix unit's products, whole ones only
constexpr int kTileGroup = 16;  // weight rows of a block at a time
// Blocks that one multiprocessor takes at once, where its shared memory is large enough.
constexpr int tile_blocks(int) { return 2; }
// Steps of x that a warp keeps, as two halves a number: in 40 KiB of what a block has without
// asking, and in a launch of tiles alone, which asks for more. A warp that has as many converts x
// once, whatever the number of its tiles: 2,560 columns are five steps of each of eight warps,
// 4,096 eight.
constexpr int tile_steps(int rows) { return rows == 1 ? 20 : rows == 2 ? 10 : rows == 4 ? 5 : 2; }
constexpr int kept_steps(int rows) { return rows == 8 ? 5 : rows == 4 ? 8 : tile_steps(rows); }
// Bytes: of a step and row 64 words and the inverse of a factor, and two buffers of a tile's parts.
constexpr int tiles_shared(int rows) {
  return kWarps * rows * 4 * (kept_steps(rows) * (kTileStep + 1) + 2 * kTileGroup);
}
struct TilesArgs {
  ProductsArgs p;  // FP8
  Product side;    // BF16, of the same x
  int blocks;      // that take tiles
  int first_side;  // blocks from here on take numbers of `side`; no block: none
};
struct ProductArgs {  // matmul.cuh: many rows
  Matrix w;
  View x, y;
  int n;
  int rows;
  i64 first_row;
};
constexpr int kTileRows = 64;   // matmul.cuh: weight rows,
constexpr int kTileCols = 64;   // rows of x
constexpr int kTileDepth = 32;  // and columns of one step

// ---- kda.cuh ----
constexpr int kMaxVerifyRows = 8;
constexpr int kKdaChunk = 64;    // rows of a chunk, and the grid of positions that it ends on
constexpr int kKdaColumns = 32;  // value columns of a block: one warp's lanes
constexpr int kKdaSlices = 8;    // parts of a head's keys, each summed by one warp
constexpr int kKdaSlab = 1024;   // rows of one launch of the chunked form
struct ConvArgs {
  View x[3];             // q, k, v
  const float* taps[3];  // [channels, kernel]
  View tail;             // [3 * (kernel - 1), channels]
  View record;           // [3 * kMaxVerifyRows, channels]
  const StepInfo* step;
  int n;
  int channels;
};
struct KdaGateArgs {
  View f, b;
  const float* a_log;    // [heads]
  const float* dt_bias;  // [heads * D]
  int heads;
  float lower_bound;
};
struct KdaArgs {
  View q, k, v, g, beta, o;
  View state;                         // [heads * D, D]
  View record_k, record_u, record_g;  // [kMaxVerifyRows, heads * D]
  const StepInfo* step;
  int n;
  int unused = 0;
};
// kda_block.cuh: everything between the first and the last product of a layer. Threads of a block,
// which has a head of d: eight rows of it, or eight slices of the keys of each value column.
constexpr int kda_block_threads(int d) { return d * kKdaSlices; }
struct KdaBlockArgs {
  View x[3];  // q, k, v: products
  View f, b, gate, o;
  const float* taps[3];  // [heads * D, kernel]
  const float* a_log;    // [heads]
  const float* dt_bias;  // [heads * D]
  const float* o_norm;   // [D]
  float* state;          // [heads * D, D], without gaps: constant distances need no registers
  View tail, record_in, record_k, record_u, record_g;
  const StepInfo* step;
  int n;
  int heads;
  float lower_bound;
  float eps;
};
struct FoldTailArgs {
  View tail, record;
  int channels;
  int rows;
};
struct FoldStateArgs {
  View state, record_k, record_u, record_g;
  int rows;
  int unused = 0;
};
// Workspace of the chunked form, per row of a slab and head: see kda.cuh.
struct KdaChunkArgs {
  View q, k, v, g, beta, o, state;
  float* q_start;  // [slab, heads, D] q exp(G), G from the chunk's start
  float* k_start;  // [slab, heads, D] k exp(G)
  float* k_end;    // [slab, heads, D] k exp(sum of g up to the chunk's end)
  float* unit_q;   // [slab, heads, D]
  float* unit_k;
  float* a;            // [slab, heads, kKdaChunk]
  float* p;            // [slab, heads, kKdaChunk]
  float* decay;        // [chunks, heads, D] exp(G) at the chunk's end
  i64 first_position;  // of row 0 of the views
  int n;
  int heads;
};

// ---- mla.cuh, mla_merge.cuh, latent.cuh ----
constexpr int kAttendHeads = 16;  // of a tile of the matrix unit; they share the reads of latents
constexpr int kAttendStep = 32;   // positions whose scores become weights at once
constexpr int kAttendTiles = 2;   // of a block, at most
constexpr int kMergeColumns = 128;
// A piece of attention is a segment of a grid of absolute positions, which gets coarser with them:
// at short contexts a block has to be done soon, at long ones pieces of z (64 KB a segment for 32
// heads) must not outweigh the latents. Longest segment / positions is at most 1/64, so that 132
// multiprocessors with two blocks each have about equally much to do.
constexpr int kSpans = 6;
constexpr i64 span_begin(int span) {  // its first position
  return span == 0   ? 0
         : span == 1 ? 2048
         : span == 2 ? 8192
         : span == 3 ? 16384
         : span == 4 ? 65536
                     : 262144;
}
constexpr i64 span_step(int span) { return i64{kAttendStep} << span; }  // positions of a segment
constexpr int segment_of(i64 position) {
  int before = 0;
  for (int span = 0; span + 1 < kSpans && position >= span_begin(span + 1); ++span)
    before += static_cast<int>((span_begin(span + 1) - span_begin(span)) / span_step(span));
  int span = 0;
  while (span + 1 < kSpans && position >= span_begin(span + 1)) ++span;
  return before + static_cast<int>((position - span_begin(span)) / span_step(span));
}
constexpr i64 segment_begin(int segment) {
  int span = 0;
  for (; span + 1 < kSpans; ++span) {
    const i64 segments = (span_begin(span + 1) - span_begin(span)) / span_step(span);
    if (segment < segments) break;
    segment -= static_cast<int>(segments);
  }
  return span_begin(span) + segment * span_step(span);
}
// Shared memory of a tile, in floats: queries, parts of scores of eight warps, weights, and five
// numbers a head. Rows end so that the lanes of a quarter of a warp, which read 64 bytes of two
// rows each or write 32 of four, meet different banks.
constexpr int kAttendPart = kAttendStep + 8, kAttendWeight = kAttendStep + 16;
constexpr int attend_row(int width) { return ((width + 15) / 16 | 1) * 16; }
constexpr int attend_floats(int width) {
  return kAttendHeads * (attend_row(width) + kWarps * kAttendPart + kAttendWeight + 5);
}
struct RopeTableArgs {
  const double* turns;  // [half] half turns per position: frequency / pi
  View cosine, sine;    // [rows, half]
  const StepInfo* step;
  int half;
  int unused = 0;
  double factor;
};
struct RopeArgs {
  View q;
  View cosine, sine;
  int heads, width, nope, half;
};
struct LatentAppendArgs {
  View kv, latent;
  View cosine, sine;
  const float* w;
  const StepInfo* step;
  int latent_dim, half;
  float eps;
  int unused = 0;
};
constexpr int kAbsorbColumns = 128;
struct AbsorbArgs {  // q_latent[h] = W_UK[h]^T q_nope[h]
  Matrix w;
  View q, q_latent;
  int n, heads, nope, width, per_head, latent;
};
struct LatentQueryArgs {
  RopeArgs rope;
  LatentAppendArgs append;
  AbsorbArgs absorb;
};
struct AttendArgs {
  View q_latent, q, latent, z;
  float* piece_z;    // [segments, rows, heads, latent]: split form only
  float* piece_top;  // [segments, rows, heads]
  float* piece_sum;
  const StepInfo* step;
  int n, heads, nope, width;
  int positions;  // of the cache
  float scale;
};

// ---- moe.cuh ----
constexpr int kMaxExperts = 1024;
constexpr int kMaxGroups = 64;
constexpr int kMaxTopK = 32;
constexpr int kExpertRows = 8;    // rows of one work item
constexpr int kExpertSlab = 256;  // rows of one launch
struct RouteArgs {
  View scores;  // [rows, experts], router products
  const float* bias;
  IntView forced;  // data null: none
  IntView ids;
  View weights;
  int n, experts, top_k, groups, keep_groups;
  float scale;
};
// Threads of a block: one an expert, at least kThreads.
constexpr int route_threads(int experts) {
  return experts <= kThreads ? kThreads : (experts + kWarp - 1) / kWarp * kWarp;
}
struct ExpertWeights {  // of one expert
  Matrix gate, up, down;
};
// Pairs are (row, slot): row * top_k + slot. An item is one expert with up to `item_rows` pairs, so
// that rows that chose the same expert share one read of it: [expert, count, pairs]. A row may name
// an expert twice (known-answer tests do), so an item may hold more pairs than there are rows.
constexpr int kItemInts = 2 + kExpertRows;
struct ItemsArgs {
  IntView ids;
  int* items;  // [max items, kItemInts]
  int* count;
  unsigned long long* totals;  // += 1 and += expert_bytes for each distinct expert
  unsigned long long expert_bytes;
  int n, experts, top_k;
  int item_rows;  // at most kExpertRows: what the instantiations that follow take
};
struct ExpertsArgs {
  const ExpertWeights* experts;
  const int* items;
  const int* count;
  View x;      // [rows, hidden]
  float* act;  // [pairs, width]
  float* out;  // [pairs, hidden]
  // The shared expert as the items from blockIdx.y = shared_item on, one for each bucket of rows.
  ExpertWeights shared;
  float* shared_act;  // [rows, shared_width]
  float* shared_out;  // [rows, hidden]
  int n, top_k, width, hidden;
  float limit;
  int shared_item, shared_width;
  float shared_limit;
};
struct ExpertSumArgs {
  const float* out;  // [pairs, hidden]
  View weights;
  const float* shared;  // [rows, hidden], null: none
  View o;
  int top_k, hidden;
};

// expert_sum, x += o and rms_norm in one.
constexpr int kSumNormThreads = 1024;
constexpr int kSumNormColumns = 6144;  // at most
struct SumNormArgs {
  ExpertSumArgs sum;
  NormArgs norm;  // its o is not looked at
};

// ---- packed.cuh: MXFP4 experts with int8 activations ----
constexpr int kQuantGroup = 32;      // columns that share a scale, of weights and activations
constexpr int kPackedUnits = 32;     // gate/up pairs of a block: one group of the next activations
constexpr int kPackedDownRows = 64;  // weight rows of a block of the last product
// Of an FP8 shared expert's blocks in those launches: tiles one after the other, units, rows.
constexpr int kSharedTiles = 2;
constexpr int kSharedUnits = kSharedTiles * kTileGroup / 2;
constexpr int kSharedDownRows = kSharedTiles * kTileGroup;
// Activations as int8: codes [rows, cols]; of each group two words: the bits of its scale as float,
// and where its sum starts (packed.cuh).
struct QuantRows {
  signed char* codes;
  unsigned* groups;  // [rows, cols / 32, 2]
  int cols;
  int unused = 0;
};
struct QuantiseArgs {
  View x;
  QuantRows to;
};
struct PackedItemsArgs {  // both in one launch: neither needs the other
  ItemsArgs items;
  QuantiseArgs x;
};
struct RouteItemsArgs {  // route.cuh
  RouteArgs route;
  ItemsArgs items;
  QuantiseArgs x;  // codes null: not wanted
  int* arrived;    // rows that are done, and of each its blocks (front); 0 between launches
  int x_blocks;    // of one row
  int unused = 0;
};
// ---- front.cuh ----
constexpr int kFrontColumns = 3072;  // of a row, at most,
constexpr int kFrontBytes = 5120;    // and of a router's row
constexpr int kFrontHeld = kFrontColumns / kThreads;
struct FrontArgs {
  NormArgs norm;  // with addition
  Matrix router;
  RouteItemsArgs route;  // no blocks that quantise
};
struct PackedArgs {
  ExpertsArgs e;         // act null: the last product reads `act` below
  QuantRows x;           // [rows, hidden]
  QuantRows act;         // [pairs, width]
  QuantRows shared_act;  // [rows, shared_width], of an MXFP4 shared expert
  int shared_blocks;     // of one bucket of rows, in front of all others; 0: no shared expert
  int shared_buckets;
  int blocks;  // of one item
  int unused = 0;
};

// ---- sample.cuh ----
constexpr int kChooseThreads = 1024;
// Purposes of random numbers that are not a token's own, as spk::Draw.
constexpr unsigned kDrawAccept = 0xffffff01u;
constexpr unsigned kDrawResidual = 0xffffff02u;
struct SampleArgs {
  const float* logits;       // [vocab]
  const int* prompt_count;   // [vocab] or null
  const int* answer_count;   // [vocab] or null
  const int* bias_ids;       // [bias_count]
  const float* bias_values;  // added as float
  float* work;               // [vocab] adjusted logits
  double* weights;           // [vocab] weights of the surviving ids, 0 elsewhere; null: not wanted
  double* total;             // their sum
  int* out;                  // [2]: the token, then status
  i64 position;
  unsigned long long seed, choice;
  double temperature, top_p, min_p;
  double repetition_penalty, presence_penalty, frequency_penalty;
  i64 top_k;
  int bias_count;
  int vocab;
};
// choose.cuh: the same without penalties and bias, of any rows of a step, in launches that never
// change.
constexpr int kPiece = 64;           // logits that share a maximum
constexpr int kPiecesPerBlock = 64;  // of the first launch
constexpr int kFewTokens = 256;      // the largest top-k that looks at few pieces only
struct SampleRule {                  // of a request, in device memory
  unsigned long long seed, choice;
  double temperature, top_p, min_p;
  i64 top_k;
};
struct ChooseArgs {
  View logits;  // [n, vocab]: of the last n rows of the step
  const SampleRule* rule;
  const StepInfo* step;
  unsigned* best;  // [n, pieces]: order-preserving words
  int* ids;        // of each row; 0 where none can be chosen
  int* failed;     // SampleStatus
  i64 id_stride, failed_stride;
  int n, vocab, pieces;
  int offset;  // from the position of a row to that of its token
};
enum SampleStatus : int { kSampled = 0, kSawNan = 1, kNoFinite = 2 };
struct RejectArgs {
  const double* p;  // [vocab] weights of the target and their sum
  const double* p_total;
  const double* q;
  const double* q_total;
  const int* draft;
  int* out;  // [2]: the token, whether the draft was taken
  i64 position;
  unsigned long long seed, choice;
  int vocab;
  int unused = 0;
};

}  // namespace spk::gpu

#if defined(__GNUC__) && !defined(__CUDACC_RTC__)
#pragma GCC diagnostic pop
#endif
