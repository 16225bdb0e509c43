// Verbs that pass over rows of activations: norms, sums, activations. Norms and sums of a decode or
// verify pass are the caller's work, eight rows of 2,560 columns are about two joins' worth; the
// rows of a prompt are shared out.
#include "backend/cpu/cpu.h"
#include "base/error.h"

#include <algorithm>

namespace spk::cpu {
namespace {

constexpr int64_t kExpCost = 16;  // multiply-adds' worth of one sigmoid

}  // namespace

void CpuBackend::rms_norm(const Rows& x, const Weight& w, const Rows& y) {
  const float* weights = floats_of(w);
  const auto eps = static_cast<float>(shape_.eps);
  run_rows(x.rows, x.cols * 2, [&](int64_t i, int) {
    kernels_.rms_norm(row_of(x, i), weights, eps, x.cols, row_of(y, i));
  });
}

void CpuBackend::add_rms_norm(const Rows& x, const Rows& o, const Weight& w, const Rows& y) {
  const float* weights = floats_of(w);
  const auto eps = static_cast<float>(shape_.eps);
  run_rows(x.rows, x.cols * 3, [&](int64_t i, int) {
    kernels_.add(row_of(x, i), row_of(o, i), x.cols);
    kernels_.rms_norm(row_of(x, i), weights, eps, x.cols, row_of(y, i));
  });
}

void CpuBackend::add(const Rows& x, const Rows& o) {
  run_rows(x.rows, x.cols,
           [&](int64_t i, int) { kernels_.add(row_of(x, i), row_of(o, i), x.cols); });
}

void CpuBackend::swiglu(const Rows& gate, const Rows& up, double limit) {
  run_each(gate.rows, gate.cols * kExpCost, [&](int64_t i, int) {
    kernels_.swiglu(row_of(gate, i), row_of(up, i), static_cast<float>(limit), gate.cols);
  });
}

void CpuBackend::norm_gate_head(float* o, const float* gate, int64_t head,
                                const Weight& o_norm) const {
  const int64_t at = head * shape_.head_dim;
  kernels_.norm_gate(o + at, floats_of(o_norm), gate + at, static_cast<float>(shape_.eps),
                     shape_.head_dim);
}

void CpuBackend::norm_gate(const Rows& o, const Rows& gate, const Weight& o_norm) {
  run_each(o.rows, o.cols * kExpCost, [&](int64_t i, int) {
    for (int64_t h = 0; h < shape_.heads; ++h)
      norm_gate_head(row_of(o, i), row_of(gate, i), h, o_norm);
  });
}

void CpuBackend::gate_value(float* o, const float* gates, int64_t head) const {
  float g = gates[head];
  kernels_.sigmoid(&g, 1);
  kernels_.scale(g, o + head * shape_.v_dim, o + head * shape_.v_dim, shape_.v_dim);
}

void CpuBackend::head_gate(const Rows& o, const Rows& gate) {
  run_each(o.rows, o.cols, [&](int64_t i, int) {
    for (int64_t h = 0; h < shape_.heads; ++h) gate_value(row_of(o, i), row_of(gate, i), h);
  });
}

void CpuBackend::join(const Rows& a, const Rows& b, const Rows& y) {
  SPK_CHECK(a.rows == y.rows && b.rows == y.rows && a.cols + b.cols == y.cols);
  copy(a, y.slice_cols(0, a.cols));
  copy(b, y.slice_cols(a.cols, b.cols));
}

}  // namespace spk::cpu
