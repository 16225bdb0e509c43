// The inner loops as a table of functions, one table per instruction set: what the verbs call, and
// all they call.
//
// Contract of every table: the SAME BITS on every instruction set. Sums over k (but for panel_dots)
// run in 16 float lanes (lane i takes k = i mod 16, k ascending, fused multiply-add, missing tail
// terms are zeros); the lanes are then added as i with i+8, i with i+4, i with i+2, i with i+1. A
// weight is float(code) * float(scale), rounded once. Nothing depends on how many rows share a
// call, so one row computed alone equals the same row computed among many.
//
// Pointers need no alignment. x and y are tables of row pointers: rows of one activation matrix, or
// any gathered rows.
#pragma once

#include "formats/quant.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace spk::cpu {

inline constexpr int64_t kLanes = 16;  // also the rows of a panel
// Up to so many rows of x are multiplied while the weights are decoded.
inline constexpr int kDirectRows = 8;

// A matrix of the model where it lies: codes as stored; scales as stored (MXFP4, INT4) or as
// converted by CpuBackend::upload (FP8: float times 2^8, see simd.h).
struct Matrix {
  Format format = Format::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;
  const uint8_t* tiles = nullptr;  // the codes once more, as matvec_tiles (bf16.h) reads them
};

inline constexpr int kMostPast = 15;  // inputs before the newest that a convolution sees

// Causal convolution of one of q, k, v, in place.
struct Conv {
  float* x;  // [rows, stride]
  int64_t rows;
  int64_t stride;
  const float*
      past[kMostPast];  // [kernel - 1] rows before the first, oldest first, wherever they are
  float*
      tail;  // [kernel - 1, tail_stride]: where the rows before the next step's go; null: nowhere
  int64_t tail_stride;
  int64_t tail_rows;  // of x that the tail takes: all, or none (it then takes the past)
  float* record;      // [rows, stride]: what x was; null: nobody needs it
  int64_t record_stride;
  const float* taps;  // [kernel, channels], oldest first (transposed by upload)
  int64_t channels;
  int64_t kernel;
};

// C (+-)= A B with row-major B and C; A is read as a[i * a_row + p * a_step], so that it may be
// transposed.
enum class Accumulate : uint8_t { kSet, kAdd, kSubtract };
struct Gemm {
  int64_t m, n, k;  // n: multiple of kLanes
  const float* a;
  int64_t a_row, a_step;
  const float* b;
  int64_t ldb;
  float* c;
  int64_t ldc;
  Accumulate mode;
};

// Rows of a verify pass that were accepted: S <- diag(alpha) S + k u^T for one after the other, the
// last step of Deltas bit by bit.
struct Fold {
  int64_t rows;                     // 0 .. kDirectRows, in order
  const float* k[kDirectRows];      // [d] each, normalised
  const float* alpha[kDirectRows];  // [d], decay
  const float* u[kDirectRows];      // [d]
};

// One head, one row of the delta rule.
struct DeltaRow {
  const float* k;          // [d], normalised
  const float* alpha;      // [d], decay
  const float* decayed_k;  // [d]: k times alpha
  const float* decayed_q;  // [d]: q, normalised, times alpha
  float qk;                // q . k
  float beta;
  const float* v;  // [d]
  float* o;        // [d]
  float* u;        // [d] or null: the write vector, for a later fold
};

// The decays of one sub-block of a chunk (cpu_kda_chunk.cc): log decays in, their running sums s
// from the block's start as factors of the rows that they meet. "Middle" is row rows / 2, "end" the
// last one.
struct KdaDecay {
  int64_t rows;    // 1 .. 16
  int64_t d;       // a multiple of kLanes; all but g: [rows, d] or [d]
  const float* g;  // [rows, g_stride] log decays
  int64_t g_stride;
  const float *q, *k;          // normalised
  float *start_q, *start_k;    // q, k times exp(s)
  float *chunk_q, *chunk_k;    // the same times `decay`, as it was
  float *middle_q, *middle_k;  // q, k times exp(s - s of the middle)
  float* right;                // k times exp(s of the middle - s)
  float* end_k;                // k times exp(s of the end - s)
  float* decay;                // [d] of the chunk, to the block's start and then to its end
  float* block_decay;          // [d] exp(s of the end)
};

// One head, some rows of the delta rule: state columns [first, last) (multiples of kLanes).
struct Deltas {
  float* state;  // [d, stride]
  int64_t stride;
  int64_t d;
  int64_t first, last;
  Fold fold;  // into the state, before the first row
  // [d, kStateColumns]: the state moves on here from row to row and is not kept after the last one;
  // null: it moves on in its own place.
  float* moving;
  int64_t rows;  // 1 .. kDirectRows
  DeltaRow row[kDirectRows];
};
inline constexpr int64_t kStateColumns = 64;  // 128 * 64 floats of a state are 32 KiB

// Rows of a table with their weights.
struct WeightedRows {
  const float* table;  // [any, stride]
  int64_t stride;
  const int64_t* rows;   // [count]
  const float* weights;  // [count]
  int64_t count;         // 1 or more
  const float* last;     // a row of weight 1, or null
};

struct Kernels {
  std::string_view isa;

  // ---- products with stored weights ----
  // y[i][r - first + at] = w[r] . x[i] for r in [first, last), i in [0, n), n <= kDirectRows
  void (*matvec)(const Matrix& w, int64_t first, int64_t last, const float* const* x, int64_t n,
                 float* const* y, int64_t at);
  // out[0 .. last - first) = columns [first, last) of one row; first is a multiple of 128.
  void (*decode)(const Matrix& w, int64_t row, int64_t first, int64_t last, float* out);

  // More than kDirectRows rows of x: weight rows [first, last) decoded into panels of 16, as
  // [panel][cols][16] with zeros behind the last row, then
  // y[i][r + at] = (row r of the panels) . x[i], r < rows. The sum runs over k ascending in ONE
  // lane: bit-equal on every instruction set and for any n, but not to matvec.
  void (*panels)(const Matrix& w, int64_t first, int64_t last, float* out);
  void (*panel_dots)(const float* panels, int64_t rows, int64_t cols, const float* const* x,
                     int64_t n, float* const* y, int64_t at);

  // ---- products of floats ----
  // y[i][r + at] = w[r] . x[i], w: [rows, ldw] floats
  void (*dots)(const float* w, int64_t ldw, int64_t rows, int64_t cols, const float* const* x,
               int64_t n, float* const* y, int64_t at);
  void (*gemm)(const Gemm& g);

  // ---- element-wise ----
  void (*rms_norm)(const float* x, const float* w, float eps, int64_t n, float* y);
  void (*add)(float* x, const float* o, int64_t n);
  void (*axpy)(float a, const float* x, float* y, int64_t n);   // y = fma(a, x, y)
  void (*scale)(float a, const float* x, float* y, int64_t n);  // y = a * x
  void (*multiply)(const float* a, float* y, int64_t n);        // y *= a
  // y = weights[0] * row 0, then y = fma(weights[j], row j, y) for each other, then y += last
  void (*weighted_sum)(const WeightedRows& w, int64_t n, float* y);
  void (*swiglu)(float* gate, const float* up, float limit, int64_t n);
  void (*sigmoid)(float* x, int64_t n);
  float (*largest)(const float* x, int64_t n);  // minus infinity where there is none but NaN
  // y = exp(x - bias), returns the sum over the row in the lane order above
  float (*exp_sum)(const float* x, float bias, float* y, int64_t n);
  void (*exp_of)(const float* x, float* y, int64_t n);
  void (*kda_decay)(const KdaDecay& b);
  float (*dot)(const float* a, const float* b, int64_t n);
  // Groups of 32 as int8, for the packed experts (packed.h); n is a multiple of 32. A group that is
  // not finite gets the scale NaN, so that it stays visible.
  void (*quantise)(const float* x, int64_t n, int8_t* q, float* scale, int32_t* offset);

  // ---- KDA ----
  void (*conv)(const Conv& c, int64_t first, int64_t last);  // channels, multiples of kLanes
  // f = lower * sigmoid(rate * (f + bias))
  void (*gate)(float* f, const float* bias, float rate, float lower, int64_t n);
  // y = x * (scale / sqrt(x . x + 1e-6))
  void (*unit)(const float* x, float scale, int64_t n, float* y);
  void (*norm_gate)(float* o, const float* w, const float* gate, float eps, int64_t n);
  void (*deltas)(const Deltas& d);
  void (*fold)(const Deltas& d);  // the fold alone
};

// The tables that this build has; null where the target machine lacks the instruction set
// altogether.
const Kernels* kernels_generic();
const Kernels* kernels_avx2();
const Kernels* kernels_avx512();
const Kernels* kernels_neon();

// The best table that this processor runs, or the one that is asked for by name. Error(kUsage) for
// an unknown name or one that this processor cannot run: says what is missing.
const Kernels& select_kernels(const std::string& isa);

}  // namespace spk::cpu
