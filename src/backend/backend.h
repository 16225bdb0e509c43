// THE seam: what a machine must be able to do to run the family. About 24 verbs, memory, and
// optional fused blocks.
//
// Each verb's meaning is its plain loop in reference.cc; the formulas are those of docs/MODEL.md.
// All verbs take rows of the current step (begin .. end) and run in program order. One instance per
// device; called by the engine thread only. Errors: Error(kResource) for memory and devices; a
// wrong shape is a programmer's error (SPK_CHECK).
#pragma once

#include "backend/layout.h"
#include "backend/lm_head.h"
#include "backend/upload.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace spk {

// Blocks a back end may take whole in steps of at most kMaxVerify rows that are not part of a
// prompt; the bits are those of the verbs. What is fused is decided once, at load, from the plan.
enum class Block : uint8_t { kKda, kMla, kMoe, kFfn };
inline constexpr int kBlocks = 4;

struct FusionPlan {
  bool fused[kBlocks] = {};
  std::string text;  // one line per block for the plan that the engine prints
};

// What has been done so far; differences of two snapshots describe a step.
struct Counters {
  uint64_t weight_bytes =
      0;                     // bytes of weights read (each verb counts the weights that it streams)
  uint64_t state_bytes = 0;  // recurrent state and latents, read + written
  uint64_t joins = 0;        // fork-joins or launches
  // What ran, by kernel: one for each expert (the shared one too) of each call of experts(), and
  // one for each call of logits() by the format of its head.
  uint64_t packed_experts = 0;
  uint64_t plain_experts = 0;
  uint64_t heads[kFormats] = {};
  uint64_t allocations = 0;      // calls of alloc
  uint64_t allocated_bytes = 0;  // now held
};

struct SamplerParams;  // backend/sampler.h

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;    // "reference", "cpu"
  virtual std::string description() const = 0;  // "cpu: avx512, 2 threads"
  // Whether the calling thread does its share of every verb; else its processor time says nothing.
  virtual bool on_host() const { return true; }
  // Returns when everything asked for so far is done, for who measures time.
  virtual void wait() {}
  virtual size_t real_bytes() const = 0;  // 8 in reference, else 4

  // ---- memory: everything before the first step, nothing after ----
  virtual void prepare(const ModelShape& shape) = 0;               // once, before upload
  virtual Buffer alloc(size_t bytes, std::string_view label) = 0;  // zeroed, 64-byte aligned
  // May keep pointing into the tensor's own memory, which must then outlive the back end.
  virtual Weight upload(const HostTensor& tensor) = 0;
  // A matrix that only experts(), or as a draft head logits(), will read. A back end may repack it
  // into memory of its own; then `packed` is set and the tensor's memory is not looked at again,
  // late uploads apart.
  virtual Weight upload_expert(const HostTensor& tensor) { return upload(tensor); }
  // True: upload() reads nothing but vectors and small scales; the rest comes in finish_uploads(),
  // called once after the last upload and before the first step, and is checked there.
  virtual bool uploads_late() const { return false; }
  virtual void finish_uploads(UploadSource&) {}
  // What multiplies this expert matrix: "plain avx512", "packed avx512-vnni 2560x768 (k x n),
  // groups of 32".
  virtual std::string expert_kernel(const Weight& weight) const;
  virtual const Counters& counters() const = 0;
  // Measured read bandwidth of this back end's memory by its own threads, bytes/s; measured once,
  // then remembered.
  virtual double read_bandwidth() = 0;
  // Bytes of the last cache in front of the memory that holds weights.
  virtual int64_t cache_bytes() const;

  // Host access, for tests, snapshots and results. Counts are rows * cols.
  virtual void read(const Rows& from, double* to) = 0;
  virtual void read(const Rows& from, float* to) = 0;
  virtual void write(const double* from, const Rows& to) = 0;
  virtual void read(const Ints& from, int32_t* to) = 0;
  virtual void write(const int32_t* from, const Ints& to) = 0;
  virtual void zero(const Rows& rows) = 0;
  virtual void copy(const Rows& from, const Rows& to) = 0;

  // ---- a step ----
  virtual void begin(const Step& step) = 0;
  virtual void end() = 0;

  // ---- verbs ----
  virtual void embed(const Weight& table, const Ints& tokens, const Rows& y) = 0;
  // y = w * x / sqrt(mean(x^2) + eps)
  virtual void rms_norm(const Rows& x, const Weight& w, const Rows& y) = 0;
  // x += o, then y = rms_norm(x)
  virtual void add_rms_norm(const Rows& x, const Rows& o, const Weight& w, const Rows& y) = 0;
  virtual void add(const Rows& x, const Rows& o) = 0;  // x += o
  // y = x w^T. Each call reads each weight once, whatever the number of rows.
  virtual void matmul(const Rows& x, const Weight& w, const Rows& y) = 0;
  // Several weights that share an input.
  virtual void matmul_many(const Rows& x, std::span<const Weight* const> w,
                           std::span<const Rows> y) = 0;

  // KDA. conv_step: causal short convolution with the tail of earlier inputs, then SiLU, in place;
  // the tail moves on.
  virtual void conv_step(const Rows& q, const Rows& k, const Rows& v, const Kda& w,
                         const LayerState& state) = 0;
  // f becomes the log decay g = lower_bound * sigmoid(exp(a_log) * (f + dt_bias)); b becomes beta =
  // sigmoid(b).
  virtual void kda_gate(const Rows& f, const Rows& b, const Kda& w) = 0;
  // L2-normalises q (scaled by D^-1/2) and k per head, runs the delta rule over the rows, updates
  // the state.
  virtual void kda_mix(const Rows& q, const Rows& k, const Rows& v, const Rows& g, const Rows& beta,
                       const LayerState& state, const Rows& o) = 0;
  // Folds the first `rows` records of the last verify pass into the state: what the next pass would
  // do first.
  virtual void commit(const LayerState& state, int64_t rows);
  // o = rms_norm per head (o_norm) * sigmoid(gate), in place
  virtual void norm_gate(const Rows& o, const Rows& gate, const Weight& o_norm) = 0;

  // MLA. rope: rotates the last `rope` columns of each head of q, interleaved pairs, by the row's
  // position.
  virtual void rope(const Rows& q) = 0;
  // kv = [latent | key]: norms the latent, rotates the key, appends both to the state at the row's
  // position.
  virtual void latent_append(const Rows& kv, const Weight& kv_a_norm, const LayerState& state) = 0;
  // q_latent[h] = W_UK[h]^T q_nope[h]
  virtual void latent_absorb(const Rows& q, const Weight& kv_b, const Rows& q_latent) = 0;
  // z[h] = softmax((q_latent[h].c_m + q_rope[h].k_m) / sqrt(nope + rope)) over m <= position,
  // weighted sum of c_m
  virtual void latent_attend(const Rows& q_latent, const Rows& q, const LayerState& state,
                             const Rows& z) = 0;
  // o[h] = W_UV[h] z[h]
  virtual void latent_expand(const Rows& z, const Weight& kv_b, const Rows& o) = 0;
  // o[h] *= sigmoid(gate[h])
  virtual void head_gate(const Rows& o, const Rows& gate) = 0;

  // FFN. route: scores, bias, groups, top-k, best first, ties to the lower id; `forced` (empty:
  // none) replaces the choice, the weights still come from the scores.
  virtual void route(const Rows& h, const Moe& moe, const Ints& forced, const Ints& ids,
                     const Rows& weights) = 0;
  // o = sum over the chosen experts of weight * down(act(gate h, up h)), plus the shared expert
  virtual void experts(const Rows& h, const Moe& moe, const Ints& ids, const Rows& weights,
                       const Rows& o) = 0;
  // gate = min(silu(gate), limit) * clip(up, +-limit); limit 0: no clamp
  virtual void swiglu(const Rows& gate, const Rows& up, double limit) = 0;

  // y[:, :a.cols] = a, y[:, a.cols:] = b
  virtual void join(const Rows& a, const Rows& b, const Rows& y) = 0;
  virtual void logits(const Rows& hidden, const LmHead& head, const Rows& y) = 0;

  // ---- choosing tokens where the logits lie ----
  // Whether sample() takes these parameters. What it does not take is read and chosen by Sampler,
  // whose tokens these are (sampler.h).
  virtual bool samples(const SamplerParams&) const { return false; }
  virtual std::string sampling() const { return "on the host"; }  // for the plan
  // Of the last logits.rows rows of the step begun last, each for the position `offset` behind its
  // own. failed: 0, or another number where no token can be chosen; its id is 0 then.
  virtual void sample(const Rows& logits, const SamplerParams& params, int64_t offset,
                      const Ints& ids, const Ints& failed);

  // Times that the back end has taken of its own work, in words; empty: none.
  virtual std::string own_times() { return {}; }

  // ---- fused blocks ----
  virtual FusionPlan plan() const { return {}; }
  virtual void fused(Block block, const Layer& layer, const LayerState& state, const Scratch& t);

 protected:
  static const Weight& weight_of(const LmHead& head) { return head.weight_; }
  static LmHead head_of(const Weight& weight);  // for decorators, which hold two of everything
};

// On a device: layers of one row by blocks that stay, which may take their own times.
enum class Resident : uint8_t { kOff, kOn, kTimed };

// ---- factories: the only thing that engine and cli know of the back ends ----
struct BackendOptions {
  int threads = 0;      // 0: physical cores that this process may use
  uint64_t memory = 0;  // bytes, hard limit for alloc; 0: none
  std::string isa;      // "" : best; "generic", "avx2", "avx512", "neon"
  bool pin = false;     // pin workers to cores
  MoeKernel moe = MoeKernel::kPlain;
  PrecisionMode precision = PrecisionMode::kExact;
  // On a CPU: bytes that second copies of FP8 matrices of short rows, in the order of its quickest
  // kernel, may take in all.
  uint64_t tiles = uint64_t{24} << 20;
  bool graphs = true;          // on a device: what is launched again in the same way, in one call
  bool device_sampler = true;  // on a device: tokens are chosen there where it can
  bool fuse = true;            // on a device: launches that do several verbs' work
  Resident resident = Resident::kOn;
};
std::unique_ptr<Backend> make_reference_backend(const BackendOptions& options);
std::unique_ptr<Backend> make_cpu_backend(const BackendOptions& options);  // in backend/cpu

}  // namespace spk
