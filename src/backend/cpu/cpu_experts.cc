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

// Up to so many bytes of a matrix are asked for a whole task ahead: two tasks' worth must stay in
// the nearest cache.
constexpr int64_t kAskedBytes = 12 * 1024;

// Rows [first, last) of a matrix that is multiplied next, for PackedProduct; their scales are on
// their way. Null where memory is not to be asked for them.
const uint8_t* asked(const Weight& w, int64_t first, int64_t last) {
  if (!w.packed || (last - first) * w.cols / 2 > kAskedBytes) return nullptr;
  const PackedMatrix m = packed_of(w);
  const int64_t tile_scales = m.cols / kGroup * kTileRows;
  const uint8_t* scales = m.scales + first / kTileRows * tile_scales;
  for (int64_t at = 0; at < (last - first) / kTileRows * tile_scales; at += 64)
    __builtin_prefetch(scales + at);
  return codes_of(m, first);
}

}  // namespace

// A prompt's chunk brings an expert of a wide model only a few rows, for which making panels costs
// more than they save. A property of the model, so that it does not depend on where a prompt is
// cut.
bool CpuBackend::experts_direct(int64_t n) const {
  return direct(n) || shape_.experts > kDirectFrom * shape_.top_k;
}

// Fills routed_ (the shared expert as -1, the longest task, then used ones, ascending),
// pair_of_[row * top_k + slot] and x_.
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
  if (moe.shared.gate) routed_.push_back({-1, n * top_k, n});
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
  run_rows(n, h.cols * 4, [&](int64_t i, int) {
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

void CpuBackend::multiply_expert(const Weight& w, int64_t first, int64_t last, const Inputs& x,
                                 int64_t n, float* const* y, int64_t at, bool few, int worker,
                                 const uint8_t* ahead) {
  if (w.packed) {
    packed_kernel(packed_, w.cols, w.rows)
        .product(packed_of(w), first, last, x.quantised, n, y, at, ahead);
  } else {
    multiply_block(matrix_of(w), first, last, x, n, y, at, few, worker);
  }
}

// Counts the call's experts, lays out their activations and brings the rows of h into the forms
// that some expert wants.
CpuBackend::ExpertsRun CpuBackend::prepare_experts(const Rows& h, const Moe& moe, const Ints& ids) {
  ExpertsRun run;
  gather_pairs(h, moe, ids);
  const int64_t n = h.rows, top_k = shape_.top_k;
  const auto used = static_cast<int64_t>(routed_.size());
  for (Routed& r : routed_) {
    r.ffn = r.expert < 0 ? &moe.shared : &moe.experts[static_cast<size_t>(r.expert)];
    r.limit = static_cast<float>(r.expert < 0 ? moe.shared_limit : moe.routed_limit);
    r.few = r.expert < 0 ? direct(n) : experts_direct(n);
    const Ffn& f = *r.ffn;
    const bool in = f.gate.packed || f.up.packed;
    run.packed_in |= in;
    run.packed_out |= f.down.packed;
    r.rounded = takes_rounded(f.down);
    run.rounded_pairs += r.rounded ? r.count : 0;
    run.rounded |= r.rounded || takes_rounded(f.gate) || takes_rounded(f.up);
    run.few &= r.few;
    ++(in && f.down.packed ? counters_.packed_experts : counters_.plain_experts);
    run.width = std::max(run.width, f.gate.rows);
    run.rows += f.gate.rows;
    run.work += r.count * f.gate.rows * h.cols;
    count(f.gate);
    count(f.up);
    count(f.down);
  }
  SPK_CHECK(used > 0);
  run.pairs = n * (top_k + 1);
  run.stride = round_up(run.width, kLanes);
  const auto pairs = static_cast<size_t>(run.pairs);
  const int64_t floats = 2 * run.pairs * run.stride;
  const int64_t row_quant = run.packed_in ? quant_floats(n, h.cols) : 0;
  const int64_t act_quant = run.packed_out ? quant_floats(run.pairs, run.stride) : 0;
  float* memory = shared_floats(floats + row_quant + act_quant);
  y_.resize(2 * pairs);
  for (size_t p = 0; p < 2 * pairs; ++p) y_[p] = memory + static_cast<int64_t>(p) * run.stride;
  if (run.packed_in) quantise_pairs(h, memory + floats);
  act_quant_.resize(run.packed_out ? pairs : 0);
  lay_out(memory + floats + row_quant, run.stride, act_quant_);
  if (run.rounded) round_pairs(h, run);
  return run;
}

// As quantise_pairs, for rounded_pairs_; act_rounded_ gets memory for the experts that want it.
void CpuBackend::round_pairs(const Rows& h, const ExpertsRun& run) {
  const int64_t n = h.rows, top_k = shape_.top_k;
  const auto pairs = static_cast<size_t>(run.pairs);
  const std::span<uint16_t*> all = rounded_rows(n, h.cols, run.rounded_pairs, run.stride);
  run_rows(n, h.cols, [&](int64_t i, int) {
    bf16_->round(row_of(h, i), h.cols, all[static_cast<size_t>(i)]);
  });
  rounded_pairs_.resize(pairs);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t k = 0; k < top_k; ++k)
      rounded_pairs_[static_cast<size_t>(pair_of_[static_cast<size_t>(i * top_k + k)])] =
          all[static_cast<size_t>(i)];
    rounded_pairs_[static_cast<size_t>(n * top_k + i)] = all[static_cast<size_t>(i)];
  }
  act_rounded_.resize(pairs);
  auto next = all.begin() + n;
  for (const Routed& r : routed_) {
    if (!r.rounded) continue;
    std::copy_n(next, r.count, act_rounded_.begin() + r.first);
    next += r.count;
  }
}

// Gate, up and activation of some columns of one expert, for all its rows. An expert of a small
// model is over before the processor's read-ahead has found it: hence up is asked for while gate is
// multiplied, and what this worker will probably do next (expert null: nothing) while up is.
void CpuBackend::expert_in(const ExpertsRun& run, const ExpertRows& rows, const ExpertRows& next,
                           int worker) {
  const Routed& r = *rows.expert;
  const int64_t first = rows.first, last = rows.last;
  const Ffn& f = *r.ffn;
  const auto at = static_cast<size_t>(r.first);
  const Inputs in{x_.data() + at, run.rounded ? rounded_pairs_.data() + at : nullptr,
                  run.packed_in ? pair_quant_.data() + at : nullptr};
  float* const* gate = y_.data() + at;
  float* const* up = gate + run.pairs;
  multiply_expert(f.gate, first, last, in, r.count, gate, first, r.few, worker,
                  asked(f.up, first, last));
  const uint8_t* ahead =
      next.expert ? asked(next.expert->ffn->gate, next.first, next.last) : nullptr;
  if (ahead && !f.up.packed) {
    const int64_t bytes = (next.last - next.first) * next.expert->ffn->gate.cols / 2;
    for (int64_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(ahead + byte);
  }
  multiply_expert(f.up, first, last, in, r.count, up, first, r.few, worker, ahead);
  for (int64_t i = 0; i < r.count; ++i) {
    kernels_.swiglu(gate[i] + first, up[i] + first, r.limit, last - first);
    const size_t pair = at + static_cast<size_t>(i);
    if (f.down.packed) quantise(gate[i], first, last, act_quant_[pair]);
    if (r.rounded) bf16_->round(gate[i] + first, last - first, act_rounded_[pair] + first);
  }
}

void CpuBackend::experts(const Rows& h, const Moe& moe, const Ints& ids, const Rows& weights,
                         const Rows& o) {
  const int64_t n = h.rows, top_k = shape_.top_k, hidden = shape_.hidden;
  const ExpertsRun run = prepare_experts(h, moe, ids);
  // Packed kernels work in tiles, and a task brings its own activations into whole groups.
  int64_t block = block_rows(run.rows, hidden, run.few);
  if (run.packed_in || run.packed_out) block = round_up(block, kGroup);
  if (run.rounded) block = round_up(block, kBf16Columns);
  const int64_t blocks = ceil_div(run.width, block);
  // Down: a task takes some hidden columns of every pair, so that it can finish their sums.
  static_assert(kLanes == kTileRows);
  const int64_t fair = round_up(ceil_div(hidden, 4 * team_.size()), kLanes);
  const int64_t columns = std::min<int64_t>(
      {64, fair, std::max<int64_t>(kLanes, kSumFloats / run.pairs / kLanes * kLanes)});
  const int64_t down_floats = panel_floats(columns, run.stride);
  reserve_workers(std::max(panel_floats(block, hidden), down_floats + run.pairs * columns));
  out_.resize(static_cast<size_t>(run.pairs * team_.size()));

  const auto used = static_cast<int64_t>(routed_.size());
  const auto rows_of_task = [&](int64_t task) {
    const Routed& r = routed_[static_cast<size_t>(task / blocks)];
    const int64_t first = task % blocks * block;
    return ExpertRows{&r, first, std::min(first + block, r.ffn->gate.rows)};
  };
  const int64_t tasks = used * blocks;
  run_tasks(tasks, 2 * run.work, [&](int64_t task, int worker) {
    const ExpertRows rows = rows_of_task(task);
    if (rows.first >= rows.last) return;
    int64_t ahead = task + team_.size();
    while (ahead < tasks && rows_of_task(ahead).first >= rows_of_task(ahead).last) ++ahead;
    expert_in(run, rows, ahead < tasks ? rows_of_task(ahead) : ExpertRows{}, worker);
  });

  run_tasks(ceil_div(hidden, columns), run.work, [&](int64_t task, int worker) {
    const int64_t first = task * columns, last = std::min(first + columns, hidden);
    float* out = worker_floats(worker, 0) + down_floats;
    float** out_rows = out_.data() + worker * run.pairs;
    for (int64_t p = 0; p < run.pairs; ++p) out_rows[p] = out + p * columns;
    for (const Routed& r : routed_) {
      const auto at = static_cast<size_t>(r.first);
      const Inputs in{y_.data() + at, r.rounded ? act_rounded_.data() + at : nullptr,
                      run.packed_out ? act_quant_.data() + at : nullptr};
      multiply_expert(r.ffn->down, first, last, in, r.count, out_rows + at, 0, r.few, worker,
                      nullptr);
    }
    for (int64_t i = 0; i < n; ++i) {
      const float* shared = moe.shared.gate ? out_rows[n * top_k + i] : nullptr;
      kernels_.weighted_sum(
          {out, columns, pair_of_.data() + i * top_k, row_of(weights, i), top_k, shared},
          last - first, row_of(o, i) + first);
    }
  });
}

}  // namespace spk::cpu
