// Numbers that one block of a launch writes and others wait for, without a meeting of blocks: what
// has not been written yet holds a bit pattern that no number has, and whoever needs a number looks
// at it until it is another. So there is no fence in front of a meeting, no look at its counter,
// and no load behind it: a number is there when it is read. (Lamport's way of the all-reduce
// kernels of TensorRT-LLM, whose pattern is a negative zero.)
//
// A number stands for itself, and for the loads of what it was made of, which have returned: no
// other store of its writer may be taken for done. Memory is made absent again by who knows that
// everyone has read it.
#pragma once

#include "kernels/common.cuh"

namespace spk::gpu {

SPK_DEVICE bool is_there(float x) { return __float_as_uint(x) != kAbsent; }

SPK_DEVICE void post(float* at, float x) {
  const float number = is_there(x) ? x : __uint_as_float(0x7fffffffu);
#if defined(__CUDA_ARCH__)
  asm volatile(
      "{ .reg .u64 g; cvta.to.global.u64 g, %0; st.relaxed.gpu.global.f32 [g], %1; }" ::"l"(at),
      "f"(number));
#else
  *at = number;
#endif
}

// What is at hand now. From the L2: another block's store never reaches this one's L1. Shared
// memory can be looked at too.
SPK_DEVICE float look(const float* at) {
#if defined(__CUDA_ARCH__)
  float x;
  asm volatile("ld.relaxed.gpu.f32 %0, [%1];" : "=f"(x) : "l"(at));
  return x;
#else
  return *at;
#endif
}
SPK_DEVICE float2 look(const float2* at) {
#if defined(__CUDA_ARCH__)
  float2 x;
  asm volatile("ld.relaxed.gpu.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "l"(at));
  return x;
#else
  return *at;
#endif
}
SPK_DEVICE float4 look(const float4* at) {
#if defined(__CUDA_ARCH__)
  float4 x;
  asm volatile("ld.relaxed.gpu.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "l"(at));
  return x;
#else
  return *at;
#endif
}
SPK_DEVICE bool is_there(const float2& x) { return is_there(x.x) && is_there(x.y); }
SPK_DEVICE bool is_there(const float4& x) {
  return is_there(x.x) && is_there(x.y) && is_there(x.z) && is_there(x.w);
}

// Calls looks(), which looks at all that a thread needs, until it says that everything is there.
template <typename Looks>
SPK_DEVICE void look_until(Looks looks) {
  while (!looks()) {
#if !defined(__CUDA_ARCH__)
    emulated_wait_for_others();
#endif
  }
}
SPK_DEVICE float awaited(const float* at) {
  float x;
  look_until([&] {
    x = look(at);
    return is_there(x);
  });
  return x;
}

}  // namespace spk::gpu
