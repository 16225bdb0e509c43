#include "backend/cpu/packed.h"

#include "backend/cpu/bf16.h"
#include "backend/layout.h"
#include "base/error.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace spk::cpu {
namespace {

static_assert(std::endian::native == std::endian::little, "nibbles are moved as 32-bit words");

#if defined(__x86_64__)
bool runs_avx512vnni() {
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}
bool runs_avx512bf16() {
  return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi");
}
// Leaf 7.1, EAX bit 4; no compiler of ours knows its name. The registers are AVX2's, whose saving
// by the system __builtin_cpu_supports has asked for.
bool runs_avxvnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx2") && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 &&
         (a >> 4 & 1) != 0;
}
bool runs_neondot() { return false; }
#elif defined(__aarch64__) && defined(__linux__)
bool runs_avx512vnni() { return false; }
bool runs_avx512bf16() { return false; }
bool runs_avxvnni() { return false; }
bool runs_neondot() { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
#else
bool runs_avx512vnni() { return false; }
bool runs_avx512bf16() { return false; }
bool runs_avxvnni() { return false; }
bool runs_neondot() { return false; }
#endif
bool always() { return true; }

struct Candidate {
  std::string_view loops;  // the table of inner loops that it goes with
  const PackedKernels* (*table)();
  bool (*runs)();
};
// Best first.
constexpr std::array<Candidate, 8> kCandidates = {{{"avx512", packed_avx512vnni, runs_avx512vnni},
                                                   {"avx512", packed_avxvnni, runs_avxvnni},
                                                   {"avx512", packed_avx2, always},
                                                   {"avx2", packed_avxvnni, runs_avxvnni},
                                                   {"avx2", packed_avx2, always},
                                                   {"neon", packed_neondot, runs_neondot},
                                                   {"neon", packed_neon, always},
                                                   {"generic", packed_generic, always}}};

// Nibbles 0..3 of x, each in a byte of its own.
uint32_t spread(uint32_t x) {
  x = (x | x << 8) & 0x00ff00ffu;
  return (x | x << 4) & 0x0f0f0f0fu;
}

}  // namespace

const PackedKernels& select_packed(std::string_view isa) {
  for (const Candidate& c : kCandidates)
    if (c.loops == isa && c.table() && c.runs()) return *c.table();
  return *packed_generic();
}

const Bf16Kernels* select_bf16(std::string_view isa) {
  return isa == "avx512" && runs_avx512bf16() ? bf16_avx512() : nullptr;
}

const PackedKernel& packed_kernel(const PackedKernels& table, int64_t cols, int64_t rows) {
  for (const PackedKernel& k : table.kernels)
    if (k.cols == cols && k.rows == rows) return k;
  return table.kernels.back();
}

void tile_codes(const uint8_t* codes, int64_t rows, int64_t cols, uint8_t* tiles) {
  SPK_CHECK(can_tile(rows, cols));
  for (int64_t tile = 0; tile < rows; tile += kLanes)
    for (int64_t number = 0; number < cols; number += 4, tiles += 4 * kLanes)
      for (int64_t row = 0; row < kLanes; ++row)
        for (int64_t i = 0; i < 4; ++i) {
          const int64_t at = (number + i) % kBf16Columns;  // of a rounded block
          const int64_t column =
              number / kBf16Columns * kBf16Columns + 16 * (at % 32 / 8) + 8 * (at / 32) + at % 8;
          tiles[16 * (row / 4) + 2 * (row % 4) + 8 * (i / 2) + i % 2] =
              codes[(tile + row) * cols + column];
        }
}

void pack_tiles(const HostTensor& tensor, int64_t first, int64_t last, uint8_t* codes,
                uint8_t* scales) {
  SPK_CHECK(can_pack(tensor.format, tensor.rows, tensor.cols));
  const int64_t groups = tensor.cols / kGroup;
  for (int64_t tile = first; tile < last; ++tile)
    for (int64_t r = 0; r < kTileRows; ++r) {
      const int64_t row = tile * kTileRows + r;
      const std::byte* from = tensor.data + row * tensor.cols / 2;
      const std::byte* from_scales = tensor.scales + row * groups;
      uint8_t* to = codes + tile * groups * kTileGroupBytes + 4 * r;
      uint8_t* to_scales = scales + tile * groups * kTileRows + r;
      for (int64_t g = 0; g < groups; ++g) {
        to_scales[g * kTileRows] = static_cast<uint8_t>(from_scales[g]);
        for (int64_t c = 0; c < 4; ++c) {
          uint32_t word;
          std::memcpy(&word, from + g * kGroup / 2 + 4 * c, sizeof word);
          const uint32_t packed = spread(word & 0xffff) | spread(word >> 16) << 4;
          std::memcpy(to + g * kTileGroupBytes + c * 4 * kTileRows, &packed, sizeof packed);
        }
      }
    }
}

}  // namespace spk::cpu
