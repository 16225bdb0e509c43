// The products of packed experts (packed.h), written once over the few operations that an
// instruction set brings in SPK_PACKED::Lanes; each packed_*.cc names its own.
//
// Like the other inner loops they stay inside that namespace and call no inline function from
// elsewhere (simd.h says why). Lanes holds:
//   kLanes            weight rows in a register (16, 8, 4)
//   kMostRows         rows of x whose sums fit the registers
//   Codes             4 columns of kLanes rows, one byte each, twice (low and high nibbles)
//   Sum               an integer sum per row: start(offset), add(bytes, four activations), fold()
//                     after 4 adds, get() as floats
//   F                 kLanes floats: zero, set1, mul, fma, store, e8m0 (2^(code - 127))
#pragma once

#include "backend/cpu/packed.h"
#include "backend/cpu/packed_lanes_avx2.h"
#include "backend/cpu/packed_lanes_avx512.h"
#include "backend/cpu/packed_lanes_generic.h"
#include "backend/cpu/packed_lanes_neon.h"

#ifndef SPK_PACKED
#define SPK_PACKED packed_portable
#endif

namespace spk::cpu::SPK_PACKED {

// How far ahead of the codes in use the memory is asked: about 2 us of one core's share of the
// bandwidth would be 40 KiB; the hardware's own streams cover most of that and stop at page borders
// only.
inline constexpr int64_t kAheadBytes = 2048;

// One register's rows of a tile times N rows of x. K: columns, 0: those of the matrix.
template <int64_t K, int N>
inline void tile_part(const uint8_t* codes, const uint8_t* scales, int64_t groups,
                      const QuantRow* x, float* const* y, int64_t at, int64_t ahead) {
  using F = Lanes::F;
  if constexpr (K != 0) groups = K / kGroup;
  F total[N];
  for (int n = 0; n < N; ++n) total[n] = Lanes::zero();
  const int8_t* q[N];
  for (int n = 0; n < N; ++n) q[n] = x[n].q;
  for (int64_t g = 0; g < groups; ++g) {
    typename Lanes::Sum sum[N];
    for (int n = 0; n < N; ++n) sum[n].start(x[n].offset + g);
    for (int c = 0; c < 4; ++c) {
      const uint8_t* p = codes + g * kTileGroupBytes + c * 4 * kTileRows;
      __builtin_prefetch(p + ahead);
      const typename Lanes::Codes w(p);
      for (int n = 0; n < N; ++n) {
        sum[n].add(w.low, q[n] + g * kGroup + 8 * c);
        sum[n].add(w.high, q[n] + g * kGroup + 8 * c + 4);
      }
      if (c % 2 == 1)
        for (int n = 0; n < N; ++n) sum[n].fold();
    }
    const F scale = Lanes::e8m0(scales + g * kTileRows);
    // The scale of x first: an E8M0 of 2^127 times 0 must stay 0.
    for (int n = 0; n < N; ++n)
      total[n] = Lanes::fma(Lanes::mul(sum[n].get(), Lanes::set1(x[n].scale + g)), scale, total[n]);
  }
  for (int n = 0; n < N; ++n) Lanes::store(y[n] + at, total[n]);
}

template <int64_t K, int N>
inline void tile_rows(const PackedMatrix& w, int64_t tile, const QuantRow* x, float* const* y,
                      int64_t at, int64_t ahead) {
  const int64_t groups = (K != 0 ? K : w.cols) / kGroup;
  const uint8_t* codes = w.codes + tile * groups * kTileGroupBytes;
  const uint8_t* scales = w.scales + tile * groups * kTileRows;
  for (int64_t r = 0; r < kTileRows; r += Lanes::kLanes)
    tile_part<K, N>(codes + 4 * r, scales + r, groups, x, y, at + r, ahead);
}

// Rows of x in pieces that fit the registers; a tile stays in the nearest cache meanwhile.
template <int64_t K>
inline void tile_all(const PackedMatrix& w, int64_t tile, const QuantRow* x, int64_t n,
                     float* const* y, int64_t at, int64_t ahead) {
  static_assert(Lanes::kMostRows == 4 || Lanes::kMostRows == 8);
  while (n >= Lanes::kMostRows) {
    tile_rows<K, Lanes::kMostRows>(w, tile, x, y, at, ahead);
    x += Lanes::kMostRows;
    y += Lanes::kMostRows;
    n -= Lanes::kMostRows;
  }
  switch (n) {
    case 1:
      return tile_rows<K, 1>(w, tile, x, y, at, ahead);
    case 2:
      return tile_rows<K, 2>(w, tile, x, y, at, ahead);
    case 3:
      return tile_rows<K, 3>(w, tile, x, y, at, ahead);
    default:
      break;
  }
  if constexpr (Lanes::kMostRows == 8) {
    switch (n) {
      case 4:
        return tile_rows<K, 4>(w, tile, x, y, at, ahead);
      case 5:
        return tile_rows<K, 5>(w, tile, x, y, at, ahead);
      case 6:
        return tile_rows<K, 6>(w, tile, x, y, at, ahead);
      case 7:
        return tile_rows<K, 7>(w, tile, x, y, at, ahead);
      default:
        break;
    }
  }
}

template <int64_t K>
void product(const PackedMatrix& w, int64_t first, int64_t last, const QuantRow* x, int64_t n,
             float* const* y, int64_t at, const uint8_t* ahead_at) {
  const int64_t tile_bytes = (K != 0 ? K : w.cols) / kGroup * kTileGroupBytes;
  const auto address = [](const uint8_t* p) { return reinterpret_cast<intptr_t>(p); };
  const int64_t ahead = ahead_at
                            ? address(ahead_at) - address(w.codes + first / kTileRows * tile_bytes)
                            : kAheadBytes;
  for (int64_t row = first; row < last; row += kTileRows)
    tile_all<K>(w, row / kTileRows, x, n, y, at + row - first, ahead);
}

// One kernel a shape of the family's members, in both directions, and one for all others.
inline constexpr PackedKernel kShapes[] = {
    {"2560x768", 2560, 768, product<2560>},                                          // flash
    {"768x2560", 768, 2560, product<768>},  {"1536x512", 1536, 512, product<1536>},  // tiny
    {"512x1536", 512, 1536, product<512>},  {"256x64", 256, 64, product<256>},       // ling-nano
    {"64x256", 64, 256, product<64>},       {"general", 0, 0, product<0>},
};

}  // namespace spk::cpu::SPK_PACKED
