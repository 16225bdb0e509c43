// MXFP4 experts with int8 activations: the order in which their weights lie, and the products that
// read it, one table per instruction set.
//
// Why: `plain` turns every 4-bit code into a float and every row of x costs a multiply-add per
// weight. Here a code becomes an int8 (twice its E2M1 value: 0 1 2 3 4 6 8 12, exact), sixteen
// weight rows share a register, and one instruction does 64 multiply-adds.
//
// Order of the codes: tiles of 16 weight rows; in a tile, groups of 32 columns, 256 bytes each. A
// group is four chunks of 64 bytes; byte 4 r + j of chunk c holds columns 8 c + j (low nibble) and
// 8 c + 4 + j (high nibble) of the tile's row r. A register of chunk bytes is thus four columns of
// 16 rows twice, and a 32-bit lane of it meets the same four activations. Scales: one E8M0 byte a
// row, 16 a group, tile after tile. Both need exactly the bytes of the stored form.
//
// A row of x is quantised by groups of 32: q = round(x * (127 / max|x|)), to even; its scale is
// max|x| / 127 / 2 (the half undoes the doubled codes). Sums within a group are exact integers; a
// row of y is sum over groups, ascending, of fma(float(sum) * scale of x, scale of w, y): the same
// bits on every instruction set, for any number of rows in a call and any cut of the matrix.
#pragma once

#include "backend/cpu/kernels.h"
#include "formats/quant.h"

#include <cstdint>
#include <span>
#include <string_view>

namespace spk::cpu {

inline constexpr int64_t kTileRows = 16;
inline constexpr int64_t kTileGroupBytes = kTileRows * kGroup / 2;
inline constexpr int64_t kPackedRows = 8;  // rows of x that a product takes at once
// Twice the E2M1 values are -12 .. 12; where the instruction wants one unsigned side, weights are
// held as value + 12 and the sum starts at -12 times the sum of q.
inline constexpr int32_t kCodeOffset = 12;

struct PackedMatrix {
  const uint8_t* codes = nullptr;   // [rows / 16][cols / 32][256]
  const uint8_t* scales = nullptr;  // [rows / 16][cols / 32][16]
  int64_t rows = 0;
  int64_t cols = 0;
};

// One row of activations, quantised by Kernels::quantise.
struct QuantRow {
  int8_t* q;        // [cols]
  float* scale;     // [cols / 32]
  int32_t* offset;  // [cols / 32]: -12 times the sum of q
};

// y[i][at + r - first] = w[r] . x[i] for r in [first, last), multiples of 16, and i in [0, n), any
// n. ahead: as many bytes as these rows have, which memory is asked for meanwhile, since the caller
// knows what comes next (it need not be there); null: the rows themselves, a little further on.
using PackedProduct = void (*)(const PackedMatrix& w, int64_t first, int64_t last,
                               const QuantRow* x, int64_t n, float* const* y, int64_t at,
                               const uint8_t* ahead);

// Where the codes of a row's tile begin.
constexpr const uint8_t* codes_of(const PackedMatrix& w, int64_t row) {
  return w.codes + row / kTileRows * (w.cols / kGroup * kTileGroupBytes);
}

// One kernel: generated for a shape, so that strides and trip counts are constants, or general.
struct PackedKernel {
  std::string_view name;  // "2560x768": cols x rows; "general"
  int64_t cols = 0;       // 0: any
  int64_t rows = 0;
  PackedProduct product = nullptr;
};

struct PackedKernels {
  std::string_view isa;
  std::span<const PackedKernel> kernels;  // the general one comes last
};

// The tables of this build; null where the target machine lacks the instruction set altogether.
const PackedKernels* packed_generic();
const PackedKernels* packed_avx2();
const PackedKernels* packed_avxvnni();
const PackedKernels* packed_avx512vnni();
const PackedKernels* packed_neon();
const PackedKernels* packed_neondot();

// The best table that goes with the inner loops `isa` ("avx512" brings VNNI where the processor has
// it).
const PackedKernels& select_packed(std::string_view isa);
// The kernel for a matrix of this shape.
const PackedKernel& packed_kernel(const PackedKernels& table, int64_t cols, int64_t rows);

// Tiles [first, last) of a stored matrix into their places in codes and scales.
void pack_tiles(const HostTensor& tensor, int64_t first, int64_t last, uint8_t* codes,
                uint8_t* scales);

}  // namespace spk::cpu
