// Products with stored weights (decoded in registers) and products of floats, for one instruction
// set.
//
// matvec is for decoding a few rows: every weight is read once from memory and multiplied at once
// with all rows of x. For more rows the caller lets `decode` write a block of weight rows as floats
// into a buffer that stays in L2 and multiplies by `dots`, whose register tiles use each loaded
// number four times. Both give the same bits.
#pragma once

#include "backend/cpu/kernels.h"
#include "backend/cpu/loops_math.h"

namespace spk::cpu::SPK_ISA {

inline constexpr int64_t kUnit = 32;  // weights decoded at a time: one group of the 4-bit formats

inline uint32_t bits_at(const uint8_t* p, int bytes) {
  uint32_t bits = 0;
  __builtin_memcpy(&bits, p, static_cast<size_t>(bytes));
  return bits;
}
inline float float_of(uint32_t bits) {
  float f;
  __builtin_memcpy(&f, &bits, sizeof f);
  return f;
}

// Values of the 4-bit codes, and the same as upper bytes of fp16.
inline constexpr float kMxfp4Values[16] = {0.f,  .5f,  1.f,  1.5f,  2.f,  3.f,  4.f,  6.f,
                                           -0.f, -.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f};
inline constexpr uint8_t kMxfp4Half[16] = {0x00, 0x38, 0x3c, 0x3e, 0x40, 0x42, 0x44, 0x46,
                                           0x80, 0xb8, 0xbc, 0xbe, 0xc0, 0xc2, 0xc4, 0xc6};
inline constexpr float kInt4Values[16] = {-8.f, -7.f, -6.f, -5.f, -4.f, -3.f, -2.f, -1.f,
                                          0.f,  1.f,  2.f,  3.f,  4.f,  5.f,  6.f,  7.f};
inline constexpr uint8_t kInt4Half[16] = {0xc8, 0xc7, 0xc6, 0xc5, 0xc4, 0xc2, 0xc0, 0xbc,
                                          0x00, 0x3c, 0x40, 0x42, 0x44, 0x45, 0x46, 0x47};

// 2^(code - 127) for all codes: a load that broadcasts costs less than making it from the bits.
// Code 0 is the subnormal 2^-127, bits 1 << 22; 255 (NaN) is refused by the loaders.
struct E8m0 {
  float value[256];
  constexpr E8m0() : value() {
    for (uint32_t i = 0; i < 256; ++i) value[i] = __builtin_bit_cast(float, i ? i << 23 : 1u << 22);
  }
};
inline constexpr E8m0 kE8m0;

// One row of a matrix as a stream of decoded units.
template <Format F>
struct Stream;

template <>
struct Stream<Format::kF32> {
  static constexpr int64_t kUnitBytes = 4 * kUnit;
  const uint8_t* codes;
  Stream(const Matrix& w, int64_t row) : codes(w.codes + row * w.cols * 4) {}
  void get(int64_t k, V16& a, V16& b) const { widen(codes + 4 * k, k, a, b); }
  void widen(const uint8_t* p, int64_t, V16& a, V16& b) const {
    a = load(p);
    b = load(p + 64);
  }
};

template <>
struct Stream<Format::kBf16> {
  static constexpr int64_t kUnitBytes = 2 * kUnit;
  const uint8_t* codes;
  Stream(const Matrix& w, int64_t row) : codes(w.codes + row * w.cols * 2) {}
  void get(int64_t k, V16& a, V16& b) const { widen(codes + 2 * k, k, a, b); }
  void widen(const uint8_t* p, int64_t, V16& a, V16& b) const { bf16_32(p, a, b); }
};

template <>
struct Stream<Format::kFp8> {
  static constexpr int64_t kUnitBytes = kUnit;
  const uint8_t* codes;
  const uint8_t* scales;  // one float per 128 columns
  Stream(const Matrix& w, int64_t row)
      : codes(w.codes + row * w.cols),
        scales(w.scales + (row / kFp8Block) * ((w.cols + kFp8Block - 1) / kFp8Block) * 4) {}
  void get(int64_t k, V16& a, V16& b) const { widen(codes + k, k, a, b); }
  void widen(const uint8_t* p, int64_t k, V16& a, V16& b) const {
    const V16 scale = set1(float_of(bits_at(scales + k / kFp8Block * 4, 4)));
    e4m3_32(p, a, b);
    a = mul(a, scale);
    b = mul(b, scale);
  }
};

template <>
struct Stream<Format::kFp8Row> {
  static constexpr int64_t kUnitBytes = kUnit;
  const uint8_t* codes;
  V16 scale;  // one float a row
  Stream(const Matrix& w, int64_t row)
      : codes(w.codes + row * w.cols), scale(set1(float_of(bits_at(w.scales + row * 4, 4)))) {}
  void get(int64_t k, V16& a, V16& b) const { widen(codes + k, k, a, b); }
  void widen(const uint8_t* p, int64_t, V16& a, V16& b) const {
    e4m3_32(p, a, b);
    a = mul(a, scale);
    b = mul(b, scale);
  }
};

template <>
struct Stream<Format::kMxfp4> {
  static constexpr int64_t kUnitBytes = kUnit / 2;
  const uint8_t* codes;
  const uint8_t* scales;  // E8M0 per 32 columns
  Nibbles nibbles{kMxfp4Values, kMxfp4Half};
  Stream(const Matrix& w, int64_t row)
      : codes(w.codes + row * (w.cols / 2)), scales(w.scales + row * (w.cols / kGroup)) {}
  void get(int64_t k, V16& a, V16& b) const {
    nibbles.get32(codes + k / 2, kE8m0.value[scales[k / kGroup]], a, b);
  }
};

template <>
struct Stream<Format::kInt4> {
  static constexpr int64_t kUnitBytes = kUnit / 2;
  const uint8_t* codes;
  const uint8_t* scales;  // BF16 per 32 columns
  Nibbles nibbles{kInt4Values, kInt4Half};
  Stream(const Matrix& w, int64_t row)
      : codes(w.codes + row * (w.cols / 2)), scales(w.scales + row * (w.cols / kGroup) * 2) {}
  void get(int64_t k, V16& a, V16& b) const {
    nibbles.get32(codes + k / 2, float_of(bits_at(scales + k / kGroup * 2, 2) << 16), a, b);
  }
};

// The last n < 32 weights of a row, zeros behind them. The 4-bit formats have whole groups only.
template <Format F>
inline void get_tail(const Stream<F>& s, int64_t k, int64_t n, V16& a, V16& b) {
  if constexpr (F == Format::kMxfp4 || F == Format::kInt4) {
    s.get(k, a, b);
  } else {
    constexpr int64_t kBytes = Stream<F>::kUnitBytes / kUnit;
    uint8_t padded[Stream<F>::kUnitBytes] = {};
    __builtin_memcpy(padded, s.codes + k * kBytes, static_cast<size_t>(n * kBytes));
    s.widen(padded, k, a, b);
  }
}
// Two registers of x from column k, of which n columns exist.
inline void get_x(const float* x, int64_t n, V16& a, V16& b) {
  a = get(x, n < 16 ? n : 16);
  b = n > 16 ? load_part(x + 16, n - 16) : zero();
}

template <int R, int N>
inline void store_sums(const V16 (&acc)[R][N], float* const* y, int64_t at) {
  if constexpr (R == 4) {
    for (int n = 0; n < N; ++n) {
      const V16 column[4] = {acc[0][n], acc[1][n], acc[2][n], acc[3][n]};
      reduce4(column, y[n] + at);
    }
  } else {
    for (int n = 0; n < N; ++n)
      for (int r = 0; r < R; ++r) y[n][at + r] = reduce(acc[r][n]);
  }
}

// R weight rows times N rows of x.
template <Format F, int R, int N>
inline void matvec_block(const Matrix& w, int64_t row, const float* const* x, float* const* y,
                         int64_t at) {
  using S = Stream<F>;
  const S streams[4] = {S(w, row), S(w, row + (R > 1 ? 1 : 0)), S(w, row + (R > 2 ? 2 : 0)),
                        S(w, row + (R > 3 ? 3 : 0))};
  // The rows of the next block follow in memory; a hardware prefetcher would start anew with each
  // short row.
  const int64_t ahead = R * (streams[R - 1].codes - streams[0].codes) / (R > 1 ? R - 1 : 1);
  const int64_t cols = w.cols;
  V16 acc[R][N];
  for (int r = 0; r < R; ++r)
    for (int n = 0; n < N; ++n) acc[r][n] = zero();
  int64_t k = 0;
  for (; k + kUnit <= cols; k += kUnit) {
    V16 a[R], b[R];
    for (int r = 0; r < R; ++r) {
      const uint8_t* p = streams[r].codes + k / kUnit * S::kUnitBytes;
      __builtin_prefetch(p + ahead);
      if constexpr (S::kUnitBytes > 64) __builtin_prefetch(p + ahead + 64);
      streams[r].get(k, a[r], b[r]);
    }
    for (int n = 0; n < N; ++n) {
      const V16 xa = load(x[n] + k), xb = load(x[n] + k + 16);
      for (int r = 0; r < R; ++r) acc[r][n] = fma(b[r], xb, fma(a[r], xa, acc[r][n]));
    }
  }
  if (k < cols) {
    const int64_t left = cols - k;
    for (int r = 0; r < R; ++r) {
      V16 a, b;
      get_tail(streams[r], k, left, a, b);
      for (int n = 0; n < N; ++n) {
        V16 xa, xb;
        get_x(x[n] + k, left, xa, xb);
        acc[r][n] = fma(b, xb, fma(a, xa, acc[r][n]));
      }
    }
  }
  store_sums<R, N>(acc, y, at);
}

template <Format F, int N>
inline void matvec_rows(const Matrix& w, int64_t first, int64_t last, const float* const* x,
                        float* const* y, int64_t at) {
  // R * N accumulators and 2 R registers of decoded weights must fit the processor's.
  constexpr int R = kWideRegisters ? (N <= 4 ? 4 : 2) : (N == 1 ? 2 : 1);
  int64_t row = first;
  for (; row + R <= last; row += R) matvec_block<F, R, N>(w, row, x, y, at + row - first);
  for (; row < last; ++row) matvec_block<F, 1, N>(w, row, x, y, at + row - first);
}

template <Format F>
inline void matvec_format(const Matrix& w, int64_t first, int64_t last, const float* const* x,
                          int64_t n, float* const* y, int64_t at) {
  if (!kWideRegisters && n > 4) {
    // Too few registers: four rows of x at a time, over a few weight rows that stay in the
    // first-level cache.
    constexpr int64_t kRows = 4;
    for (int64_t row = first; row < last; row += kRows) {
      const int64_t end = row + kRows < last ? row + kRows : last;
      matvec_format<F>(w, row, end, x, 4, y, at + row - first);
      matvec_format<F>(w, row, end, x + 4, n - 4, y + 4, at + row - first);
    }
    return;
  }
  switch (n) {
    case 1:
      return matvec_rows<F, 1>(w, first, last, x, y, at);
    case 2:
      return matvec_rows<F, 2>(w, first, last, x, y, at);
    case 3:
      return matvec_rows<F, 3>(w, first, last, x, y, at);
    case 4:
      return matvec_rows<F, 4>(w, first, last, x, y, at);
  }
  if constexpr (kWideRegisters) {
    switch (n) {
      case 5:
        return matvec_rows<F, 5>(w, first, last, x, y, at);
      case 6:
        return matvec_rows<F, 6>(w, first, last, x, y, at);
      case 7:
        return matvec_rows<F, 7>(w, first, last, x, y, at);
      case 8:
        return matvec_rows<F, 8>(w, first, last, x, y, at);
    }
  }
}

inline void matvec(const Matrix& w, int64_t first, int64_t last, const float* const* x, int64_t n,
                   float* const* y, int64_t at) {
  switch (w.format) {
    case Format::kF32:
      return matvec_format<Format::kF32>(w, first, last, x, n, y, at);
    case Format::kBf16:
      return matvec_format<Format::kBf16>(w, first, last, x, n, y, at);
    case Format::kFp8:
      return matvec_format<Format::kFp8>(w, first, last, x, n, y, at);
    case Format::kMxfp4:
      return matvec_format<Format::kMxfp4>(w, first, last, x, n, y, at);
    case Format::kInt4:
      return matvec_format<Format::kInt4>(w, first, last, x, n, y, at);
    case Format::kFp8Row:
      return matvec_format<Format::kFp8Row>(w, first, last, x, n, y, at);
  }
}

template <Format F>
inline void decode_format(const Matrix& w, int64_t row, int64_t first, int64_t last, float* out) {
  const Stream<F> s(w, row);
  int64_t k = first;
  V16 a, b;
  for (; k + kUnit <= last; k += kUnit) {
    s.get(k, a, b);
    store(out + k - first, a);
    store(out + k - first + 16, b);
  }
  if (k == last) return;
  const int64_t left = last - k;
  get_tail(s, k, left, a, b);
  put(out + k - first, a, left < 16 ? left : 16);
  if (left > 16) store_part(out + k - first + 16, b, left - 16);
}

inline void decode(const Matrix& w, int64_t row, int64_t first, int64_t last, float* out) {
  switch (w.format) {
    case Format::kF32:
      return decode_format<Format::kF32>(w, row, first, last, out);
    case Format::kBf16:
      return decode_format<Format::kBf16>(w, row, first, last, out);
    case Format::kFp8:
      return decode_format<Format::kFp8>(w, row, first, last, out);
    case Format::kMxfp4:
      return decode_format<Format::kMxfp4>(w, row, first, last, out);
    case Format::kInt4:
      return decode_format<Format::kInt4>(w, row, first, last, out);
    case Format::kFp8Row:
      return decode_format<Format::kFp8Row>(w, row, first, last, out);
  }
}

// R rows of w times N rows of x; (R + N) loads for R * N multiply-adds. The next R rows are asked
// for meanwhile: rows of a cache are shorter than a page, and a hardware prefetcher starts anew
// with each. Whole: cols is a multiple of 16; without a tail the sums never leave their registers.
template <int R, int N, bool Whole>
inline void dots_tile(const float* w, int64_t ldw, int64_t cols, const float* const* x,
                      float* const* y, int64_t at) {
  V16 acc[R * N];
  for (int i = 0; i < R * N; ++i) acc[i] = zero();
  const float* rows[R];
  for (int r = 0; r < R; ++r) rows[r] = w + r * ldw;
  const float* in[N];
  for (int n = 0; n < N; ++n) in[n] = x[n];
  int64_t k = 0;
  for (; k + 16 <= cols; k += 16) {
    V16 a[R];
    for (int r = 0; r < R; ++r) {
      a[r] = load(rows[r] + k);
      __builtin_prefetch(rows[r] + R * ldw + k);
    }
    for (int n = 0; n < N; ++n) {
      const V16 b = load(in[n] + k);
      for (int r = 0; r < R; ++r) acc[r * N + n] = fma(a[r], b, acc[r * N + n]);
    }
  }
  if constexpr (!Whole) {
    for (int n = 0; n < N; ++n) {
      const V16 b = load_part(in[n] + k, cols - k);
      for (int r = 0; r < R; ++r)
        acc[r * N + n] = fma(load_part(rows[r] + k, cols - k), b, acc[r * N + n]);
    }
  }
  if constexpr (R == 4 && N == 4) {
    reduce4x4(acc, y, at);
  } else {
    for (int n = 0; n < N; ++n)
      for (int r = 0; r < R; ++r) y[n][at + r] = reduce(acc[r * N + n]);
  }
}

template <int R, bool Whole>
inline void dots_rows(const float* w, int64_t ldw, int64_t cols, const float* const* x, int64_t n,
                      float* const* y, int64_t at) {
  constexpr int N = kWideRegisters ? 4 : 2;
  int64_t i = 0;
  for (; i + N <= n; i += N) dots_tile<R, N, Whole>(w, ldw, cols, x + i, y + i, at);
  if (N == 4 && i + 2 <= n) {
    dots_tile<R, 2, Whole>(w, ldw, cols, x + i, y + i, at);
    i += 2;
  }
  if (i < n) dots_tile<R, 1, Whole>(w, ldw, cols, x + i, y + i, at);
}

template <bool Whole>
inline void dots_all(const float* w, int64_t ldw, int64_t rows, int64_t cols, const float* const* x,
                     int64_t n, float* const* y, int64_t at) {
  constexpr int R = kWideRegisters ? 4 : 2;
  int64_t r = 0;
  for (; r + R <= rows; r += R) dots_rows<R, Whole>(w + r * ldw, ldw, cols, x, n, y, at + r);
  for (; r < rows; ++r) dots_rows<1, Whole>(w + r * ldw, ldw, cols, x, n, y, at + r);
}

inline void dots(const float* w, int64_t ldw, int64_t rows, int64_t cols, const float* const* x,
                 int64_t n, float* const* y, int64_t at) {
  if (cols % 16 == 0)
    dots_all<true>(w, ldw, rows, cols, x, n, y, at);
  else
    dots_all<false>(w, ldw, rows, cols, x, n, y, at);
}

// M rows times V registers of columns.
template <int M, int V>
inline void gemm_tile(const Gemm& g, int64_t i, int64_t j) {
  V16 acc[M][V];
  for (int m = 0; m < M; ++m)
    for (int v = 0; v < V; ++v)
      acc[m][v] = g.mode == Accumulate::kSet ? zero() : load(g.c + (i + m) * g.ldc + j + 16 * v);
  const float* a = g.a + i * g.a_row;
  const float* b = g.b + j;
  const bool subtract = g.mode == Accumulate::kSubtract;
  for (int64_t p = 0; p < g.k; ++p, a += g.a_step, b += g.ldb) {
    V16 columns[V];
    for (int v = 0; v < V; ++v) columns[v] = load(b + 16 * v);
    for (int m = 0; m < M; ++m) {
      const float value = a[m * g.a_row];
      const V16 factor = set1(subtract ? -value : value);
      for (int v = 0; v < V; ++v) acc[m][v] = fma(factor, columns[v], acc[m][v]);
    }
  }
  for (int m = 0; m < M; ++m)
    for (int v = 0; v < V; ++v) store(g.c + (i + m) * g.ldc + j + 16 * v, acc[m][v]);
}

// M * V sums, V columns and a factor must fit the registers.
template <int V>
inline void gemm_columns(const Gemm& g, int64_t j) {
  int64_t i = 0;
  for (; i + 6 <= g.m; i += 6) gemm_tile<6, V>(g, i, j);
  for (; i + 4 <= g.m; i += 4) gemm_tile<4, V>(g, i, j);
  for (; i + 2 <= g.m; i += 2) gemm_tile<2, V>(g, i, j);
  if (i < g.m) gemm_tile<1, V>(g, i, j);
}

inline void gemm(const Gemm& g) {
  // One row alone needs more columns, to have enough sums under way.
  constexpr int64_t V = kWideRegisters ? 4 : 1, kAlone = kWideRegisters ? 8 : 4;
  int64_t j = 0;
  if (g.m == 1)
    for (; j + 16 * kAlone <= g.n; j += 16 * kAlone) gemm_tile<1, kAlone>(g, 0, j);
  for (; j + 16 * V <= g.n; j += 16 * V) gemm_columns<V>(g, j);
  for (; j < g.n; j += 16) gemm_columns<1>(g, j);
}

}  // namespace spk::cpu::SPK_ISA
