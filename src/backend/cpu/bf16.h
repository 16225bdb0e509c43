// FP8 matrices times rows in precision `fast`: E4M3 codes widened to BF16, which holds each of them
// exactly, and activations rounded to BF16.
//
// Why: an FP8 code as a float costs about five instructions for 16 weights, so that one core reads
// 14 GB/s where its memory gives 20 to 30, and each further row of a verify pass costs a
// multiply-add per 16 weights. Two table look-ups and two dot products for 64 weights are a third
// of that. BF16 activations, off by 2^-8 at most, are what every serving engine of the family uses.
// (As a sum of two BF16 numbers they would be as good as floats, but four rows would cost more than
// here with floats: measured.)
//
// A sum runs over blocks of 128 columns (one scale) in 16 float lanes of column pairs, then total =
// fma(block, scale, total); nothing depends on how many rows share a call. Only processors with
// AVX-512 BF16 and VBMI have a table; the others multiply floats, as in precision exact.
//
// Rows of a prompt take panels, as floats do (loops_panel.h): sixteen weight rows are widened once
// and lie so that a register holds a pair of columns of each, whose sums stay in sixteen lanes. A
// dot product does twice the multiply-adds of a float one. A row's bits depend on nothing but
// itself and the matrix here too, but they are not those of matvec.
#pragma once

#include "backend/cpu/kernels.h"

#include <cstdint>
#include <string_view>

namespace spk::cpu {

inline constexpr int64_t kBf16Columns = 64;  // a row is rounded in blocks of so many

struct Bf16Kernels {
  std::string_view isa;
  // A row of n floats, to even, zeros behind the end. In each block of 64 first the columns 0-7,
  // 16-23, 32-39, 48-55 and then the others: the order in which the interleaved bytes of 64 codes
  // come.
  void (*round)(const float* x, int64_t n, uint16_t* out);
  // As Kernels::matvec, for kFp8 and kFp8Row.
  void (*matvec)(const Matrix& w, int64_t first, int64_t last, const uint16_t* const* x, int64_t n,
                 float* const* y, int64_t at);
  // The same over w.tiles, any n; first and last are multiples of 16, cols of 128. Other bits than
  // matvec's: a sum runs over blocks of 128 columns in two chains, of even and of odd pairs in the
  // order of round(), then total = fma(even + odd, scale, total).
  void (*matvec_tiles)(const Matrix& w, int64_t first, int64_t last, const uint16_t* const* x,
                       int64_t n, float* const* y, int64_t at);
  // The transpose times rows: y[i][c] = sum over r < rows of w[first + r][c] x[i][r] for columns
  // [from, to). kFp8; first and rows are multiples of 64, from of 128; any n.
  void (*matvec_across)(const Matrix& w, int64_t first, int64_t rows, int64_t from, int64_t to,
                        const uint16_t* const* x, int64_t n, float* const* y);
  // As Kernels::panels and panel_dots; a panel's memory is bf16_panel_floats() long, any n. In each
  // panel, for every block of 128 columns: sixteen scales, then pairs of columns in the order of
  // round(), [pair][16 rows][2].
  void (*panels)(const Matrix& w, int64_t first, int64_t last, float* out);
  // With `add` the sums are added to what y holds.
  void (*panel_dots)(const float* panels, int64_t rows, int64_t cols, const uint16_t* const* x,
                     int64_t n, float* const* y, int64_t at, bool add);
  // Panels of rounded floats w [rows, ldw] of `cols` columns: of its rows, or of its columns
  // (across), which then are what panel_dots calls rows.
  void (*float_panels)(const float* w, int64_t ldw, int64_t rows, int64_t cols, float* out);
  void (*float_panels_across)(const float* w, int64_t ldw, int64_t rows, int64_t cols, float* out);
};

// Numbers of one rounded row.
constexpr int64_t bf16_size(int64_t cols) {
  return (cols + kBf16Columns - 1) / kBf16Columns * kBf16Columns;
}

// Of `rows` weight rows as panels.
constexpr int64_t bf16_panel_floats(int64_t rows, int64_t cols) {
  const int64_t blocks = (cols + kFp8Block - 1) / kFp8Block;
  return (rows + kLanes - 1) / kLanes * kLanes * (blocks + bf16_size(cols) / 2);
}

// FP8 codes [rows, cols] in tiles of 16 rows, for matvec_tiles: a register of codes is four columns
// of a tile, and what it is widened to has a weight row in each lane, so that nothing is left to be
// added up at the end. In each tile, for every four numbers in the order of round(): bytes 16 q + 2
// i and the next are the first two of row 4 q + i, those 8 behind them the other two.
constexpr bool can_tile(int64_t rows, int64_t cols) {
  return rows % kLanes == 0 && cols % kFp8Block == 0;
}
void tile_codes(const uint8_t* codes, int64_t rows, int64_t cols, uint8_t* tiles);

const Bf16Kernels* bf16_avx512();  // null where the target machine lacks it altogether
// The table that goes with the inner loops `isa` on this processor; null: none.
const Bf16Kernels* select_bf16(std::string_view isa);

}  // namespace spk::cpu
