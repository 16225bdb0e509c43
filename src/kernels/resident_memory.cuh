// Shared memory of a block that stays, and the ring of weights in it.
//
// Every function finds its memory for itself: addresses are constants, and code that is called
// needs no arguments for them.
#pragma once

#include "kernels/awaited.cuh"
#include "kernels/packed.cuh"
#include "kernels/ring.cuh"

namespace spk::gpu {

constexpr int kResidentWarps = kResidentThreads / kWarp;
// x as halves, all columns: [step][words], [step].
using Halves = TileStage<1>;

struct RingState {
  Piece piece[2][kPieceTable];  // of two layers in turns: where their lists begin
  const Piece* list;            // of this layer
  int base, end;                // numbers of its pieces
  int fold;                     // accepted records of the step
  int unused[3];
};
static_assert(sizeof(RingState) <= kResidentState, "");

struct ResidentMemory {
  unsigned char* ring;
  Halves halves;
  float* parts;  // [2][teams][kWarps, kTileGroup]
  float* row;    // behind the norm; then what ResidentKda keeps
  QuantRows quantised;
  unsigned char* scratch;
  float* outs;     // [slots and the shared expert, kResidentDown]; before, beta by heads
  int* slots;      // the choice
  float* weights;  // its weights
  float* down_scales;
  Arrival* arrivals;
  RingState* state;
  LayerArgs* layers;  // [2]
};
SPK_DEVICE ResidentMemory resident_memory() {
  SPK_DYNAMIC_SHARED(memory);
  unsigned char* const at = memory + zero_now();
  ResidentMemory m;
  int used = 0;
  const auto take = [&](int bytes) {
    used += bytes;
    return at + (used - bytes);
  };
  m.ring = take(kRingBytes);
  m.halves.words = reinterpret_cast<unsigned*>(take(kResidentColumns * 4));
  m.halves.inverses = reinterpret_cast<float*>(take(kResidentColumns / kTileStep * 4));
  m.parts = reinterpret_cast<float*>(take(kResidentParts));
  m.row = reinterpret_cast<float*>(take(kResidentRow));
  m.quantised.codes = reinterpret_cast<signed char*>(take(kFrontColumns));
  m.quantised.groups = reinterpret_cast<unsigned*>(take(kFrontColumns / kQuantGroup * 8));
  m.scratch = take(kResidentScratch);
  m.outs = reinterpret_cast<float*>(take(kResidentOuts));
  m.slots = reinterpret_cast<int*>(take(kResidentSlotsOfChoice * 4));
  m.weights = reinterpret_cast<float*>(take(kResidentSlotsOfChoice * 4));
  m.down_scales = reinterpret_cast<float*>(take(kDownScales * 4));
  m.arrivals = reinterpret_cast<Arrival*>(take(kResidentBarriers));
  m.state = reinterpret_cast<RingState*>(take(kResidentState));
  m.layers = reinterpret_cast<LayerArgs*>(take(2 * static_cast<int>(sizeof(LayerArgs))));
  return m;
}
static_assert(kResidentStage == kResidentColumns * 4 + kResidentColumns / kTileStep * 4 &&
                  kResidentShared % 16 == 0 && sizeof(LayerArgs) % 16 == 0,
              "");
static_assert(Halves::kStep * 4 == 4 * kTileStep, "");
// Barriers: of the slots, of each warp, of the shared expert's last product, of a list of pieces,
// of a layer's arguments.
constexpr int kSharedArrival = kResidentSlots + kResidentWarps, kListArrival = kSharedArrival + 1;
constexpr int kLayerArrival = kListArrival + 1;
constexpr int kArrivals = kLayerArrival + 1;
static_assert(kArrivals * 8 <= kResidentBarriers, "");

SPK_DEVICE unsigned char* slot_of(const ResidentMemory& m, int number) {
  return m.ring + number % kResidentSlots * kSlotBytes;
}
SPK_DEVICE void wait_for_piece(const ResidentMemory& m, int number) {
  wait_for(m.arrivals + number % kResidentSlots, number / kResidentSlots);
}

// ---- rows of activations, by the `warps` warps from `first_warp` on, without a barrier ----
// `awaits`: what all blocks post (awaited.cuh), else what this one made itself, in shared memory.
// x as halves.
SPK_CALLED void stage_row(const float* x, int steps, bool awaits, int first_warp, int warps) {
  constexpr int kAtOnce = 4;
  const Halves to = resident_memory().halves;
  const int lane = thread_now() % kWarp, warp = thread_now() / kWarp - first_warp;
  if (warp < 0 || warp >= warps) return;
  unsigned* const words = to.words + lane / 4 % 2 * Halves::kPlane + lane / 8 * 4 + lane % 4;
#pragma unroll 1
  for (int first = warp; first < steps; first += warps * kAtOnce) {
    float2 v[kAtOnce];
    look_until([&] {
      unsigned missing = 0;
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int step = min(first + k * warps, steps - 1);
        v[k] = look(reinterpret_cast<const float2*>(x + step * kTileStep) + lane);
        missing |= is_there(v[k]) ? 0u : 1u;
      }
      return missing == 0 || !awaits;
    });
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int step = first + k * warps;
      if (step >= steps) break;
      float inverse;
      const float factor = half_factor(warp_largest(max_of(__float_as_uint(v[k].x) & 0x7fffffffu,
                                                           __float_as_uint(v[k].y) & 0x7fffffffu)),
                                       inverse);
      const float low = v[k].x * factor, high = v[k].y * factor;
      const unsigned hi = floats_to_halves(low, high);
      float hi_low, hi_high;
      halves_to_floats(hi, hi_low, hi_high);
      words[step * Halves::kStep] = hi;
      words[step * Halves::kStep + 16] =
          floats_to_halves((low - hi_low) * 2048.f, (high - hi_high) * 2048.f);
      if (lane == 0) to.inverses[step] = inverse;
    }
  }
}

// Four groups as quantise_group makes them: eight lanes a group, four columns a lane, because a
// group a warp waits for its reductions. Those past the end are not stored.
constexpr int kQuantLanes = kQuantGroup / 4;
SPK_DEVICE void quantise_turn(const float4& v, int first, int groups, signed char* codes,
                              unsigned* words) {
  constexpr int kLanes = kQuantLanes;
  constexpr unsigned kFinite = 0x7f800000u, kSmallest = 27u << 23;
  const int lane = thread_now() % kWarp;
  const float of[4] = {v.x, v.y, v.z, v.w};
  unsigned largest = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) largest = max_of(largest, __float_as_uint(of[k]) & 0x7fffffffu);
#pragma unroll
  for (int d = 1; d < kLanes; d *= 2)
    largest = max_of(largest, __shfl_xor_sync(kAllLanes, largest, d));
  const bool finite = largest < kFinite, some = finite && largest >= kSmallest;
  const float top = __uint_as_float(some ? largest : 0x3f800000u);
  const float inverse = some ? 127.f / top : 0.f;
  unsigned packed = 0;
  int sum = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const unsigned code = __float_as_uint((finite ? of[k] : 0.f) * inverse + kRound) & 255u;
    packed |= code << (8 * k);
    sum += static_cast<signed char>(code);
  }
#pragma unroll
  for (int d = 1; d < kLanes; d *= 2) sum += __shfl_xor_sync(kAllLanes, sum, d);
  const int group = first + lane / kLanes;
  if (group < groups) {
    reinterpret_cast<unsigned*>(codes)[group * kLanes + lane % kLanes] = packed;
    if (lane % kLanes == 0) {
      const float scale = some ? top / 127.f * .5f : 0.f;
      words[2 * group] = finite ? __float_as_uint(scale) : 0x7fc00000u;
      words[2 * group + 1] = static_cast<unsigned>(kRoundBits + kByteOffset * sum);
    }
  }
}
// Groups of x, one behind the other and aligned to 16 bytes.
SPK_CALLED void quantise_groups(const float* x, int groups, signed char* codes, unsigned* words,
                                bool awaits, int first_warp, int warps) {
  constexpr int kLanes = kQuantLanes, kAtOnce = kWarp / kLanes;
  const int lane = thread_now() % kWarp, warp = thread_now() / kWarp - first_warp;
  if (warp < 0 || warp >= warps) return;
  constexpr int kHeld = 4;  // turns whose loads go together
#pragma unroll 1
  for (int first = warp * kAtOnce; first < groups; first += warps * kAtOnce * kHeld) {
    float4 held[kHeld];
    look_until([&] {
      unsigned missing = 0;
#pragma unroll
      for (int k = 0; k < kHeld; ++k) {
        const int group = min(first + k * warps * kAtOnce + lane / kLanes, groups - 1);
        held[k] = look(reinterpret_cast<const float4*>(x) + group * kLanes + lane % kLanes);
        missing |= is_there(held[k]) ? 0u : 1u;
      }
      return missing == 0 || !awaits;
    });
    // One copy of what follows: the turn's numbers are selected.
#pragma unroll 1
    for (int k = 0; k < kHeld && first + k * warps * kAtOnce < groups; ++k) {
      const float4 v = k == 0 ? held[0] : k == 1 ? held[1] : k == 2 ? held[2] : held[3];
      quantise_turn(v, first + k * warps * kAtOnce, groups, codes, words);
    }
  }
}

// row = w * norm(x), as rms_norm has it: squares strided over kThreads, butterfly, warps in order.
// The columns are a multiple of kThreads. w lies in shared memory; x is awaited, or from launches
// before. Ends with a barrier.
SPK_DEVICE void norm_row(const NormArgs& a, const float* x, bool awaits, const float* w) {
  SPK_SHARED(float, parts, kWarps);
  float* const row = resident_memory().row;
  const int t = thread_now(), cols = a.cols;
  // Set whatever happens: of an array that a branch leaves as it was, the registers are taken for
  // the whole kernel.
  float value[kFrontHeld] = {};
  if (t < kThreads) {
    // Past the end the last ones again: no load stands behind a branch or a test.
    look_until([&] {
#pragma unroll
      for (int j = 0; j < kFrontHeld; ++j)
        value[j] = look(x + t + min(j * kThreads, cols - kThreads));
      unsigned missing = 0;
#pragma unroll
      for (int j = 0; j < kFrontHeld; ++j) missing |= is_there(value[j]) ? 0u : 1u;
      return missing == 0 || !awaits;
    });
#pragma unroll
    for (int j = 0; j < kFrontHeld; ++j)
      if (j * kThreads >= cols) value[j] = 0.f;
    float squares = 0.f;
#pragma unroll
    for (int j = 0; j < kFrontHeld; ++j) squares = fmaf(value[j], value[j], squares);
    squares = warp_sum(squares);
    if (t % kWarp == 0) parts[t / kWarp] = squares;
  }
  __syncthreads();
  if (t < kThreads) {
    float total = parts[0];
#pragma unroll
    for (int k = 1; k < kWarps; ++k) total += parts[k];
    const float scale = 1.f / sqrtf(total / static_cast<float>(cols) + a.eps);
#pragma unroll
    for (int j = 0; j < kFrontHeld; ++j) {
      const int c = t + j * kThreads;
      if (j * kThreads < cols) row[c] = w[c] * (value[j] * scale);
    }
  }
  __syncthreads();
}

}  // namespace spk::gpu
