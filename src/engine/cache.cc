#include "engine/cache.h"

#include "base/types.h"

#include <algorithm>

namespace spk {
namespace {

// Hands out consecutive aligned pieces: either of real memory, or (backend null) only their sum.
class Carver {
 public:
  Carver(Backend* backend, size_t real_bytes, const char* label)
      : backend_(backend), real_bytes_(real_bytes), label_(label) {}

  Rows rows(int64_t count, int64_t cols) {
    const Buffer buffer = take(static_cast<size_t>(count * cols) * real_bytes_);
    return {buffer, 0, count, cols, cols};
  }
  Ints ints(int64_t count, int64_t cols) {
    const Buffer buffer = take(static_cast<size_t>(count * cols) * sizeof(int32_t));
    return {buffer, 0, count, cols, cols};
  }
  int64_t bytes() const { return bytes_; }

 private:
  Buffer take(size_t bytes) {
    bytes_ += round_up(static_cast<int64_t>(bytes), 64);
    return backend_ ? backend_->alloc(bytes, label_) : Buffer{};
  }

  Backend* backend_;
  size_t real_bytes_;
  const char* label_;
  int64_t bytes_ = 0;
};

LayerState carve_layer(const ModelShape& s, bool mla, int64_t context, Carver& carver) {
  LayerState state;
  if (mla) {
    state.latent = carver.rows(context, s.latent + s.rope);
  } else {
    state.kda_state = carver.rows(s.heads * s.head_dim, s.head_dim);
    state.conv_tail = carver.rows(3 * (s.conv_kernel - 1), s.heads * s.head_dim);
    state.record_in = carver.rows(3 * kMaxVerify, s.heads * s.head_dim);
    state.record_k = carver.rows(kMaxVerify, s.heads * s.head_dim);
    state.record_u = carver.rows(kMaxVerify, s.heads * s.head_dim);
    state.record_g = carver.rows(kMaxVerify, s.heads * s.head_dim);
  }
  return state;
}

// What save() keeps of a layer.
LayerState carve_saved(const ModelShape& s, bool mla, Carver& carver) {
  LayerState state;
  if (mla) return state;
  state.kda_state = carver.rows(s.heads * s.head_dim, s.head_dim);
  state.conv_tail = carver.rows(3 * (s.conv_kernel - 1), s.heads * s.head_dim);
  return state;
}

Scratch carve_scratch(const ModelShape& s, bool mtp, int64_t rows, int64_t head_rows,
                      Carver& carver) {
  const int64_t kda = s.heads * s.head_dim;
  Scratch t;
  t.x = carver.rows(rows, s.hidden);
  t.h = carver.rows(rows, s.hidden);
  t.o = carver.rows(rows, s.hidden);
  t.q = carver.rows(rows, std::max(kda, s.heads * (s.nope + s.rope)));
  t.k = carver.rows(rows, kda);
  t.v = carver.rows(rows, kda);
  t.f = carver.rows(rows, kda);
  t.g = carver.rows(rows, kda);
  t.beta = carver.rows(rows, s.heads);
  if (s.q_lora) t.q_a = carver.rows(rows, s.q_lora);
  t.kv = carver.rows(rows, s.latent + s.rope);
  t.q_latent = carver.rows(rows, s.heads * s.latent);
  t.z = carver.rows(rows, s.heads * s.latent);
  t.mix = carver.rows(rows, s.heads * std::max(s.head_dim, s.v_dim));
  t.gate = carver.rows(rows, std::max(s.dense, s.shared_dim));
  t.up = carver.rows(rows, std::max(s.dense, s.shared_dim));
  t.route_weight = carver.rows(rows, s.top_k);
  t.route_id = carver.ints(rows, s.top_k);
  t.hidden = carver.rows(1 + rows, s.hidden);
  if (mtp) t.joined = carver.rows(rows, 2 * s.hidden);
  t.logits = carver.rows(head_rows, s.vocab);
  return t;
}

}  // namespace

Cache::Cache(const Model& model, int64_t context, bool saves, Backend& backend)
    : backend_(backend) {
  Carver carver(&backend, backend.real_bytes(), "caches");
  const ModelShape& s = model.config.shape;
  for (const Layer& layer : model.layers)
    layers_.push_back(carve_layer(s, layer.is_mla, context, carver));
  if (model.mtp) mtp_ = carve_layer(s, true, context, carver);
  for (size_t i = 0; saves && i < model.layers.size(); ++i)
    saved_.push_back(carve_saved(s, model.layers[i].is_mla, carver));
}

void Cache::reset() {
  for (const LayerState& state : layers_) {
    if (!state.kda_state.buffer) continue;
    backend_.zero(state.kda_state);
    backend_.zero(state.conv_tail);
  }
}

void Cache::save() {
  for (size_t i = 0; i < saved_.size(); ++i) {
    if (!saved_[i].kda_state.buffer) continue;
    backend_.copy(layers_[i].kda_state, saved_[i].kda_state);
    backend_.copy(layers_[i].conv_tail, saved_[i].conv_tail);
  }
}

void Cache::restore() {
  for (size_t i = 0; i < saved_.size(); ++i) {
    if (!saved_[i].kda_state.buffer) continue;
    backend_.copy(saved_[i].kda_state, layers_[i].kda_state);
    backend_.copy(saved_[i].conv_tail, layers_[i].conv_tail);
  }
}

int64_t Cache::bytes(const ModelConfig& config, bool mtp, int64_t context, bool saves,
                     size_t real_bytes) {
  Carver carver(nullptr, real_bytes, "");
  for (bool mla : config.is_mla) carve_layer(config.shape, mla, context, carver);
  if (mtp) carve_layer(config.shape, true, context, carver);
  for (bool mla : config.is_mla)
    if (saves) carve_saved(config.shape, mla, carver);
  return carver.bytes();
}

Scratch make_scratch(const ModelShape& shape, bool mtp, int64_t rows, int64_t head_rows,
                     Backend& backend) {
  Carver carver(&backend, backend.real_bytes(), "activations");
  return carve_scratch(shape, mtp, rows, head_rows, carver);
}

int64_t scratch_bytes(const ModelShape& shape, bool mtp, int64_t rows, int64_t head_rows,
                      size_t real_bytes) {
  Carver carver(nullptr, real_bytes, "");
  carve_scratch(shape, mtp, rows, head_rows, carver);
  return carver.bytes();
}

}  // namespace spk
