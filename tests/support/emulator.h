// Runs the kernels' own sources on the host, so that each of them meets the reference before a GPU
// does. Included in front of src/kernels/*.cuh by one file (emulated_device.cc).
//
// A thread of a block is a fiber: a stack of its own, switched by a few instructions. It runs until
// it waits for its warp (shuffles, __syncwarp) or its block (__syncthreads); blocks run one after
// the other, and beside each other once one waits for what another does. What is stricter than on a
// device: shared memory starts as NaN, a barrier that not all threads reach is an error, blocks
// that all wait for each other are one, and the order of fibers and blocks can be turned around: a
// result that depends on it is a race (two backends with the two orders must agree bit for bit).
// What is laxer: memory is one, and every thread sees a store at once.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace spk::emu {

struct Dim {
  unsigned x = 1, y = 1, z = 1;
  unsigned shared = 0;  // of a grid: bytes of dynamic memory of a block
};

// Of the running fiber.
struct Context {
  Dim thread, block, block_size, grid;
};
extern Context* current;

// Runs `body` once for every thread of every block. `backward`: the last block and thread first.
void run_grid(const Dim& grid, unsigned threads, bool backward, const std::function<void()>& body);

void sync_block();
// Of `threads` threads that name the same team.
void sync_team(int team, int threads);
// Leaves `value` for the other lanes and waits for theirs: 32 values, valid until the next call.
const uint64_t* exchange(uint64_t value);
// A block's own memory for one declaration in the source, from a 48 KiB arena.
void* shared_memory(const void* declaration, size_t bytes);

// What the launch asks for beside that: up to 227 KiB.
unsigned char* dynamic_shared_memory();
// Addresses and bytes of a bulk copy: multiples of 16, into dynamic memory.
void check_copy(const void* to, const void* from, int bytes);
void require(bool good, const char* otherwise);
// Called by who looked in vain for what another thread does, before it looks again.
void look_again();

template <typename T>
T shuffle(T value, int lane) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  const uint64_t got = exchange(bits)[lane & 31];
  std::memcpy(&value, &got, sizeof value);
  return value;
}
inline int lane() { return static_cast<int>(current->thread.x % 32); }

}  // namespace spk::emu

// ---- the dialect ----
#define __global__
#define __device__
#define __forceinline__ inline
#define __noinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define threadIdx (::spk::emu::current->thread)
#define blockIdx (::spk::emu::current->block)
#define blockDim (::spk::emu::current->block_size)
#define gridDim (::spk::emu::current->grid)
#define SPK_SHARED(type, name, count)       \
  static const char name##_declaration = 0; \
  type* const name =                        \
      static_cast<type*>(::spk::emu::shared_memory(&name##_declaration, sizeof(type) * (count)))

#define SPK_DYNAMIC_SHARED(name) unsigned char* const name = ::spk::emu::dynamic_shared_memory()

namespace spk::gpu {

struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(8) uint2 {
  unsigned x, y;
};

inline void __syncthreads() { emu::sync_block(); }
inline void emulated_sync_team(int team, int threads) { emu::sync_team(team, threads); }
inline void __syncwarp() { emu::exchange(0); }
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return emu::shuffle(value, emu::lane() ^ mask);
}
template <typename T>
T __shfl_sync(unsigned, T value, int lane) {
  return emu::shuffle(value, lane);
}
// Threads are fibers of one thread.
inline void __threadfence() {}
inline int atomicAdd(int* at, int more) {
  const int before = *at;
  *at += more;
  return before;
}
// A barrier of bulk copies, which are there at once; whoever waits lets others run until they are
// asked for.
struct EmulatedArrival {
  int missing;  // announced bytes
  short announced, phase;
};
inline void emulated_arrive(EmulatedArrival& at) {
  if (at.announced == 0 || at.missing != 0) return;
  at.announced = 0;
  ++at.phase;
}
inline void emulated_announce(EmulatedArrival& at, int bytes) {
  emu::require(at.announced == 0, "bytes announced twice in one phase");
  at.announced = 1;
  at.missing += bytes;
  emulated_arrive(at);
}
inline void emulated_copy(void* to, const void* from, int bytes, EmulatedArrival& at) {
  emu::check_copy(to, from, bytes);
  std::memcpy(to, from, static_cast<size_t>(bytes));
  at.missing -= bytes;
  emulated_arrive(at);
}
inline void emulated_wait(const EmulatedArrival& at, int turn) {
  while ((at.phase & 1) == (turn & 1)) emu::look_again();
}
inline long long emulated_clock() {
  static long long now = 0;
  return now += 1000;
}
inline void emulated_wait_for_others() { emu::look_again(); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }

using ::copysignf;
using ::expf;
using ::fabsf;
using ::fmaf;
using ::rintf;
using ::sqrtf;
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline double exp(double x) { return std::exp(x); }
inline double log(double x) { return std::log(x); }
inline double cospi(double x) { return std::cos(M_PI * std::fmod(x, 2.0)); }
inline double sinpi(double x) { return std::sin(M_PI * std::fmod(x, 2.0)); }

}  // namespace spk::gpu
