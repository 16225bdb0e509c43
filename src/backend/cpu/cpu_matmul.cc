// Products of activations with stored weights: one weight, several that share an input, the head,
// and embedding rows.
//
// Work is cut by weight rows; each is read once in a call, whatever the number of rows of x.
#include "backend/cpu/cpu.h"
#include "base/error.h"
#include "base/types.h"

#include <algorithm>

namespace spk::cpu {
namespace {

// A task of a few rows of x streams about this much of a matrix: long enough for the prefetchers,
// short enough to spread a small matrix over the team.
constexpr int64_t kStreamWeights = 64 * 1024;
// A block of decoded weights: 192 KiB of floats leaves the rest of a 512 KiB or larger L2 to the
// rows of x.
constexpr int64_t kDecodedWeights = 48 * 1024;
constexpr int64_t kTasksPerWorker =
    4;  // so that an interrupted worker delays the join by a quarter at most
constexpr int64_t kMaxProducts = 8;

}  // namespace

// Rows of a prompt always take the panels, however few are left of it: cutting a prompt elsewhere
// changes no bit.
bool CpuBackend::direct(int64_t n) const {
  return n <= kDirectRows && step_.kind != StepKind::kPrefill;
}

int64_t CpuBackend::block_rows(int64_t rows, int64_t cols, bool direct) const {
  const int64_t weights = direct ? kStreamWeights : kDecodedWeights;
  const int64_t fair = ceil_div(rows, kTasksPerWorker * team_.size());
  const int64_t least = std::min(weights / cols, fair);
  if (direct) return std::clamp<int64_t>(round_up(least, kLanes), kLanes, 256);
  // Whole tiles of two or four panels, and of equal size where the matrices are.
  return least < kLanes ? kLanes
                        : std::clamp<int64_t>(round_up(least, 2 * kLanes), kLanes, 4 * kLanes);
}

std::span<uint16_t*> CpuBackend::rounded_rows(int64_t count, int64_t cols, int64_t more,
                                              int64_t more_cols) {
  const int64_t floats = bf16_size(cols) / 2, more_floats = bf16_size(more_cols) / 2;
  float* memory =
      grow(rounded_, rounded_bytes_, count * floats + more * more_floats, "rounded activations");
  rounded_rows_.resize(static_cast<size_t>(count + more));
  for (int64_t i = 0; i < count + more; ++i) {
    rounded_rows_[static_cast<size_t>(i)] = reinterpret_cast<uint16_t*>(memory);
    memory += i < count ? floats : more_floats;
  }
  return rounded_rows_;
}

std::span<uint16_t*> CpuBackend::round_rows(std::span<const float* const> x, int64_t cols) {
  const std::span<uint16_t*> rounded =
      rounded_rows(static_cast<int64_t>(x.size()), bf16_size(cols));
  run_rows(static_cast<int64_t>(x.size()), cols, [&](int64_t i, int) {
    const auto at = static_cast<size_t>(i);
    bf16_->round(x[at], cols, rounded[at]);
  });
  return rounded;
}

// Of weight rows as panels, whichever.
int64_t CpuBackend::panel_floats(int64_t rows, int64_t cols) const {
  const int64_t floats = round_up(rows, kLanes) * round_up(cols, kLanes);
  return bf16_ ? std::max(floats, bf16_panel_floats(rows, cols)) : floats;
}

void CpuBackend::multiply_block(const Matrix& w, int64_t first, int64_t last, const Inputs& in,
                                int64_t n, float* const* y, int64_t at, bool direct, int worker) {
  const bool rounded = in.rounded && (w.format == Format::kFp8 || w.format == Format::kFp8Row);
  if (direct && rounded && w.tiles) {
    SPK_DCHECK(first % kLanes == 0 && last % kLanes == 0);
    return bf16_->matvec_tiles(w, first, last, in.rounded, n, y, at);
  }
  if (direct) {
    for (int64_t i = 0; i < n; i += kDirectRows) {
      const int64_t count = std::min<int64_t>(n - i, kDirectRows);
      rounded ? bf16_->matvec(w, first, last, in.rounded + i, count, y + i, at)
              : kernels_.matvec(w, first, last, in.x + i, count, y + i, at);
    }
    return;
  }
  float* decoded = worker_floats(worker, panel_floats(last - first, w.cols));
  if (rounded) {
    bf16_->panels(w, first, last, decoded);
    bf16_->panel_dots(decoded, last - first, w.cols, in.rounded, n, y, at, false);
  } else {
    kernels_.panels(w, first, last, decoded);
    kernels_.panel_dots(decoded, last - first, w.cols, in.x, n, y, at);
  }
}

void CpuBackend::multiply(std::span<const Product> products, int64_t n, bool direct) {
  SPK_CHECK(products.size() <= kMaxProducts);
  int64_t rows = 0, cols = 0, work = 0;
  for (const Product& p : products) {
    rows += p.w.rows;
    cols = std::max(cols, p.w.cols);
    work += p.w.rows * p.w.cols * n;
  }
  const int64_t block = block_rows(rows, cols, direct);
  if (!direct) reserve_workers(panel_floats(block, cols));
  int64_t first_task[kMaxProducts + 1] = {0};
  for (size_t i = 0; i < products.size(); ++i)
    first_task[i + 1] = first_task[i] + ceil_div(products[i].w.rows, block);
  run_tasks(first_task[products.size()], work, [&](int64_t task, int worker) {
    size_t i = 0;
    while (task >= first_task[i + 1]) ++i;
    const Product& p = products[i];
    const int64_t first = (task - first_task[i]) * block;
    multiply_block(p.w, first, std::min(first + block, p.w.rows), p.x, n, p.y, first, direct,
                   worker);
  });
}

void CpuBackend::multiply_rows(const Rows& x, std::span<const Weight* const> w,
                               std::span<const Rows> y, bool direct) {
  SPK_CHECK(w.size() == y.size() && w.size() <= kMaxProducts);
  const auto n = static_cast<size_t>(x.rows);
  x_.resize(n);
  y_.resize(n * w.size());
  for (size_t i = 0; i < n; ++i) x_[i] = row_of(x, static_cast<int64_t>(i));
  Inputs in{x_.data()};
  if (std::any_of(w.begin(), w.end(), [&](const Weight* each) { return takes_rounded(*each); })) {
    in.rounded = round_rows(x_, x.cols).data();
  }
  Product products[kMaxProducts];
  for (size_t j = 0; j < w.size(); ++j) {
    SPK_CHECK(x.cols == w[j]->cols && y[j].cols == w[j]->rows && y[j].rows == x.rows);
    for (size_t i = 0; i < n; ++i) y_[j * n + i] = row_of(y[j], static_cast<int64_t>(i));
    products[j] = {matrix_of(*w[j]), in, y_.data() + j * n};
    count(*w[j]);
  }
  multiply({products, w.size()}, x.rows, direct);
}

void CpuBackend::matmul_many(const Rows& x, std::span<const Weight* const> w,
                             std::span<const Rows> y) {
  multiply_rows(x, w, y, direct(x.rows));
}

void CpuBackend::matmul(const Rows& x, const Weight& w, const Rows& y) {
  const Weight* const weights[] = {&w};
  matmul_many(x, weights, {&y, 1});
}

void CpuBackend::logits(const Rows& hidden, const LmHead& head, const Rows& y) {
  ++counters_.heads[static_cast<int>(head.format())];
  if (weight_of(head).packed) return packed_logits(hidden, weight_of(head), y);
  // The rows that follow a prompt, a drafted one or those of a verify pass: few at any time.
  const Weight* const weights[] = {&weight_of(head)};
  multiply_rows(hidden, weights, {&y, 1}, hidden.rows <= kDirectRows);
}

void CpuBackend::packed_logits(const Rows& hidden, const Weight& w, const Rows& y) {
  const int64_t n = hidden.rows;
  row_quant_.resize(static_cast<size_t>(n));
  lay_out(shared_floats(quant_floats(n, w.cols)), w.cols, row_quant_);
  y_.resize(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    quantise(row_of(hidden, i), 0, w.cols, row_quant_[static_cast<size_t>(i)]);
    y_[static_cast<size_t>(i)] = row_of(y, i);
  }
  count(w);
  const PackedKernel& kernel = packed_kernel(packed_, w.cols, w.rows);
  const int64_t block = round_up(block_rows(w.rows, w.cols, true), kTileRows);
  run_tasks(ceil_div(w.rows, block), n * w.rows * w.cols, [&](int64_t task, int) {
    const int64_t first = task * block, last = std::min(first + block, w.rows);
    kernel.product(packed_of(w), first, last, row_quant_.data(), n, y_.data(), first, nullptr);
  });
}

void CpuBackend::embed(const Weight& table, const Ints& tokens, const Rows& y) {
  const Matrix m = matrix_of(table);
  for (int64_t i = 0; i < y.rows; ++i) {
    const int32_t token = *row_of(tokens, i);
    SPK_CHECK(token >= 0 && token < m.rows);
    kernels_.decode(m, token, 0, m.cols, row_of(y, i));
  }
  counters_.weight_bytes += static_cast<uint64_t>(table.bytes / table.rows * y.rows);
}

}  // namespace spk::cpu
