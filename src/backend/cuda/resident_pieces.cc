#include "backend/cuda/resident_pieces.h"

#include "base/types.h"

#include <algorithm>

namespace spk::cuda {
namespace {

constexpr int kHalf = gpu::kTileGroup / 2;

const unsigned char* row_of(const gpu::Matrix& m, int64_t row) {
  return m.codes + row * m.row_bytes;
}

// Rows [row, row + rows) of a matrix; `scaled`: with the scales of the first.
gpu::Piece rows_of(const gpu::Matrix& m, int64_t row, int64_t rows, bool scaled) {
  const int64_t blocks = m.cols / 128, scale = static_cast<int64_t>(sizeof(float));
  gpu::Piece p{};
  p.codes = row_of(m, row);
  p.bytes = static_cast<int>(rows * m.cols);
  p.scales = m.scales + row / 128 * blocks * scale;
  p.scale_bytes = scaled && rows > 0 ? static_cast<int>(blocks * scale) : 0;
  return p;
}

// The pieces of a tile, each `cut.rows` rows: the upper half from `upper`, the lower one from
// `lower`, with `left` rows of the product from the tile's first one on (all, where the halves are
// of two matrices).
void add_tile(std::vector<gpu::Piece>& to, const gpu::TileCut& cut, const gpu::Matrix& upper,
              const gpu::Matrix& lower, int64_t row, int64_t lower_row, int64_t left, int64_t place,
              gpu::Then then) {
  for (int k = 0; k < cut.pieces; ++k) {
    const int at = k * cut.rows;
    const int64_t rows = std::clamp<int64_t>(left - at, 0, cut.rows);
    const bool in_upper = at < kHalf;
    gpu::Piece p = rows_of(in_upper ? upper : lower, in_upper ? row + at : lower_row + at - kHalf,
                           rows, at % kHalf == 0);
    p.to = static_cast<int>(place);
    p.then = then;
    p.rows = static_cast<short>(
        then == gpu::kPostActivated ? kHalf : std::min<int64_t>(left, gpu::kTileGroup));
    to.push_back(p);
  }
}
void add_product(std::vector<gpu::Piece>& to, const gpu::TileCut& cut, const gpu::Product& p,
                 int64_t tile, int64_t place, gpu::Then then) {
  const int64_t at = tile * gpu::kTileGroup, row = p.first_row + at;
  add_tile(to, cut, p.w, p.w, row, row + kHalf, p.rows - at, place + at, then);
}

gpu::Piece floats(const float* data, int64_t count) {
  gpu::Piece p{};
  p.codes = reinterpret_cast<const unsigned char*>(data);
  p.bytes = static_cast<int>(count * static_cast<int64_t>(sizeof(float)));
  return p;
}

std::vector<gpu::Piece> pieces_of(const gpu::LayerArgs& l, const gpu::ExchangePlaces& places,
                                  int64_t block, int64_t blocks) {
  std::vector<gpu::Piece> to(1);
  if (l.before.w) to.push_back(floats(l.before.w, l.before.cols));
  for (int64_t tile = block; tile < l.in.groups; tile += blocks) {
    int k = 0;
    while (k + 1 < l.in.count && tile >= l.in.p[k + 1].first_group) ++k;
    const gpu::Product& p = l.in.p[k];
    add_product(to, l.cut[gpu::kStageIn], p, tile - p.first_group, places.products + k * p.rows,
                k == l.gate ? gpu::kPostSigmoid : gpu::kPost);
  }
  // In front of experts the residual takes the product at once.
  const int64_t tiles = ceil_div(l.out.rows, gpu::kTileGroup);
  for (int64_t tile = block; tile < tiles; tile += blocks)
    add_product(to, l.cut[gpu::kStageOut], l.out, tile, l.feeds ? places.residual : 0,
                l.feeds ? gpu::kPostSum : gpu::kLeave);
  if (l.feeds) {
    to.push_back(floats(l.behind.w, l.behind.cols));
    for (int64_t row = block; row < l.route.experts; row += blocks) {
      gpu::Piece p{};
      p.codes = row_of(l.router, row);
      p.bytes = static_cast<int>(l.router.row_bytes);
      to.push_back(p);
    }
    // `to` has the count in front.
    const int shared_pieces = l.cut[gpu::kStageShared].pieces;
    if (l.shared_waits && block < l.e.shared_width / kHalf)
      while ((static_cast<int64_t>(to.size()) - 1 + shared_pieces) % gpu::kResidentSlots != 0)
        to.push_back({});
    for (int64_t tile = block; tile < l.e.shared_width / kHalf; tile += blocks)
      add_tile(to, l.cut[gpu::kStageShared], l.e.shared.gate, l.e.shared.up, tile * kHalf,
               tile * kHalf, gpu::kTileGroup, places.shared + tile * kHalf, gpu::kPostActivated);
  }
  to.front().bytes = static_cast<int>(to.size()) - 1;
  return to;
}

}  // namespace

PieceLists list_pieces(const gpu::LayerArgs& layer, const gpu::ExchangePlaces& places,
                       int64_t blocks) {
  std::vector<std::vector<gpu::Piece>> all;
  PieceLists lists;
  for (int64_t block = 0; block < blocks; ++block) {
    all.push_back(pieces_of(layer, places, block, blocks));
    lists.stride = std::max(lists.stride, static_cast<int64_t>(all.back().size()));
  }
  lists.pieces.resize(static_cast<size_t>(blocks * lists.stride));
  for (int64_t block = 0; block < blocks; ++block)
    std::copy(all[static_cast<size_t>(block)].begin(), all[static_cast<size_t>(block)].end(),
              lists.pieces.begin() + block * lists.stride);
  return lists;
}

}  // namespace spk::cuda
