// Products of many rows with stored weights, for prefill: an outer product, for one instruction
// set.
//
// Sixteen rows of weights at a time are decoded and transposed into a panel [cols][16], so that a
// register holds sixteen outputs and no sum crosses lanes: with the few columns of an expert's down
// projection adding up sixteen partial sums would cost more than the products. A sum runs over k in
// ascending order, so a row's result depends neither on the other rows nor on the instruction set;
// it is not bit-equal to matvec's, which adds in sixteen lanes.
#pragma once

#include "backend/cpu/loops_matmul.h"

namespace spk::cpu::SPK_ISA {

inline constexpr int64_t kPanelRows = 16;

// out[p][k][i] = w[first + 16 p + i][k], zeros from `last` on.
inline void panels(const Matrix& w, int64_t first, int64_t last, float* out) {
  // A piece of a panel as rows: 16 KiB, which stays in the first-level cache. A multiple of 128.
  constexpr int64_t kPiece = 256;
  float rows[kPanelRows * kPiece];
  for (int64_t row = first; row < last; row += kPanelRows, out += w.cols * kPanelRows) {
    const int64_t n = last - row < kPanelRows ? last - row : kPanelRows;
    for (int64_t k = 0; k < w.cols; k += kPiece) {
      const int64_t end = k + kPiece < w.cols ? k + kPiece : w.cols;
      for (int64_t i = 0; i < n; ++i) decode(w, row + i, k, end, rows + i * kPiece);
      for (int64_t i = n; i < kPanelRows; ++i)
        for (int64_t c = k; c < end; ++c) rows[i * kPiece + c - k] = 0;
      int64_t c = k;
      for (; c + 16 <= end; c += 16) transpose16(rows + c - k, kPiece, out + c * kPanelRows);
      for (; c < end; ++c)
        for (int64_t i = 0; i < kPanelRows; ++i) out[c * kPanelRows + i] = rows[i * kPiece + c - k];
    }
  }
}

// M rows of x times P panels; the last panel has `lanes` rows of weights.
template <int P, int M>
inline void panel_tile(const float* panel, int64_t cols, const float* const* x, float* const* y,
                       int64_t at, int64_t lanes) {
  V16 acc[M][P];
  for (int m = 0; m < M; ++m)
    for (int p = 0; p < P; ++p) acc[m][p] = zero();
  const float* in[M];
  for (int m = 0; m < M; ++m) in[m] = x[m];
  const float* w[P];
  for (int p = 0; p < P; ++p) w[p] = panel + p * cols * kPanelRows;
  for (int64_t k = 0; k < cols; ++k) {
    V16 column[P];
    for (int p = 0; p < P; ++p) column[p] = load(w[p] + k * kPanelRows);
    for (int m = 0; m < M; ++m) {
      const V16 factor = set1(in[m][k]);
      for (int p = 0; p < P; ++p) acc[m][p] = fma(factor, column[p], acc[m][p]);
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int p = 0; p + 1 < P; ++p) store(y[m] + at + p * kPanelRows, acc[m][p]);
    put(y[m] + at + (P - 1) * kPanelRows, acc[m][P - 1], lanes);
  }
}

template <int P>
inline void panel_rows(const float* panel, int64_t cols, const float* const* x, int64_t n,
                       float* const* y, int64_t at, int64_t lanes) {
  // M * P sums, P columns and a factor must fit the registers.
  constexpr int M = 6;
  int64_t i = 0;
  for (; i + M <= n; i += M) panel_tile<P, M>(panel, cols, x + i, y + i, at, lanes);
  if (i + 2 < n && M > 4) {
    panel_tile<P, 3>(panel, cols, x + i, y + i, at, lanes);
    i += 3;
  }
  for (; i + 2 <= n; i += 2) panel_tile<P, 2>(panel, cols, x + i, y + i, at, lanes);
  if (i < n) panel_tile<P, 1>(panel, cols, x + i, y + i, at, lanes);
}

inline void panel_dots(const float* panel, int64_t rows, int64_t cols, const float* const* x,
                       int64_t n, float* const* y, int64_t at) {
  const int64_t step = cols * kPanelRows;
  int64_t left = rows;
  if constexpr (kWideRegisters) {
    constexpr int64_t kFour = 4 * kPanelRows;
    for (; left > 3 * kPanelRows; left -= kFour, panel += 4 * step, at += kFour)
      panel_rows<4>(panel, cols, x, n, y, at, left < kFour ? left - 3 * kPanelRows : kPanelRows);
    for (; left > kPanelRows; left -= 2 * kPanelRows, panel += 2 * step, at += 2 * kPanelRows)
      panel_rows<2>(panel, cols, x, n, y, at,
                    left < 2 * kPanelRows ? left - kPanelRows : kPanelRows);
  }
  for (; left > 0; left -= kPanelRows, panel += step, at += kPanelRows)
    panel_rows<1>(panel, cols, x, n, y, at, left < kPanelRows ? left : kPanelRows);
}

}  // namespace spk::cpu::SPK_ISA
