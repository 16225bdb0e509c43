// The mixture of experts in two joins: gate, up and activation of all chosen experts, then down and
// the weighted sum.
//
// Rows are gathered by expert, so that an expert's weights are read once in a call, by all rows
// that chose it. A row's sum runs over its slots in order and takes the shared expert last: it does
// not depend on the other rows. Packed experts (packed.h) run in the same two joins: their rows are
// quantised once, their activations by the task that made them.
#include "backend/cpu/cpu.h"
#include "base/error.h"
#include "base/types.h"

#include <algorithm>

namespace spk::cpu {
namespace {

// Outputs of all pairs for one block of hidden columns, per worker: 512 KiB.
constexpr int64_t kSumFloats = 128 * 1024;
// Experts per chosen one, from which an expert's rows are too few for panels.
constexpr int64_t kDirectFrom = 16;

}  // namespace

// A prompt's chunk brings an expert of a wide model only a few rows, for which making panels costs
// more than they save. A property of the model, so that it does not depend on where a prompt is
// cut.
bool CpuBackend::experts_direct(int64_t n) const {
  return direct(n) || shape_.experts > kDirectFrom * shape_.top_k;
}

// Fills routed_ (used experts, ascending, then the shared one as expert -1), pair_of_[row * top_k +
// slot] and x_.
void CpuBackend::gather_pairs(const Rows& h, const Moe& moe, const Ints& ids) {
  const int64_t n = h.rows, top_k = shape_.top_k;
  const auto experts = static_cast<int64_t>(moe.experts.size());
  pair_start_.assign(static_cast<size_t>(experts + 1), 0);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t k = 0; k < top_k; ++k) {
      const int32_t e = row_of(ids, i)[k];
      SPK_CHECK(e >= 0 && e < experts);
      ++pair_start_[static_cast<size_t>(e) + 1];
    }
  routed_.clear();
  for (int64_t e = 0; e < experts; ++e) {
    const auto at = static_cast<size_t>(e);
    const int64_t chosen = pair_start_[at + 1];
    pair_start_[at + 1] += pair_start_[at];
    if (chosen > 0) routed_.push_back({static_cast<int32_t>(e), pair_start_[at], chosen});
  }
  pair_of_.resize(static_cast<size_t>(n * top_k));
  x_.resize(static_cast<size_t>(n * (top_k + 1)));
  for (int64_t i = 0; i < n; ++i)
    for (int64_t k = 0; k < top_k; ++k) {
      const int64_t pair = pair_start_[static_cast<size_t>(row_of(ids, i)[k])]++;
      pair_of_[static_cast<size_t>(i * top_k + k)] = pair;
      x_[static_cast<size_t>(pair)] = row_of(h, i);
    }
  if (!moe.shared.gate) return;
  routed_.push_back({-1, n * top_k, n});
  for (int64_t i = 0; i < n; ++i) x_[static_cast<size_t>(n * top_k + i)] = row_of(h, i);
}

// A quantised row: codes, then scales, then offsets.
int64_t CpuBackend::quant_floats(int64_t rows, int64_t cols) {
  return rows * (cols / 4 + 2 * (cols / kGroup));
}

void CpuBackend::lay_out(float* memory, int64_t cols, std::span<QuantRow> rows) {
  for (QuantRow& row : rows) {
    row.q = reinterpret_cast<int8_t*>(memory);
    row.scale = memory + cols / 4;
    row.offset = reinterpret_cast<int32_t*>(memory + cols / 4 + cols / kGroup);
    memory += quant_floats(1, cols);
  }
}

// Columns [first, last) of x, whole groups.
void CpuBackend::quantise(const float* x, int64_t first, int64_t last, const QuantRow& to) const {
  kernels_.quantise(x + first, last - first, to.q + first, to.scale + first / kGroup,
                    to.offset + first / kGroup);
}

// Every row of h once; pair_quant_ then mirrors x_. A few rows are the caller's work: 2,560 columns
// take about half a microsecond, half a join.
void CpuBackend::quantise_pairs(const Rows& h, float* memory) {
  const int64_t n = h.rows, top_k = shape_.top_k;
  row_quant_.resize(static_cast<size_t>(n));
  lay_out(memory, h.cols, row_quant_);
  const int64_t work = n <= kMaxVerify ? 0 : n * h.cols * 4;
  run_tasks(n, work, [&](int64_t i, int) {
    quantise(row_of(h, i), 0, h.cols, row_quant_[static_cast<size_t>(i)]);
  });
  pair_quant_.resize(x_.size());
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t k = 0; k < top_k; ++k)
      pair_quant_[static_cast<size_t>(pair_of_[static_cast<size_t>(i * top_k + k)])] =
          row_quant_[static_cast<size_t>(i)];
    pair_quant_[static_cast<size_t>(n * top_k + i)] = row_quant_[static_cast<size_t>(i)];
  }
}

void CpuBackend::multiply_expert(const Weight& w, int64_t first, int64_t last,
                                 const float* const* x, const QuantRow* quantised, int64_t n,
                                 float* const* y, int64_t at, bool few, int worker) {
  if (w.packed) {
    packed_kernel(packed_, w.cols, w.rows).product(packed_of(w), first, last, quantised, n, y, at);
  } else {
    multiply_block(matrix_of(w), first, last, x, n, y, at, few, worker);
  }
}

void CpuBackend::experts(const Rows& h, const Moe& moe, const Ints& ids, const Rows& weights,
                         const Rows& o) {
  const int64_t n = h.rows, top_k = shape_.top_k, hidden = shape_.hidden;
  gather_pairs(h, moe, ids);
  const auto ffn = [&](const Routed& r) -> const Ffn& {
    return r.expert < 0 ? moe.shared : moe.experts[static_cast<size_t>(r.expert)];
  };
  int64_t width = 0, rows = 0, work = 0;
  bool packed_in = false, packed_out = false;  // some expert wants quantised rows, activations
  for (const Routed& r : routed_) {
    const Ffn& f = ffn(r);
    const bool in = f.gate.packed || f.up.packed;
    packed_in |= in;
    packed_out |= f.down.packed;
    ++(in && f.down.packed ? counters_.packed_experts : counters_.plain_experts);
    width = std::max(width, f.gate.rows);
    rows += f.gate.rows;
    work += r.count * f.gate.rows * hidden;
    count(f.gate);
    count(f.up);
    count(f.down);
  }
  const int64_t pairs = n * (top_k + 1), stride = round_up(width, kLanes);
  const int64_t row_quant = packed_in ? quant_floats(n, hidden) : 0;
  const int64_t act_quant = packed_out ? quant_floats(pairs, stride) : 0;
  float* act = shared_floats(2 * pairs * stride + row_quant + act_quant);
  y_.resize(static_cast<size_t>(2 * pairs));
  float** gate_rows = y_.data();
  float** up_rows = gate_rows + pairs;
  for (int64_t p = 0; p < pairs; ++p) {
    gate_rows[p] = act + p * stride;
    up_rows[p] = act + (pairs + p) * stride;
  }

  if (packed_in) quantise_pairs(h, act + 2 * pairs * stride);
  act_quant_.resize(static_cast<size_t>(packed_out ? pairs : 0));
  lay_out(act + 2 * pairs * stride + row_quant, stride, act_quant_);

  const bool routed_few = experts_direct(n), shared_few = direct(n);
  // Packed kernels work in tiles, and a task quantises its own activations in whole groups.
  int64_t block = block_rows(rows, hidden, routed_few && shared_few);
  if (packed_in || packed_out) block = round_up(block, kGroup);
  const int64_t blocks = ceil_div(width, block);
  const auto used = static_cast<int64_t>(routed_.size());
  // Down: a task takes some hidden columns of every pair, so that it can finish their sums.
  static_assert(kLanes == kTileRows);
  const int64_t fair = round_up(ceil_div(hidden, 4 * team_.size()), kLanes);
  const int64_t columns = std::min<int64_t>(
      {64, fair, std::max<int64_t>(kLanes, kSumFloats / pairs / kLanes * kLanes)});
  const int64_t down_floats = columns * stride;  // decoded weights of one block
  reserve_workers(std::max(block * round_up(hidden, kLanes), down_floats + pairs * columns));
  out_.resize(static_cast<size_t>(pairs * team_.size()));

  run_tasks(used * blocks, 2 * work, [&](int64_t task, int worker) {
    const Routed& r = routed_[static_cast<size_t>(task / blocks)];
    const Ffn& f = ffn(r);
    const int64_t first = task % blocks * block, last = std::min(first + block, f.gate.rows);
    if (first >= last) return;
    const float* const* x = x_.data() + r.first;
    const QuantRow* quantised = packed_in ? pair_quant_.data() + r.first : nullptr;
    float* const* gate = gate_rows + r.first;
    float* const* up = up_rows + r.first;
    const bool few = r.expert < 0 ? shared_few : routed_few;
    multiply_expert(f.gate, first, last, x, quantised, r.count, gate, first, few, worker);
    multiply_expert(f.up, first, last, x, quantised, r.count, up, first, few, worker);
    const auto limit = static_cast<float>(r.expert < 0 ? moe.shared_limit : moe.routed_limit);
    for (int64_t i = 0; i < r.count; ++i) {
      kernels_.swiglu(gate[i] + first, up[i] + first, limit, last - first);
      if (f.down.packed)
        quantise(gate[i], first, last, act_quant_[static_cast<size_t>(r.first + i)]);
    }
  });

  run_tasks(ceil_div(hidden, columns), work, [&](int64_t task, int worker) {
    const int64_t first = task * columns, last = std::min(first + columns, hidden);
    float* out = worker_floats(worker, 0) + down_floats;
    float** out_rows = out_.data() + worker * pairs;
    for (int64_t p = 0; p < pairs; ++p) out_rows[p] = out + p * columns;
    for (const Routed& r : routed_)
      multiply_expert(ffn(r).down, first, last, gate_rows + r.first,
                      packed_out ? act_quant_.data() + r.first : nullptr, r.count,
                      out_rows + r.first, 0, r.expert < 0 ? shared_few : routed_few, worker);
    for (int64_t i = 0; i < n; ++i) {
      float* sum = row_of(o, i) + first;
      const int64_t* slot = pair_of_.data() + i * top_k;
      kernels_.scale(row_of(weights, i)[0], out_rows[slot[0]], sum, last - first);
      for (int64_t k = 1; k < top_k; ++k)
        kernels_.axpy(row_of(weights, i)[k], out_rows[slot[k]], sum, last - first);
      if (moe.shared.gate) kernels_.add(sum, out_rows[n * top_k + i], last - first);
    }
  });
}

}  // namespace spk::cpu
