// MXFP4 experts with int8 activations of up to eight rows, weights by bulk copies into shared
// memory: what is on its way is bounded by that and not by registers. Two launches that stream from
// their first to their last byte: copied_up.cuh, copied_down.cuh; here is what both need. Products
// and sums as in packed.cuh and moe.cuh, bit for bit.
//
// Two blocks of 256 threads a multiprocessor stay and take pieces of equal size in turns. A warp
// asks for its own piece, and for the next one as soon as it is done with it.
#pragma once

#include "kernels/packed.cuh"
#include "kernels/ring.cuh"

namespace spk::gpu {

// Where there are no bulk copies nobody launches these kernels; they are compiled all the same.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int kRegistersOf = 1;
#else
constexpr int kRegistersOf = kCopiedBlocks;
#endif
static_assert(kCopiedQuad == kWarpRows && kCopiedDownRows == kTileGroup, "");
static_assert(kCopiedQuad * kWarps == kPackedUnits, "");

// What lies in memory that no launch writes that may still run: past the L1, which may be older.
SPK_DEVICE int peek(const int* at) {
#if defined(__CUDA_ARCH__)
  int x;
  asm volatile("{ .reg .u64 g; cvta.to.global.u64 g, %1; ld.relaxed.gpu.global.s32 %0, [g]; }"
               : "=r"(x)
               : "l"(at)
               : "memory");
  return x;
#else
  return *at;
#endif
}
// In front of a barrier of the block behind which copies come to where its threads have written.
SPK_DEVICE void make_room_for_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
template <int R>
SPK_DEVICE TileShared<R> tile_memory(unsigned char* at) {
  using S = TileShared<R>;
  static_assert((S::kStageWords + S::kInverses + S::kParts) * 4 <= kCopiedTile, "");
  unsigned* const words = reinterpret_cast<unsigned*>(at);
  float* const inverses = reinterpret_cast<float*>(words + S::kStageWords);
  return {words, inverses, inverses + S::kInverses};
}

// ---- products ----
// A group of a row of x. In memory the first halves of a row's groups lie side by side, then the
// second halves: lanes read sixteen bytes each without a gap.
struct GroupOfX {
  uint4 head, tail;
  uint2 start;  // its scale, and where its sum starts
};
SPK_DEVICE GroupOfX group_of(const unsigned char* halves, const unsigned char* words, int groups,
                             int g) {
  const uint4* const half = reinterpret_cast<const uint4*>(halves);
  return {half[g], half[groups + g], reinterpret_cast<const uint2*>(words)[g]};
}

// As kPlusLow and so on, for codes that meet one row only: bytes 141 + m (m - 115) where a code is
// not negative, 141 - m where it is, and ones (-1) where the other table counts. So no instruction
// joins the two, both meet the row, and their sum is 116 too small again.
constexpr unsigned kAloneLow = 0x908f8e8du, kAloneHigh = 0x99959391u;
constexpr unsigned kNegatedLow = 0x8a8b8c8du, kNegatedHigh = 0x81858789u;
// Tables that stay in registers, because they depend on an argument (`zero`) and the thread: what
// all threads have in common would be moved there anew for every look-up.
struct Tables {
  unsigned alone, negated;
  SPK_DEVICE explicit Tables(int zero)
      : alone(kAloneLow + static_cast<unsigned>(zero) * threadIdx.x),
        negated(kNegatedLow + static_cast<unsigned>(zero) * threadIdx.x) {}
};

SPK_DEVICE float exact_part(int total, const GroupOfX& x) {
  return (__uint_as_float(static_cast<unsigned>(total)) - kRound) * __uint_as_float(x.start.x);
}
SPK_DEVICE float group_alone(const Tables& low, const uint4& codes, const GroupOfX& x) {
  int total = static_cast<int>(x.start.y);
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const unsigned code = word_of(codes, w), flipped = code ^ 0x88888888u;
    const uint4& q = w < 2 ? x.head : x.tail;
    const unsigned first = word_of(q, w % 2 * 2), second = word_of(q, w % 2 * 2 + 1);
    total = dot4(pick_bytes(low.alone, kAloneHigh, code), first, total);
    total = dot4(pick_bytes(low.negated, kNegatedHigh, flipped), first, total);
    total = dot4(pick_bytes(low.alone, kAloneHigh, code >> 16), second, total);
    total = dot4(pick_bytes(low.negated, kNegatedHigh, flipped >> 16), second, total);
  }
  return exact_part(total, x);
}
SPK_DEVICE void bytes_of(const uint4& codes, unsigned (&bytes)[8]) {
#pragma unroll
  for (int w = 0; w < 4; ++w) codes_to_bytes(word_of(codes, w), bytes[2 * w], bytes[2 * w + 1]);
}
SPK_DEVICE float group_of_bytes(const unsigned (&bytes)[8], const GroupOfX& x) {
  int total = static_cast<int>(x.start.y);
#pragma unroll
  for (int w = 0; w < 4; ++w) total = dot4(bytes[w], word_of(x.head, w), total);
#pragma unroll
  for (int w = 0; w < 4; ++w) total = dot4(bytes[4 + w], word_of(x.tail, w), total);
  return exact_part(total, x);
}
SPK_DEVICE float sum_of_lanes(float x) {
#pragma unroll
  for (int d = kRowLanes / 2; d > 0; d /= 2) x += __shfl_xor_sync(kAllLanes, x, d);
  return x;
}

}  // namespace spk::gpu
