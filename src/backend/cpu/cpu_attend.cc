// Attention in latent space: softmax over the cached latents, for a few queries or a whole prompt
// chunk.
//
// A query is one head of one row; all queries share the cache, so a task takes a tile of them and
// reads each cached row once for the tile. Positions are cut on a fixed grid: blocks of kBlock
// inside segments of kSegment. Inside a segment the softmax is kept relative to the largest score
// so far; segments are merged in order. The grid depends on positions alone, so a query's bits
// depend neither on the tile, nor on the team, nor on the rows computed with it; and segments of a
// long context can be shared out when there are too few queries to keep all workers busy.
#include "backend/cpu/cpu.h"
#include "base/error.h"
#include "base/types.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace spk::cpu {
namespace {

constexpr int64_t kBlock =
    128;  // 128 * 576 floats: 288 KiB of cache rows stay in L2 between scores and sums
constexpr int64_t kSegment = 1024;  // a context of 256K has 256 of them

}  // namespace

// Scratch of a task: a segment's sum, the total, and their two numbers per query each; queries and
// scores; when rounded also the weights of a block, and a block as panels.
int64_t CpuBackend::attend_floats(int64_t tile, bool rounded) const {
  const int64_t latent = shape_.latent, width = latent + shape_.rope;
  const int64_t sums = 2 * (latent + 2);
  if (!rounded) return tile * (sums + width + kBlock);
  return tile * (sums + bf16_size(width) / 2 + kBlock + bf16_size(kBlock) / 2) +
         std::max(bf16_panel_floats(kBlock, width), bf16_panel_floats(latent, kBlock));
}

void CpuBackend::gather_query(const Attention& a, int64_t u, float* query) const {
  const int64_t i = a.row_of_query(u), h = a.head_of_query(u);
  std::copy_n(row_of(a.q_latent, i) + h * shape_.latent, shape_.latent, query);
  std::copy_n(row_of(a.q, i) + h * (shape_.nope + shape_.rope) + shape_.nope, shape_.rope,
              query + shape_.latent);
}

// One query's scores of a block become weights, relative to the largest score so far; what is not
// visible weighs nothing.
void CpuBackend::soften(float* scores, int64_t visible, int64_t block, const Partial& to,
                        int64_t t) const {
  const int64_t latent = shape_.latent;
  if (visible > 0) {
    kernels_.scale(1.f / std::sqrt(static_cast<float>(shape_.nope + shape_.rope)), scores, scores,
                   visible);
    const float top = std::max(to.top[t], kernels_.largest(scores, visible));
    float keep = to.top[t] - top;  // minus infinity at first: the factor becomes 0
    kernels_.exp_of(&keep, &keep, 1);
    if (keep != 1.f) kernels_.scale(keep, to.z + t * latent, to.z + t * latent, latent);
    to.top[t] = top;
    to.sum[t] = to.sum[t] * keep + kernels_.exp_sum(scores, top, scores, visible);
  }
  std::fill(scores + visible, scores + block, 0.f);
}

// Empties the sums of a segment's queries and says how many positions each of them sees; returns
// where the segment ends for the last.
int64_t CpuBackend::begin_segment(const Attention& a, int64_t first_query, int64_t count,
                                  int64_t segment, const Partial& to, int64_t* seen) const {
  for (int64_t t = 0; t < count; ++t) {
    seen[t] = a.row_of_query(first_query + t) + step_.first_position + 1;
    to.top[t] = -std::numeric_limits<float>::infinity();
    to.sum[t] = 0;
  }
  std::fill_n(to.z, count * shape_.latent, 0.f);
  return std::min((segment + 1) * kSegment, seen[count - 1]);
}

void CpuBackend::attend_segment(const Attention& a, int64_t first_query, int64_t count,
                                int64_t segment, const Partial& to, float* work) {
  if (a.rounded) return attend_rounded_segment(a, first_query, count, segment, to, work);
  const int64_t latent = shape_.latent, width = latent + shape_.rope;
  float* scores = work + a.tile * width;
  const float* queries[kAttendTile];
  float* score_rows[kAttendTile];
  int64_t seen[kAttendTile];  // positions that the query sees
  for (int64_t t = 0; t < count; ++t) {
    float* query = work + t * width;
    gather_query(a, first_query + t, query);
    queries[t] = query;
    score_rows[t] = scores + t * kBlock;
  }
  const int64_t end = begin_segment(a, first_query, count, segment, to, seen);
  for (int64_t m = segment * kSegment; m < end; m += kBlock) {
    const int64_t block = std::min(kBlock, end - m);
    kernels_.dots(row_of(a.latent, m), a.latent.stride, block, width, queries, count, score_rows,
                  0);
    for (int64_t t = 0; t < count; ++t)
      soften(score_rows[t], std::clamp<int64_t>(seen[t] - m, 0, block), block, to, t);
    kernels_.gemm({count, latent, block, scores, kBlock, 1, row_of(a.latent, m), a.latent.stride,
                   to.z, latent, Accumulate::kAdd});
  }
}

// The same with queries, cached rows and weights rounded to BF16 (bf16.h): sums stay floats.
void CpuBackend::attend_rounded_segment(const Attention& a, int64_t first_query, int64_t count,
                                        int64_t segment, const Partial& to, float* work) {
  const int64_t latent = shape_.latent, width = latent + shape_.rope;
  const auto take = [&](int64_t floats) {
    float* here = work;
    work += a.tile * floats;
    return here;
  };
  const int64_t query_floats = bf16_size(width) / 2, weight_floats = bf16_size(kBlock) / 2;
  float *queries = take(query_floats), *scores = take(kBlock), *weights = take(weight_floats);
  float* const panels = work;
  const uint16_t *query_rows[kRoundedTile], *weight_rows[kRoundedTile];
  float *score_rows[kRoundedTile], *sums[kRoundedTile];
  int64_t seen[kRoundedTile];
  for (int64_t t = 0; t < count; ++t) {
    auto* const query = reinterpret_cast<uint16_t*>(queries + t * query_floats);
    gather_query(a, first_query + t, panels);
    bf16_->round(panels, width, query);
    query_rows[t] = query;
    weight_rows[t] = reinterpret_cast<uint16_t*>(weights + t * weight_floats);
    score_rows[t] = scores + t * kBlock;
    sums[t] = to.z + t * latent;
  }
  const int64_t end = begin_segment(a, first_query, count, segment, to, seen);
  for (int64_t m = segment * kSegment; m < end; m += kBlock) {
    const int64_t block = std::min(kBlock, end - m);
    const float* const rows = row_of(a.latent, m);
    bf16_->float_panels(rows, a.latent.stride, block, width, panels);
    bf16_->panel_dots(panels, block, width, query_rows, count, score_rows, 0, false);
    for (int64_t t = 0; t < count; ++t) {
      soften(score_rows[t], std::clamp<int64_t>(seen[t] - m, 0, block), block, to, t);
      bf16_->round(score_rows[t], block, reinterpret_cast<uint16_t*>(weights + t * weight_floats));
    }
    bf16_->float_panels_across(rows, a.latent.stride, block, latent, panels);
    bf16_->panel_dots(panels, latent, block, weight_rows, count, sums, 0, true);
  }
}

// to = to + from, both relative to the larger of their largest scores.
void CpuBackend::merge(const Partial& from, const Partial& to, int64_t count, bool first) const {
  const int64_t latent = shape_.latent;
  for (int64_t t = 0; t < count; ++t) {
    float* z = to.z + t * latent;
    if (first) {
      std::copy_n(from.z + t * latent, latent, z);
      to.top[t] = from.top[t];
      to.sum[t] = from.sum[t];
      continue;
    }
    if (from.sum[t] == 0.f) continue;  // the query ends before this segment
    const float top = std::max(from.top[t], to.top[t]);
    float factor[2] = {to.top[t] - top, from.top[t] - top};
    kernels_.exp_of(factor, factor, 2);
    kernels_.scale(factor[0], z, z, latent);
    kernels_.axpy(factor[1], from.z + t * latent, z, latent);
    to.sum[t] = to.sum[t] * factor[0] + from.sum[t] * factor[1];
    to.top[t] = top;
  }
}

void CpuBackend::finish(const Attention& a, int64_t first_query, int64_t count,
                        const Partial& total) const {
  for (int64_t t = 0; t < count; ++t) {
    const int64_t i = a.row_of_query(first_query + t), h = a.head_of_query(first_query + t);
    kernels_.scale(1.f / total.sum[t], total.z + t * shape_.latent,
                   row_of(a.z, i) + h * shape_.latent, shape_.latent);
  }
}

void CpuBackend::attend_tile(const Attention& a, int64_t first_query, int64_t count, float* work) {
  const auto partial = [&] {
    const Partial p{work, work + a.tile * shape_.latent, work + a.tile * (shape_.latent + 1)};
    work += a.tile * (shape_.latent + 2);
    return p;
  };
  const Partial piece = partial(), total = partial();
  const int64_t last_row = a.row_of_query(first_query + count - 1);
  const int64_t segments = ceil_div(step_.first_position + last_row + 1, kSegment);
  for (int64_t s = 0; s < segments; ++s) {
    attend_segment(a, first_query, count, s, piece, work);
    merge(piece, total, count, s == 0);
  }
  finish(a, first_query, count, total);
}

int64_t CpuBackend::attended_bytes(int64_t rows, const LayerState& state) const {
  return (step_.first_position + rows) * state.latent.cols * static_cast<int64_t>(sizeof(float));
}

void CpuBackend::latent_attend(const Rows& q_latent, const Rows& q, const LayerState& state,
                               const Rows& z) {
  const int64_t queries = q.rows * shape_.heads, workers = team_.size();
  const int64_t positions = step_.first_position + q.rows;
  const int64_t segments = ceil_div(positions, kSegment);
  // Small tiles keep all workers busy, large ones read the cache less often.
  const bool rounded = bf16_ && step_.kind == StepKind::kPrefill;
  const int64_t most = rounded ? kRoundedTile : kAttendTile;
  const int64_t tile = ceil_div(queries, round_up(ceil_div(queries, most), workers));
  const int64_t tiles = ceil_div(queries, tile), floats = attend_floats(tile, rounded);
  const Attention a{q_latent, q, state.latent, z, tile, rounded, 0, shape_.heads};
  const int64_t work = queries * positions * (2 * shape_.latent + shape_.rope);
  reserve_workers(floats);
  const auto count_of = [&](int64_t t) { return std::min(tile, queries - t * tile); };
  counters_.state_bytes += static_cast<uint64_t>(attended_bytes(q.rows, state));
  if (tiles >= workers || segments == 1) {
    run_tasks(tiles, work, [&](int64_t t, int worker) {
      attend_tile(a, t * tile, count_of(t), worker_floats(worker, floats));
    });
    return;
  }
  // Few queries and a long context: the segments are shared out, then merged in order. The buffer
  // is sized for the whole cache at once, so that it does not grow with the context.
  const int64_t sums = tile * (shape_.latent + 2);
  float* pieces = shared_floats(ceil_div(state.latent.rows, kSegment) * tiles * sums);
  const auto piece = [&](int64_t t, int64_t s) {
    float* p = pieces + (t * segments + s) * sums;
    return Partial{p, p + tile * shape_.latent, p + tile * (shape_.latent + 1)};
  };
  run_tasks(tiles * segments, work, [&](int64_t task, int worker) {
    const int64_t t = task / segments, s = task % segments;
    attend_segment(a, t * tile, count_of(t), s, piece(t, s), worker_floats(worker, floats));
  });
  run_tasks(tiles, queries * segments * shape_.latent, [&](int64_t t, int) {
    for (int64_t s = 1; s < segments; ++s) merge(piece(t, s), piece(t, 0), count_of(t), false);
    finish(a, t * tile, count_of(t), piece(t, 0));
  });
}

}  // namespace spk::cpu
