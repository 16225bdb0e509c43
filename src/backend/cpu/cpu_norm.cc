// Verbs that pass over rows of activations: norms, sums, activations. One row is the caller's work,
// many are shared out.
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
  run_tasks(x.rows, x.rows * x.cols * 2, [&](int64_t i, int) {
    kernels_.rms_norm(row_of(x, i), weights, eps, x.cols, row_of(y, i));
  });
}

void CpuBackend::add_rms_norm(const Rows& x, const Rows& o, const Weight& w, const Rows& y) {
  const float* weights = floats_of(w);
  const auto eps = static_cast<float>(shape_.eps);
  run_tasks(x.rows, x.rows * x.cols * 3, [&](int64_t i, int) {
    kernels_.add(row_of(x, i), row_of(o, i), x.cols);
    kernels_.rms_norm(row_of(x, i), weights, eps, x.cols, row_of(y, i));
  });
}

void CpuBackend::add(const Rows& x, const Rows& o) {
  run_tasks(x.rows, x.rows * x.cols,
            [&](int64_t i, int) { kernels_.add(row_of(x, i), row_of(o, i), x.cols); });
}

void CpuBackend::swiglu(const Rows& gate, const Rows& up, double limit) {
  run_tasks(gate.rows, gate.rows * gate.cols * kExpCost, [&](int64_t i, int) {
    kernels_.swiglu(row_of(gate, i), row_of(up, i), static_cast<float>(limit), gate.cols);
  });
}

void CpuBackend::norm_gate(const Rows& o, const Rows& gate, const Weight& o_norm) {
  const int64_t d = shape_.head_dim;
  const float* weights = floats_of(o_norm);
  const auto eps = static_cast<float>(shape_.eps);
  run_tasks(o.rows, o.rows * o.cols * kExpCost, [&](int64_t i, int) {
    for (int64_t h = 0; h < shape_.heads; ++h)
      kernels_.norm_gate(row_of(o, i) + h * d, weights, row_of(gate, i) + h * d, eps, d);
  });
}

void CpuBackend::head_gate(const Rows& o, const Rows& gate) {
  const int64_t v = shape_.v_dim;
  run_tasks(o.rows, o.rows * o.cols, [&](int64_t i, int) {
    float* gates = row_of(gate, i);
    for (int64_t h = 0; h < shape_.heads; ++h) {
      float g = gates[h];
      kernels_.sigmoid(&g, 1);
      float* head = row_of(o, i) + h * v;
      kernels_.scale(g, head, head, v);
    }
  });
}

void CpuBackend::join(const Rows& a, const Rows& b, const Rows& y) {
  SPK_CHECK(a.rows == y.rows && b.rows == y.rows && a.cols + b.cols == y.cols);
  copy(a, y.slice_cols(0, a.cols));
  copy(b, y.slice_cols(a.cols, b.cols));
}

}  // namespace spk::cpu
