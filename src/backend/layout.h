// Plain structs that both sides of the back-end seam know: buffers, weights, layers, states, steps.
//
// Owns no memory and has no behaviour beyond slicing. "Real" is the back end's activation type:
// double in reference, float in cpu and cuda. A Buffer may be dereferenced only by the back end
// that made it.
#pragma once

#include "formats/quant.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spk {

struct Buffer {
  void* handle = nullptr;
  size_t bytes = 0;
  explicit operator bool() const { return handle != nullptr; }
};

// A view of real numbers, row-major with a stride, in one buffer.
struct Rows {
  Buffer buffer;
  int64_t offset = 0;  // elements
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements between rows

  Rows slice_rows(int64_t first, int64_t count) const {
    return {buffer, offset + first * stride, count, cols, stride};
  }
  Rows slice_cols(int64_t first, int64_t count) const {
    return {buffer, offset + first, rows, count, stride};
  }
};

// A view of int32 numbers (tokens, positions, expert ids).
struct Ints {
  Buffer buffer;
  int64_t offset = 0;  // elements
  int64_t rows = 0;
  int64_t cols = 1;
  int64_t stride = 1;  // elements between rows

  Ints slice_rows(int64_t first, int64_t count) const {
    return {buffer, offset + first * stride, count, cols, stride};
  }
  Ints slice_cols(int64_t first, int64_t count) const {
    return {buffer, offset + first, rows, count, stride};
  }
  explicit operator bool() const { return static_cast<bool>(buffer); }
};

// A matrix or vector (rows == 1) of the model, in the back end's own keeping.
struct Weight {
  Buffer data;
  Buffer scales;  // layout is the back end's affair
  Buffer tiles;   // the codes once more, in another order, where the back end wants that
  Format format = Format::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t bytes = 0;    // read once per use: codes + scales as stored
  bool packed = false;  // repacked for the expert kernels: only experts() and logits() can read it
  std::string_view name;
  explicit operator bool() const { return static_cast<bool>(data); }
};

// Whether a matrix has a form for packed expert kernels: MXFP4, and rows that are whole groups when
// they are the columns of the next product.
constexpr bool can_pack(Format format, int64_t rows, int64_t cols) {
  return format == Format::kMxfp4 && rows % kGroup == 0 && cols % kGroup == 0;
}

// The dimensions every verb may need. From config.json; see model/config.h for the keys.
struct ModelShape {
  int64_t hidden = 0;
  int64_t vocab = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;  // KDA key = value dim
  int64_t conv_kernel = 4;
  double kda_lower_bound = -5.0;
  int64_t q_lora = 0;  // 0: one q_proj
  int64_t latent = 0;  // kv_lora_rank
  int64_t nope = 0;    // qk_nope_head_dim
  int64_t rope = 0;    // qk_rope_head_dim
  int64_t v_dim = 0;   // v_head_dim
  int64_t dense = 0;   // intermediate_size
  int64_t experts = 0;
  int64_t top_k = 0;
  int64_t groups = 0;
  int64_t keep_groups = 0;
  int64_t expert_dim = 0;  // moe_intermediate_size
  int64_t shared_dim = 0;  // total width of the shared expert
  double routed_scale = 1.0;
  double eps = 1e-6;
  std::vector<double> rope_freq;  // [rope / 2], radians per position, YaRN applied
  double rope_factor = 1.0;       // multiplied into cos and sin (YaRN's attention factor)
};

// Kimi Delta Attention: H heads of D. Names as in the checkpoint.
struct Kda {
  Weight q, k, v, f, g;           // [H*D, hidden]
  Weight b;                       // [H, hidden]
  Weight conv_q, conv_k, conv_v;  // [H*D, kernel]; last tap is the newest token
  Weight a_log;                   // [1, H]
  Weight dt_bias;                 // [1, H*D]
  Weight o_norm;                  // [1, D]
  Weight o;                       // [hidden, H*D]
};

// Gated multi-head latent attention.
struct Mla {
  Weight q;                   // [H*(nope+rope), hidden], or absent when q_lora
  Weight q_a, q_a_norm, q_b;  // [q_lora, hidden], [1, q_lora], [H*(nope+rope), q_lora]
  Weight kv_a;                // [latent+rope, hidden]
  Weight kv_a_norm;           // [1, latent]
  Weight kv_b;   // [H*(nope+v), latent]; per head: nope rows of W_UK, then v rows of W_UV
  Weight g;      // [H, hidden], one gate a head
  Weight dense;  // [hidden, H*v]
};

struct Ffn {
  Weight gate, up;  // [width, hidden]
  Weight down;      // [hidden, width]
};

struct Moe {
  Weight router;             // [experts, hidden]
  Weight bias;               // [1, experts], for the choice only
  std::vector<Ffn> experts;  // [experts], width expert_dim
  Ffn shared;                // width shared_dim
  double routed_limit = 0;   // SwiGLU clamps of this layer, 0: none
  double shared_limit = 0;
  int64_t index = 0;  // column of the route tables
};

struct Layer {
  Weight attn_norm, ffn_norm;  // [1, hidden]
  bool is_mla = false;
  bool is_moe = false;
  Kda kda;
  Mla mla;
  Ffn ffn;
  Moe moe;
};

// The built-in next-token-prediction layer: MLA + MoE around a joined input.
struct MtpLayer {
  Weight enorm, hnorm;  // [1, hidden]
  Weight eh_proj;       // [hidden, 2*hidden]; embedding half first
  Layer layer;
  Weight final_norm;  // [1, hidden]
};

// What one layer carries from step to step, for the one live sequence. KDA or MLA fields are set,
// never both.
struct LayerState {
  Rows kda_state;  // [H*D, D]: per head D keys x D values
  Rows conv_tail;  // [3 * (kernel-1), H*D]: q, k, v blocks, oldest first, inputs before the
                   // convolution
  Rows latent;     // [context, latent + rope]: normed latent, then the rotated key
  // What a verify pass leaves of each row, so that accepted rows can be folded into the state
  // afterwards (KDA only).
  Rows record_in;  // [3 * kMaxVerify, H*D]: q, k, v blocks, inputs before the convolution
  Rows record_k, record_u, record_g;  // [kMaxVerify, H*D]: normalised key, write vector, log decay
};

// Rows of one verify pass: the last committed token and up to seven drafts.
inline constexpr int64_t kMaxVerify = 8;

enum class StepKind : uint8_t {
  kPrefill,  // rows of one prompt chunk; the chunked recurrence is allowed
  kDecode,   // one row, straight into the states
  kVerify,   // the last committed token and its drafts, at most kMaxVerify rows: the recurrent
             // states are not written; the rows run on a private copy, one after another with the
             // one-row recurrence, and leave records
};

// Rows [0, rows) of this step are positions first_position .. first_position + rows - 1 of the
// sequence.
struct Step {
  StepKind kind = StepKind::kDecode;
  int64_t rows = 0;
  int64_t first_position = 0;
  int64_t fold = 0;  // kDecode, kVerify: rows of the verify pass before that were accepted; the
                     // states take them first
  Ints tokens;       // [rows]
  int64_t hidden_first =
      0;            // rows [hidden_first, rows) leave their final-normed hidden in Scratch::hidden
  Ints routes_in;   // [rows, (moe layers + 1) * top_k] or empty: use these experts instead of the
                    // router's choice
  Ints routes_out;  // same shape or empty: the experts that were used
  int64_t route_columns = 0;  // moe layers + 1
  // Set by another thread or a signal: the step ends between two verbs, or inside a slow one.
  const std::atomic<bool>* abort = nullptr;

  void check_abort() const;  // Error(kInterrupted) when it is set
};

// The wave of activations, sized for the largest step.
struct Scratch {
  Rows x, h, o;        // [rows, hidden]: residual stream, normed input, block output
  Rows q, k, v, f, g;  // [rows, H*D] (q also [rows, H*(nope+rope)])
  Rows beta;           // [rows, H]: KDA write strength or MLA head gate
  Rows q_a;            // [rows, q_lora]
  Rows kv;             // [rows, latent+rope]
  Rows q_latent, z;    // [rows, H*latent]
  Rows mix;            // [rows, H*max(D, v)]: what attention hands to the output projection
  Rows gate, up;       // [rows, max(dense, shared_dim)]
  Rows route_weight;   // [rows, top_k]
  Ints route_id;       // [rows, top_k]
  Rows hidden;  // [1 + rows, hidden]: row 0 is the row before this step (carried), then this step's
  Rows joined;  // [rows, 2*hidden]: MTP input
  Rows logits;  // [head rows, vocab]; the head runs over any rows of hidden, this many at a time

  // The first n rows of everything that a block works in; hidden and logits stay whole.
  Scratch first(int64_t n) const;
};

enum class PrecisionMode : uint8_t { kExact, kFast };

// How experts are multiplied. kPlain: codes become floats, activations stay floats. kPacked: MXFP4
// experts repacked at load for integer products with int8 activations, where their format allows.
enum class MoeKernel : uint8_t { kPlain, kPacked };

}  // namespace spk
