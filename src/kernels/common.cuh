// Primitives of all kernels: scalar formats, sums over a warp or a block in one fixed order.
//
// No toolkit header, no host header: built-in types and functions of the compiler only. Sums are
// the same bits whatever else runs: a fixed tree over lanes, then warps in order; products and sums
// are one rounding only where fmaf says so (the compiler may not contract). Every kernel is a
// template, so that a program compiles only the one that it names.
#pragma once

#include "kernels/resident_args.cuh"

// A shared array of a block. A macro, because tests run these sources on the host, where it comes
// from an arena (tests/support/emulator.h).
#ifndef SPK_SHARED
#define SPK_SHARED(type, name, count) __shared__ __align__(16) type name[count]
#endif
// The rest of a block's shared memory: as many bytes as the launch says.
#ifndef SPK_DYNAMIC_SHARED
#define SPK_DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]
#endif
#define SPK_DEVICE __device__ __forceinline__
#define SPK_CALLED __device__ __noinline__
// For kernels that need many registers: without the promise of one block the compiler spills some
// to make room for a third.
#define SPK_MANY_REGISTERS __launch_bounds__(kThreads, 1)

namespace spk::gpu {

// ---- programmatic dependent launch ----
// A kernel's blocks may begin while those of the kernel before still run, which hides its start.
// Before wait_for_previous() nothing may be written, and nothing read that any kernel of a step
// writes: weights only. Every block of every kernel calls it, because its end is taken to mean that
// all earlier kernels have ended.
SPK_DEVICE void let_next_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
SPK_DEVICE void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
SPK_DEVICE void start_after_previous() {
  let_next_start();
  wait_for_previous();
}
// Has a line of memory brought into the L2. Reads nothing, so it may stand before
// wait_for_previous(), whatever lies there.
constexpr int kLineBytes = 128;
SPK_DEVICE void ask_for_line([[maybe_unused]] const void* at) {
#if defined(__CUDA_ARCH__)
  asm volatile("{ .reg .u64 g; cvta.to.global.u64 g, %0; prefetch.global.L2 [g]; }" ::"l"(at));
#endif
}
// The thread's number, asked for anew: what a long kernel derives from it is worked out where it is
// used, instead of once for all phases and kept in registers that there are not.
SPK_DEVICE int thread_now() {
#if defined(__CUDA_ARCH__)
  int t;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
  return t;
#else
  return static_cast<int>(threadIdx.x);
#endif
}

constexpr unsigned kAllLanes = 0xffffffffu;

// Butterfly: every lane ends with the same bits.
SPK_DEVICE float warp_sum(float x) {
#pragma unroll
  for (int d = kWarp / 2; d > 0; d /= 2) x += __shfl_xor_sync(kAllLanes, x, d);
  return x;
}
SPK_DEVICE float warp_max(float x) {
#pragma unroll
  for (int d = kWarp / 2; d > 0; d /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, x, d);
    x = other > x ? other : x;
  }
  return x;
}

// Largest and smallest of a warp's words.
SPK_DEVICE unsigned warp_largest(unsigned x) {
#if defined(__CUDA_ARCH__)
  unsigned y;
  asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
  return y;
#else
  for (int d = kWarp / 2; d > 0; d /= 2) {
    const unsigned other = __shfl_xor_sync(kAllLanes, x, d);
    x = other > x ? other : x;
  }
  return x;
#endif
}
SPK_DEVICE unsigned max_of(unsigned a, unsigned b) { return a > b ? a : b; }
SPK_DEVICE unsigned warp_smallest(unsigned x) { return ~warp_largest(~x); }
// Floats as words of the same order (no NaN).
SPK_DEVICE unsigned order_of(float x) {
  const unsigned bits = __float_as_uint(x + 0.f);  // -0 and 0 are equal
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// Sum over the kThreads of a block; all get it. Ends with a barrier, so that it can be called
// again.
SPK_DEVICE float block_sum(float x) {
  SPK_SHARED(float, parts, kWarps);
  x = warp_sum(x);
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = x;
  __syncthreads();
  float sum = parts[0];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) sum += parts[w];
  __syncthreads();
  return sum;
}

SPK_DEVICE float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }
SPK_DEVICE float silu(float x) { return x / (1.f + expf(-x)); }

// Comparisons that let a NaN through: fminf would hide it.
SPK_DEVICE float at_most(float x, float limit) { return x > limit ? limit : x; }
SPK_DEVICE float at_least(float x, float limit) { return x < limit ? limit : x; }
SPK_DEVICE float activate(float gate, float up, float limit) {
  const float a = silu(gate);
  if (limit > 0.f) return at_most(a, limit) * at_least(at_most(up, limit), -limit);
  return a * up;
}

// ---- scalar formats ----
SPK_DEVICE float bf16_to_float(unsigned bits) { return __uint_as_float(bits << 16); }
// E4M3's exponent and mantissa put into a float's, 2^120 too small (subnormals included): exact.
SPK_DEVICE float e4m3_to_float(unsigned code) {
  return __uint_as_float((code & 0x7fu) << 20 | (code & 0x80u) << 24) * 0x1p120f;
}
// The same with E2M1's two and one bits: 2^126 too small.
SPK_DEVICE float e2m1_to_float(unsigned code) {
  return __uint_as_float((code & 7u) << 22 | (code & 8u) << 28) * 0x1p126f;
}
SPK_DEVICE float e8m0_to_float(unsigned code) {
  return __uint_as_float(code == 0 ? 0x00400000u : code << 23);
}

SPK_DEVICE const float* row_of(const View& v, i64 row) { return v.data + row * v.stride; }
SPK_DEVICE float* row_at(const View& v, i64 row) { return v.data + row * v.stride; }
SPK_DEVICE int* row_at(const IntView& v, i64 row) { return v.data + row * v.stride; }
SPK_DEVICE const int* row_of(const IntView& v, i64 row) { return v.data + row * v.stride; }

}  // namespace spk::gpu
