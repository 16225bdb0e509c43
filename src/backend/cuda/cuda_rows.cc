// Verbs over rows, and products of activations with stored weights.
#include "backend/cuda/cuda.h"
#include "base/error.h"
#include "base/types.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace spk::cuda {
namespace {

constexpr int64_t kThreads = gpu::kThreads;

int64_t blocks(int64_t n, int64_t per_block = kThreads) { return ceil_div(n, per_block); }
// Groups of weight rows that blocks work off.
int64_t groups_of(int64_t rows, int64_t bucket, bool tiles) {
  return ceil_div(rows, tiles ? gpu::kTileGroup : gpu::group_rows(static_cast<int>(bucket)));
}
Format stored_format(const Weight& w) { return w.rows == 1 ? Format::kF32 : w.format; }
bool use_tiles(const Weight& w) { return takes_tiles(stored_format(w), w.cols); }
// A BF16 product this small goes along with the others of the same x.
constexpr int64_t kMostSideRows = 256;

}  // namespace

void CudaBackend::embed(const Weight& table, const Ints& tokens, const Rows& y) {
  const gpu::IntView ids = view_of(tokens);
  launch(embed_kernel(stored_format(table)), {y.rows}, kThreads,
         gpu::EmbedArgs{matrix_of(table), ids.data, ids.stride, view_of(y)});
  count(table, y.rows, table.rows);
}

void CudaBackend::rms_norm(const Rows& x, const Weight& w, const Rows& y) {
  if (norm_pending(x, w, y) || hold_first_norm(x, w, y)) return;
  launch(rms_norm_kernel(false), {x.rows}, kThreads,
         gpu::NormArgs{view_of(x),
                       {},
                       view_of(y),
                       floats_of(w),
                       static_cast<int>(x.cols),
                       static_cast<float>(shape_.eps)});
}
void CudaBackend::add_rms_norm(const Rows& x, const Rows& o, const Weight& w, const Rows& y) {
  if (hold_norm(x, o, w, y)) return;
  launch(rms_norm_kernel(true), {x.rows}, kThreads,
         gpu::NormArgs{view_of(x), view_of(o), view_of(y), floats_of(w), static_cast<int>(x.cols),
                       static_cast<float>(shape_.eps)});
}
void CudaBackend::add(const Rows& x, const Rows& o) {
  if (resident_add(x, o) || add_pending(x, o)) return;
  launch(plain_kernel("rows", "add_rows"), {blocks(x.cols), x.rows}, kThreads,
         gpu::AddArgs{view_of(x), view_of(o), static_cast<int>(x.cols)});
}
void CudaBackend::swiglu(const Rows& gate, const Rows& up, double limit) {
  launch(plain_kernel("rows", "swiglu"), {blocks(gate.cols), gate.rows}, kThreads,
         gpu::SwigluArgs{view_of(gate), view_of(up), static_cast<int>(gate.cols),
                         static_cast<float>(limit)});
}
void CudaBackend::norm_gate(const Rows& o, const Rows& gate, const Weight& o_norm) {
  launch(plain_kernel("rows", "norm_gate", shape_.head_dim),
         {blocks(shape_.heads, gpu::kWarps), o.rows}, kThreads,
         gpu::NormGateArgs{view_of(o), view_of(gate), floats_of(o_norm),
                           static_cast<int>(shape_.heads), static_cast<float>(shape_.eps)});
}
void CudaBackend::head_gate(const Rows& o, const Rows& gate) {
  launch(plain_kernel("rows", "head_gate"), {blocks(o.cols), o.rows}, kThreads,
         gpu::HeadGateArgs{view_of(o), view_of(gate), static_cast<int>(o.cols),
                           static_cast<int>(shape_.v_dim)});
}
void CudaBackend::join(const Rows& a, const Rows& b, const Rows& y) {
  copy(a, y.slice_cols(0, a.cols));
  copy(b, y.slice_cols(a.cols, b.cols));
}

// Up to eight rows, and products side by side, take the row-invariant kernel; more rows the tiles.
void CudaBackend::product(const Rows& x, const Weight& w, const Rows& y, const Batch& batch) {
  const auto rows = static_cast<int>(batch.rows ? batch.rows : w.rows);
  if (x.rows > gpu::kMaxRowsInvariant && batch.count == 1) {
    launch(matmul_kernel(stored_format(w)),
           {blocks(rows, gpu::kTileRows), blocks(x.rows, gpu::kTileCols)}, kThreads,
           gpu::ProductArgs{matrix_of(w), view_of(x), view_of(y), static_cast<int>(x.rows), rows,
                            batch.first_row});
    return;
  }
  gpu::ProductsArgs a{};
  a.p[0] = {matrix_of(w), view_of(y), batch.first_row, rows, 0};
  a.x = view_of(x);
  a.count = 1;
  a.n = static_cast<int>(x.rows);
  a.w_batch = batch.w_rows;
  a.x_batch = batch.x_cols;
  a.y_batch = batch.y_cols;
  a.gate = batch.gate;
  launch_products(a, stored_format(w), use_tiles(w), nullptr, batch.count);
}

void CudaBackend::launch_products(gpu::ProductsArgs& a, Format format, bool tiles,
                                  const gpu::Product* side, int64_t batches) {
  const int64_t multiprocessors = device_->info().multiprocessors;
  int64_t bucket = row_bucket(a.n), z = 0;
  const auto cut = [&] {
    z = blocks(a.n, bucket);
    a.groups = 0;
    for (int i = 0; i < a.count; ++i) {
      a.p[i].first_group = a.groups;
      a.groups += static_cast<int>(groups_of(a.p[i].rows, bucket, tiles));
    }
  };
  cut();
  if (!tiles) {
    // What does not fill the device, a router for one, comes out of the L2 for each row anew: a
    // block's time is its chain of sums, so rows go to blocks of their own.
    while (bucket > 1 && a.groups * batches * z < multiprocessors) {
      bucket /= 2;
      cut();
    }
    launch(matvec_kernel(format, bucket), {stream_blocks(a.groups), batches, z}, kThreads, a);
    return;
  }
  const int rows = static_cast<int>(bucket), shared = gpu::tiles_shared(rows);
  const int64_t of_one = std::clamp<int64_t>(static_cast<int64_t>(device_->info().shared) / shared,
                                             1, gpu::tile_blocks(rows));
  gpu::TilesArgs t{};
  t.p = a;
  const int64_t own = stream_blocks(a.groups, of_one), room = multiprocessors * of_one - own;
  int64_t beside = 0;
  t.blocks = t.first_side = static_cast<int>(own);
  if (side) {
    t.side = *side;
    // By blocks of its own where there is room for some; else by those that have a turn less.
    beside = std::min(room, blocks(side->rows * a.n, gpu::kWarps));
    if (beside == 0) t.first_side = static_cast<int>(a.groups % own);
  }
  launch(tiles_kernel(format, bucket), {own + beside, batches, z, shared}, kThreads, t);
}

int64_t CudaBackend::stream_blocks(int64_t groups, int64_t of_one) const {
  return std::min<int64_t>(groups, device_->info().multiprocessors * of_one);
}

void CudaBackend::matmul(const Rows& x, const Weight& w, const Rows& y) {
  SPK_CHECK(x.cols == w.cols && y.cols == w.rows && x.rows == y.rows);
  product(x, w, y, {});
  count(w);
}

// Matrices of one format are streamed by one launch, one behind the other; a small BF16 one goes
// along with those of the matrix unit.
void CudaBackend::matmul_many(const Rows& x, std::span<const Weight* const> w,
                              std::span<const Rows> y) {
  SPK_CHECK(w.size() == y.size());
  if (x.rows > gpu::kMaxRowsInvariant) {
    for (size_t i = 0; i < w.size(); ++i) matmul(x, *w[i], y[i]);
    return;
  }
  std::vector<bool> done(w.size());
  const auto take = [&](size_t i) {
    SPK_CHECK(x.cols == w[i]->cols && y[i].cols == w[i]->rows && x.rows == y[i].rows);
    done[i] = true;
    count(*w[i]);
    return gpu::Product{matrix_of(*w[i]), view_of(y[i]), 0, static_cast<int>(w[i]->rows), 0};
  };
  // Those of the matrix unit first, so that the small one finds them.
  for (const bool tiles : {true, false}) {
    for (size_t first = 0; first < w.size(); ++first) {
      if (done[first] || use_tiles(*w[first]) != tiles) continue;
      const Format format = stored_format(*w[first]);
      gpu::ProductsArgs a{};
      a.x = view_of(x);
      a.n = static_cast<int>(x.rows);
      for (size_t i = first; i < w.size() && a.count < gpu::kMaxProducts; ++i) {
        if (done[i] || stored_format(*w[i]) != format) continue;
        a.p[a.count++] = take(i);
      }
      std::optional<gpu::Product> side;
      for (size_t i = 0; tiles && !side && i < w.size(); ++i)
        if (!done[i] && stored_format(*w[i]) == Format::kBf16 && w[i]->rows <= kMostSideRows)
          side = take(i);
      launch_products(a, format, tiles, side ? &*side : nullptr, 1);
    }
  }
}
void CudaBackend::logits(const Rows& hidden, const LmHead& head, const Rows& y) {
  ++counters_.heads[static_cast<int>(head.format())];
  const Weight* const w = &weight_of(head);
  matmul(hidden, *w, y);
}

void CudaBackend::latent_expand(const Rows& z, const Weight& kv_b, const Rows& o) {
  expand(z, kv_b, o, {});
}
// W_UV of kv_b: one product a head.
void CudaBackend::expand(const Rows& z, const Weight& kv_b, const Rows& o, const gpu::View& gate) {
  const int64_t per_head = shape_.nope + shape_.v_dim;
  product(z, kv_b, o,
          {shape_.heads, shape_.nope, shape_.v_dim, per_head, shape_.latent, shape_.v_dim, gate});
  count(kv_b, shape_.v_dim, per_head);
}

}  // namespace spk::cuda
