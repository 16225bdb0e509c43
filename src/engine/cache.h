// What the layers carry between steps: latents per token, recurrent matrices, convolution tails.
//
// Owns the layout and the sizes; the memory is the back end's. One sequence lives in it. A KDA
// state cannot be rewound, only continued, reset, or put back to the one place where it was saved;
// the latents are indexed by position and need none of that.
#pragma once

#include "backend/backend.h"
#include "model/model.h"

#include <cstdint>
#include <span>
#include <vector>

namespace spk {

class Cache {
 public:
  // With `saves` there is room for save().
  Cache(const Model& model, int64_t context, bool saves, Backend& backend);

  std::span<const LayerState> layers() const { return layers_; }
  const LayerState& mtp() const { return mtp_; }
  // Zeroes recurrent matrices and tails: the state before the first token.
  void reset();
  // Copies recurrent matrices and tails aside, and back.
  void save();
  void restore();

  // Bytes for `context` tokens; what the constructor allocates.
  static int64_t bytes(const ModelConfig& config, bool mtp, int64_t context, bool saves,
                       size_t real_bytes);

 private:
  Backend& backend_;
  std::vector<LayerState> layers_;
  LayerState mtp_;
  std::vector<LayerState> saved_;  // kda_state and conv_tail of each layer; empty: no room
};

// The activations of one step of at most `rows` rows, `head_rows` of them through the LM head at a
// time.
Scratch make_scratch(const ModelShape& shape, bool mtp, int64_t rows, int64_t head_rows,
                     Backend& backend);
int64_t scratch_bytes(const ModelShape& shape, bool mtp, int64_t rows, int64_t head_rows,
                      size_t real_bytes);

}  // namespace spk
