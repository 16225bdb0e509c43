// Which instruction set the inner loops use: asked of the processor once, at start.
#include "backend/cpu/kernels.h"
#include "base/error.h"

#include <array>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace spk::cpu {
namespace {

struct Isa {
  std::string_view name;
  const Kernels* (*table)();
  std::string (*missing)();  // features that this processor lacks, "" when it can run the table
};

std::string nothing() { return ""; }

#if defined(__x86_64__)
// __builtin_cpu_supports also asks whether the operating system saves the wide registers. Clang
// 14's does not know F16C.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
std::string missing_avx2() {
  std::string lacks;
  if (!__builtin_cpu_supports("avx2")) lacks += " avx2";
  if (!__builtin_cpu_supports("fma")) lacks += " fma";
  if (!has_f16c()) lacks += " f16c";
  return lacks;
}
std::string missing_avx512() {
  std::string lacks = missing_avx2();
  if (!__builtin_cpu_supports("avx512f")) lacks += " avx512f";
  if (!__builtin_cpu_supports("avx512bw")) lacks += " avx512bw";
  if (!__builtin_cpu_supports("avx512dq")) lacks += " avx512dq";
  if (!__builtin_cpu_supports("avx512vl")) lacks += " avx512vl";
  return lacks;
}
std::string missing_neon() { return " neon (an Arm instruction set)"; }
#elif defined(__aarch64__)
std::string missing_avx2() { return " avx2 (an x86-64 instruction set)"; }
std::string missing_avx512() { return " avx512 (an x86-64 instruction set)"; }
std::string missing_neon() { return ""; }  // part of every 64-bit Arm
#else
std::string missing_avx2() { return " avx2"; }
std::string missing_avx512() { return " avx512"; }
std::string missing_neon() { return " neon"; }
#endif

// Best first.
constexpr std::array<Isa, 4> kIsas = {{{"avx512", kernels_avx512, missing_avx512},
                                       {"avx2", kernels_avx2, missing_avx2},
                                       {"neon", kernels_neon, missing_neon},
                                       {"generic", kernels_generic, nothing}}};

}  // namespace

const Kernels& select_kernels(const std::string& isa) {
  for (const Isa& candidate : kIsas) {
    if (!isa.empty() && isa != candidate.name) continue;
    const std::string lacks = candidate.missing();
    if (lacks.empty() && candidate.table()) return *candidate.table();
    if (!isa.empty())
      fail_usage("instruction set '", isa, "': this processor lacks",
                 lacks.empty() ? " it (not in this build)" : lacks);
  }
  fail_usage("unknown instruction set '", isa, "': use avx512, avx2, neon or generic");
}

}  // namespace spk::cpu
