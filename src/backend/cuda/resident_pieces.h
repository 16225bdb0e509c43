// What each block brings into its ring of weights in a layer (resident.cuh), listed once by the
// host: a device would work it out anew in every step.
#pragma once

#include "kernels/resident_args.cuh"

#include <cstdint>
#include <vector>

namespace spk::cuda {

struct PieceLists {
  std::vector<gpu::Piece> pieces;  // [blocks, stride], the count in front of each list
  int64_t stride = 0;
};
// layer.pieces is not looked at. Pure function.
PieceLists list_pieces(const gpu::LayerArgs& layer, const gpu::ExchangePlaces& places,
                       int64_t blocks);

}  // namespace spk::cuda
