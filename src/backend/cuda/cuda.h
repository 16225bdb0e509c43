// Back end `cuda`: the verbs as launches of the kernels in src/kernels, float activations and
// states.
//
// A verb is a launch or a few: the composed form, which stays selectable (SPARKLING_FUSE=off) as
// the device's own oracle. Where latency is all that counts one launch does the work of several
// verbs, with the same bits: cuda_fused.cc. What a verb computes is in reference.cc; how it is cut
// on the device, in the kernel's file; here are memory, arguments and grids. One file per idea:
// cuda.cc memory and steps, cuda_rows.cc norms and products, cuda_mix.cc KDA and latent attention,
// cuda_moe.cc, cuda_sample.cc.
//
// No read of the device happens inside a verb. Memory is taken from an arena before the first step;
// work space grows when a step is larger than all before and is never given back after.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/catalog.h"
#include "backend/cuda/device.h"
#include "kernels/resident_args.cuh"

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace spk::cuda {

class Sections;

class CudaBackend final : public Backend {
 public:
  CudaBackend(std::unique_ptr<Device> device, const BackendOptions& options);
  ~CudaBackend() override;

  std::string_view name() const override { return "cuda"; }
  bool on_host() const override { return false; }
  void wait() override {
    flush_sum();
    device_->synchronize();
  }
  std::string description() const override;
  size_t real_bytes() const override { return sizeof(float); }

  void prepare(const ModelShape& shape) override;
  Buffer alloc(size_t bytes, std::string_view label) override;
  Weight upload(const HostTensor& tensor) override;
  Weight upload_expert(const HostTensor& tensor) override;
  std::string expert_kernel(const Weight& weight) const override;
  bool uploads_late() const override { return true; }
  void finish_uploads(UploadSource& source) override;
  const Counters& counters() const override;
  double read_bandwidth() override;
  int64_t cache_bytes() const override { return static_cast<int64_t>(device_->info().l2); }

  void read(const Rows& from, double* to) override;
  void read(const Rows& from, float* to) override;
  void write(const double* from, const Rows& to) override;
  void read(const Ints& from, int32_t* to) override;
  void write(const int32_t* from, const Ints& to) override;
  void zero(const Rows& rows) override;
  void copy(const Rows& from, const Rows& to) override;

  void begin(const Step& step) override;
  void end() override {}

  void embed(const Weight& table, const Ints& tokens, const Rows& y) override;
  void rms_norm(const Rows& x, const Weight& w, const Rows& y) override;
  void add_rms_norm(const Rows& x, const Rows& o, const Weight& w, const Rows& y) override;
  void add(const Rows& x, const Rows& o) override;
  void matmul(const Rows& x, const Weight& w, const Rows& y) override;
  void matmul_many(const Rows& x, std::span<const Weight* const> w,
                   std::span<const Rows> y) override;
  void conv_step(const Rows& q, const Rows& k, const Rows& v, const Kda& w,
                 const LayerState& state) override;
  void kda_gate(const Rows& f, const Rows& b, const Kda& w) override;
  void kda_mix(const Rows& q, const Rows& k, const Rows& v, const Rows& g, const Rows& beta,
               const LayerState& state, const Rows& o) override;
  void commit(const LayerState& state, int64_t rows) override;
  void norm_gate(const Rows& o, const Rows& gate, const Weight& o_norm) override;
  void rope(const Rows& q) override;
  void latent_append(const Rows& kv, const Weight& kv_a_norm, const LayerState& state) override;
  void latent_absorb(const Rows& q, const Weight& kv_b, const Rows& q_latent) override;
  void latent_attend(const Rows& q_latent, const Rows& q, const LayerState& state,
                     const Rows& z) override;
  void latent_expand(const Rows& z, const Weight& kv_b, const Rows& o) override;
  void head_gate(const Rows& o, const Rows& gate) override;
  void route(const Rows& h, const Moe& moe, const Ints& forced, const Ints& ids,
             const Rows& weights) override;
  void experts(const Rows& h, const Moe& moe, const Ints& ids, const Rows& weights,
               const Rows& o) override;
  void swiglu(const Rows& gate, const Rows& up, double limit) override;
  void join(const Rows& a, const Rows& b, const Rows& y) override;
  void logits(const Rows& hidden, const LmHead& head, const Rows& y) override;
  bool samples(const SamplerParams& params) const override;
  std::string sampling() const override;
  void sample(const Rows& logits, const SamplerParams& params, int64_t offset, const Ints& ids,
              const Ints& failed) override;

  FusionPlan plan() const override;
  std::string own_times() override;
  void fused(Block block, const Layer& layer, const LayerState& state, const Scratch& t) override;

 private:
  // Several products of one matrix side by side: the heads of kv_b.
  struct Batch {
    int64_t count = 1;
    int64_t first_row = 0;  // of the first product
    int64_t rows = 0;       // of one product; 0: all
    int64_t w_rows = 0;     // weight rows from one to the next
    int64_t x_cols = 0, y_cols = 0;
    gpu::View gate{};  // as ProductsArgs has it
  };
  struct ExpertTable {
    DevicePointer device = 0;
    uint64_t bytes = 0;  // of one expert
    Format up_format, down_format;
    bool up_packed, down_packed;
  };
  // One call of experts(): where its pieces lie, and how the shared expert runs.
  struct ExpertRun;
  template <typename Args>
  void launch(const KernelName& name, const Grid& grid, int threads, const Args& arguments) {
    if (grid.x <= 0 || grid.y <= 0 || grid.z <= 0) return;
    flush_sum();
    ++counters_.joins;
    device_->launch(kernel_id(name), grid, threads, &arguments, sizeof arguments);
  }
  KernelId kernel_id(const KernelName& name);

  void product(const Rows& x, const Weight& w, const Rows& y, const Batch& batch);
  void launch_products(gpu::ProductsArgs& products, Format format, bool tiles,
                       const gpu::Product* side, int64_t batches);
  int64_t stream_blocks(int64_t groups, int64_t of_one = gpu::kStreamBlocks) const;
  void count(const Weight& w, int64_t part = 1, int64_t of = 1) {
    counters_.weight_bytes += static_cast<uint64_t>(w.bytes * part / of);
  }
  void kda_recurrence(const Rows& q, const Rows& k, const Rows& v, const Rows& g, const Rows& beta,
                      const LayerState& state, const Rows& o);
  void kda_chunks(const Rows& q, const Rows& k, const Rows& v, const Rows& g, const Rows& beta,
                  const LayerState& state, const Rows& o, int64_t first_position);
  void fold(const LayerState& state, int64_t rows);
  void count_tails(const LayerState& state);
  void count_states(const LayerState& state);
  void fill_rope_table(int64_t rows);
  gpu::RopeArgs rope_args(const Rows& q);
  gpu::LatentAppendArgs append_args(const Rows& kv, const Weight& kv_a_norm,
                                    const LayerState& state);
  gpu::AbsorbArgs absorb_args(const Rows& q, const Weight& kv_b, const Rows& q_latent);
  const ExpertTable& expert_table(const Moe& moe);
  void routed(const Rows& h, const Moe& moe, const Ints& ids, const Rows& weights, const Rows& o);
  void plan_run(const Rows& h, const Moe& moe, ExpertRun& run, Sections& sections);
  void run_experts(const Rows& h, const Moe& moe, const ExpertTable& table, ExpertRun& run);
  gpu::RouteArgs route_args(const Rows& scores, const Moe& moe, const Ints& forced, const Ints& ids,
                            const Rows& weights) const;
  gpu::ItemsArgs items_args(const Ints& ids, const ExpertTable& table, const ExpertRun& run) const;
  gpu::ExpertSumArgs sum_args(const ExpertRun& run, const Rows& weights, const Rows& o) const;
  void count_shared(const Moe& moe);
  void make_items(const Rows& h, const gpu::ItemsArgs& items, const ExpertTable& table,
                  const ExpertRun& run);
  void run_up(const ExpertTable& table, const ExpertRun& run);
  void run_down(const ExpertTable& table, const ExpertRun& run);
  void launch_packed(const KernelName& kernel, const ExpertRun& run, int64_t shared_blocks,
                     int64_t item_blocks);
  void quantise(const Rows& x, const gpu::QuantRows& to);

  // ---- fused blocks (cuda_fused.cc) ----
  // The weighted sum of experts that no launch has made yet, because the next one may do it beside
  // its own work. Whatever looks at memory or launches something else calls flush_sum() first.
  struct PendingSum {
    gpu::ExpertSumArgs args;
    Rows o;
    std::optional<Rows> x;  // o is to be added to it
  };
  void flush_sum() {
    if (!resident_.empty()) launch_resident();
    if (pending_) launch_sum();
    if (pending_norm_) launch_norm();
  }
  bool fuses(Block block) const;
  void launch_sum();
  // A norm of a few rows, which what follows may make for itself: behind the mixer with an addition
  // first, in front of a resident layer without.
  struct PendingNorm {
    gpu::NormArgs args;
    Rows y;
    bool adds;
  };
  void launch_norm();
  bool hold_norm(const Rows& x, const Rows& o, const Weight& w, const Rows& y);
  bool front(const Moe& w, const gpu::RouteItemsArgs& route, const Rows& h);
  bool add_pending(const Rows& x, const Rows& o);
  bool norm_pending(const Rows& x, const Weight& w, const Rows& y);
  // ---- layers by blocks that stay (cuda_resident.cc) ----
  // Layers of one row that no launch has made yet; what the last one waits for.
  enum class Open { kWhole, kExperts, kAddition };
  bool stays() const;  // options, device and shape admit such layers; the step is not looked at
  bool hold_first_norm(const Rows& x, const Weight& w, const Rows& y);
  bool resident_kda(const Layer& layer, const LayerState& state, const Scratch& t);
  bool resident_moe(const Moe& w, const Scratch& t);
  bool resident_add(const Rows& x, const Rows& o);
  bool fits_resident(const Moe& w);
  void launch_resident();
  void place_exchange(size_t floats);
  struct KnownLayers;
  DevicePointer layer_on_device(const gpu::LayerArgs& layer);
  void place_pieces(gpu::LayerArgs& layer, KnownLayers& known);
  gpu::KdaBlockArgs kda_args(const Kda& w, const LayerState& state, const Scratch& t) const;

  // ---- fused layers (cuda_fused.cc) ----
  void fused_kda(const Layer& layer, const LayerState& state, const Scratch& t);
  void fused_mla(const Mla& w, const LayerState& state, const Scratch& t);
  void latent_query(const Rows& q, const Rows& kv, const Mla& w, const LayerState& state,
                    const Rows& q_latent);
  void expand(const Rows& z, const Weight& kv_b, const Rows& o, const gpu::View& gate);
  void fused_moe(const Moe& w, const Scratch& t);

  // ---- memory ----
  void check_limit(size_t bytes, std::string_view label) const;
  DevicePointer take(size_t bytes, std::string_view label);  // zeroed, from the arena
  DevicePointer work_space(size_t bytes);
  void upload_bytes(DevicePointer to, const void* from, size_t bytes);
  const gpu::StepInfo* step_info() const;
  void late(const HostTensor& tensor, ScaleType scales, const std::byte* data, size_t bytes,
            DevicePointer to, size_t width, size_t pitch);

  std::unique_ptr<Device> device_;
  BackendOptions options_;
  ModelShape shape_;
  mutable Counters counters_;
  Step step_;
  double bandwidth_ = 0;

  struct Piece {
    DevicePointer at = 0;
    size_t bytes = 0;
  };
  std::vector<Piece> pieces_;  // what is left of the arena's chunks, the latest last
  DevicePointer work_ = 0;
  size_t work_bytes_ = 0;

  DevicePointer info_ = 0;           // StepInfo
  DevicePointer expert_totals_ = 0;  // u64: plain routed experts read so far, their bytes; packed
  DevicePointer rows_routed_ = 0;    // int[9], as RouteItemsArgs::arrived
  DevicePointer rule_ = 0;           // SampleRule
  gpu::SampleRule rule_there_{};     // what it holds
  DevicePointer rope_turns_ = 0;
  DevicePointer rope_table_ = 0;  // [rope_rows_, rope]: cosines, then sines
  int64_t rope_rows_ = 0;
  bool rope_ready_ = false;  // for this step

  std::vector<LateUpload> late_;      // what finish_uploads() moves
  std::vector<StoredBytes> at_once_;  // what upload() has read already
  std::vector<WeightUse> uses_;
  std::deque<std::string> names_;
  bool kernels_ready_ = false;
  std::unordered_map<KernelName, KernelId, KernelName::Hash> kernel_ids_;
  std::map<const void*, ExpertTable> expert_tables_;  // by the first expert's codes
  std::vector<float> floats_;                         // of reads and writes
  std::optional<PendingSum> pending_;
  std::optional<PendingNorm> pending_norm_;
  std::vector<gpu::LayerArgs> resident_;
  Open open_ = Open::kWhole;
  Format resident_router_ = Format::kF32;
  // Layers as they lie on the device, by the matrix that they begin with; all go when it is full.
  struct KnownLayer {
    gpu::LayerArgs args;
    DevicePointer at;
  };
  struct KnownLayers {
    std::vector<KnownLayer> layers;
    std::vector<gpu::Piece> pieces;
    DevicePointer list = 0;
  };
  std::unordered_map<const void*, KnownLayers> known_layers_;
  DevicePointer layer_memory_ = 0;
  int64_t layers_there_ = 0;
  DevicePointer clocks_ = 0;                        // of the timed form
  int timed_layers_ = 0;                            // of its last launch
  DevicePointer exchange_ = 0, exchange_turn_ = 0;  // as ResidentArgs has them
};

// Bytes from one row of codes to the next on the device.
int64_t row_bytes(Format format, int64_t cols);

inline DevicePointer address(const Buffer& b) { return reinterpret_cast<DevicePointer>(b.handle); }
inline gpu::View view_of(const Rows& r) {
  return {reinterpret_cast<float*>(r.buffer.handle) + r.offset, r.stride};
}
inline gpu::IntView view_of(const Ints& r) {
  if (!r) return {nullptr, 0};
  return {reinterpret_cast<int*>(r.buffer.handle) + r.offset, r.stride};
}
gpu::Matrix matrix_of(const Weight& w);
const float* floats_of(const Weight& w);  // a vector or convolution taps

}  // namespace spk::cuda
