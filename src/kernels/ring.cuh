// What blocks that stay need: weights that arrive in shared memory by bulk copies, and a meeting of
// all blocks of a launch.
//
// Bulk copies (sm_90 and later) need no thread while they are under way; a barrier in shared memory
// counts their bytes. Tests run them as plain copies (emulator.h).
#pragma once

#include "kernels/common.cuh"

namespace spk::gpu {

// Zero, which the compiler does not know: what is added to it is worked out where it is used, as
// with thread_now().
SPK_DEVICE int zero_now() {
  int zero = 0;
#if defined(__CUDA_ARCH__)
  asm volatile("mov.u32 %0, 0;" : "=r"(zero));
#endif
  return zero;
}

// ---- bulk copies ----
// One barrier: its phase ends when what was announced is there. `at` is shared memory.
#if defined(__CUDA_ARCH__)
using Arrival = unsigned long long;
SPK_DEVICE unsigned shared_address(const void* at) {
  unsigned address;
  asm("{ .reg .u64 a; cvta.to.shared.u64 a, %1; cvt.u32.u64 %0, a; }" : "=r"(address) : "l"(at));
  return address;
}
#else
using Arrival = EmulatedArrival;
#endif
SPK_DEVICE void start_arrivals([[maybe_unused]] Arrival* at, [[maybe_unused]] int count) {
#if !defined(__CUDA_ARCH__)
  for (int i = threadIdx.x; i < count; i += blockDim.x) at[i] = {};
#elif __CUDA_ARCH__ >= 900
  for (int i = threadIdx.x; i < count; i += blockDim.x)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(at + i)) : "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
// By one thread, before the copies: how many bytes are to come.
SPK_DEVICE void announce([[maybe_unused]] Arrival* at, [[maybe_unused]] int bytes) {
#if !defined(__CUDA_ARCH__)
  emulated_announce(*at, bytes);
#elif __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(at)),
               "r"(bytes)
               : "memory");
#endif
}
// Addresses and bytes: multiples of 16.
SPK_DEVICE void bring([[maybe_unused]] void* to, [[maybe_unused]] const void* from,
                      [[maybe_unused]] int bytes, [[maybe_unused]] Arrival* at) {
#if !defined(__CUDA_ARCH__)
  emulated_copy(to, from, bytes, *at);
#elif __CUDA_ARCH__ >= 900
  asm volatile(
      "{ .reg .u64 g; cvta.to.global.u64 g, %1; "
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [g], %2, [%3]; }" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(at))
      : "memory");
#endif
}
// `turn`: how often the barrier has been waited for before, odd or even.
SPK_DEVICE void wait_for([[maybe_unused]] Arrival* at, [[maybe_unused]] int turn) {
#if !defined(__CUDA_ARCH__)
  emulated_wait(*at, turn);
#elif __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n.reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(shared_address(at)),
      "r"(turn & 1)
      : "memory");
#endif
}

// Small copies that a thread waits for itself: bulk copies of a few dozen bytes would cost as much
// time as large ones.
SPK_DEVICE void bring_number(float* to, const float* from) {
#if defined(__CUDA_ARCH__)
  asm volatile(
      "{ .reg .u64 g; cvta.to.global.u64 g, %1; cp.async.ca.shared.global [%0], [g], 4; }" ::"r"(
          shared_address(to)),
      "l"(from)
      : "memory");
#else
  *to = *from;
#endif
}
// Sixteen bytes, aligned so.
SPK_DEVICE void bring_vector(void* to, const void* from) {
#if defined(__CUDA_ARCH__)
  asm volatile(
      "{ .reg .u64 g; cvta.to.global.u64 g, %1; cp.async.cg.shared.global [%0], [g], 16; }" ::"r"(
          shared_address(to)),
      "l"(from)
      : "memory");
#else
  *static_cast<uint4*>(to) = *static_cast<const uint4*>(from);
#endif
}
SPK_DEVICE void await_own_copies() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// By who has written shared memory otherwise, in front of the barrier behind which bulk copies come
// there.
SPK_DEVICE void make_room_for_bulk_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// ---- a part of a block ----
// A barrier of kThreads threads, which are of one team; barrier 0 is the block's.
SPK_DEVICE void sync_team(int team) {
#if defined(__CUDA_ARCH__)
  asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(kThreads) : "memory");
#else
  emulated_sync_team(team, kThreads);
#endif
}

// ---- all blocks ----
// Every block arrives at every meeting; `arrived` counts them all, and the last block to leave a
// launch sets it back. All blocks must be running: at most one a multiprocessor is launched. By one
// thread of a block, always the same.
struct Meeting {
  int* arrived;
  int target = 0;

  // What the block's threads did in front of a barrier of theirs that this thread has passed is
  // done for whoever waits.
  SPK_DEVICE void arrive() {
    target += static_cast<int>(gridDim.x);
#if defined(__CUDA_ARCH__)
    asm volatile(
        "{ .reg .u64 g; cvta.to.global.u64 g, %0; red.release.gpu.global.add.s32 [g], 1; }" ::"l"(
            arrived)
        : "memory");
#else
    atomicAdd(arrived, 1);
#endif
  }
  SPK_DEVICE void wait() const {
#if defined(__CUDA_ARCH__)
    int there;
    do {
      asm volatile("{ .reg .u64 g; cvta.to.global.u64 g, %1; ld.acquire.gpu.global.s32 %0, [g]; }"
                   : "=r"(there)
                   : "l"(arrived)
                   : "memory");
    } while (there < target);
#else
    while (*arrived < target) emulated_wait_for_others();
#endif
  }
  // Behind a barrier of the block: whether it is the last one.
  SPK_DEVICE bool leave() const {
    if (atomicAdd(arrived, 1) != target + static_cast<int>(gridDim.x) - 1) return false;
    *arrived = 0;
    return true;
  }
};

}  // namespace spk::gpu
