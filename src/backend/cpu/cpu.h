// Back end `cpu`: the verbs on a team of workers, float activations and state, weights read where
// they lie.
//
// Owns the memory, the team, the scratch and how a verb is cut into tasks; the arithmetic of a task
// is in kernels.h. No result depends on the number of threads or on who does which task: every
// number is one task's work, and sums over tasks run in a fixed order. One file per idea: cpu.cc
// memory and steps, cpu_matmul.cc, cpu_norm.cc, cpu_experts.cc, cpu_route.cc, cpu_kda.cc,
// cpu_kda_chunk.cc, cpu_mla.cc, cpu_attend.cc.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/bf16.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/packed.h"
#include "base/threads.h"
#include "base/types.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace spk::cpu {

inline float* row_of(const Rows& r, int64_t i) {
  return static_cast<float*>(r.buffer.handle) + r.offset + i * r.stride;
}
inline int32_t* row_of(const Ints& r, int64_t i) {
  return static_cast<int32_t*>(r.buffer.handle) + r.offset + i * r.stride;
}

// Zeroed memory of the back end's own, 64-byte aligned.
class Block {
 public:
  explicit Block(size_t bytes);
  ~Block();
  Block(Block&& other) noexcept;
  Block& operator=(Block&&) = delete;
  float* floats() const { return static_cast<float*>(data_); }
  size_t bytes() const { return bytes_; }
  void* data() const { return data_; }

 private:
  void* data_;
  size_t bytes_;
};

// Rows of x in the forms that kernels take.
struct Inputs {
  const float* const* x;                     // [n]
  const uint16_t* const* rounded = nullptr;  // [n] for FP8 weights in precision fast (bf16.h)
  const QuantRow* quantised = nullptr;       // [n] for packed experts (packed.h)
  Inputs from(int64_t i) const {
    return {x + i, rounded ? rounded + i : nullptr, quantised ? quantised + i : nullptr};
  }
};

// Rows [first, last) of one matrix times rows of x: what a task multiplies.
struct Product {
  Matrix w;
  Inputs x;
  float* const* y;  // [n]
};

// Queries of attention in a task at most: 16 * 576 floats of queries and 16 * 512 of sums, 68 KiB.
// Of a prompt in BF16, where making panels of the cached rows costs as much as six queries or so,
// 1.7 MiB, of which a block of positions touches half; a multiple of the six rows of a tile.
inline constexpr int64_t kAttendTile = 16, kRoundedTile = 192;

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const BackendOptions& options);

  std::string_view name() const override { return "cpu"; }
  std::string description() const override;
  size_t real_bytes() const override { return sizeof(float); }

  void prepare(const ModelShape& shape) override;
  Buffer alloc(size_t bytes, std::string_view label) override;
  Weight upload(const HostTensor& tensor) override;
  Weight upload_expert(const HostTensor& tensor) override;
  std::string expert_kernel(const Weight& weight) const override;
  const Counters& counters() const override { return counters_; }
  double read_bandwidth() override;

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

  FusionPlan plan() const override;
  void fused(spk::Block block, const Layer& layer, const LayerState& state,
             const Scratch& t) override;

 private:
  // One live chunk of one head (cpu_kda_chunk.cc) and one tile of attention (cpu_attend.cc).
  struct KdaRows {
    const Rows &q, &k, &v, &g, &beta, &o;
    float* state;  // [D, D] of the head
    int64_t state_stride;
    int64_t head;
    const LayerState* record;         // where a verify pass leaves its rows, else null
    const LayerState* record_before;  // and where the one before it left them
  };
  struct Attention {
    const Rows &q_latent, &q, &latent, &z;
    int64_t tile;  // queries per task at most
    bool rounded;  // to BF16, and the cached rows too
    // A query is (row, head): number u is row u / heads and head first_head + u % heads.
    int64_t first_head, heads;
    int64_t row_of_query(int64_t u) const { return u / heads; }
    int64_t head_of_query(int64_t u) const { return first_head + u % heads; }
  };
  // A piece of attention: the weighted sum over some positions, to be merged by its largest score
  // and its weight sum.
  struct Partial {
    float* z;  // [tile, latent]
    float* top;
    float* sum;
  };
  struct Routed {  // cpu_experts.cc
    int32_t expert;
    int64_t first;  // pairs [first, first + count)
    int64_t count;
    const Ffn* ffn = nullptr;
    float limit = 0;
    bool few = false;      // takes matvec
    bool rounded = false;  // down takes rounded activations
  };

  // ---- cutting work ----
  // fn(task, worker). `work` is the number of multiply-adds or so of all tasks together: too little
  // of it is done by the caller alone, without a join.
  template <typename F>
  void run_tasks(int64_t tasks, int64_t work, F&& fn) {
    if (tasks <= 1 || work < kJoinWorth || team_.size() == 1) {
      for (int64_t t = 0; t < tasks; ++t) fn(t, 0);
      return;
    }
    ++counters_.joins;
    team_.for_each_task(tasks, fn);
  }
  // fn(row, worker) of rows that take `row_work` each. Tasks are runs of rows, since handing out a
  // task costs as much as a short row takes; four a worker, so that one who is interrupted delays
  // the join by a quarter at most.
  template <typename F>
  void run_each(int64_t rows, int64_t row_work, F&& fn) {
    const int64_t fair = ceil_div(rows, 4 * team_.size());
    const int64_t piece = std::clamp<int64_t>(kJoinWorth / row_work, 1, std::max<int64_t>(fair, 1));
    run_tasks(ceil_div(rows, piece), rows * row_work, [&](int64_t task, int worker) {
      const int64_t last = std::min((task + 1) * piece, rows);
      for (int64_t row = task * piece; row < last; ++row) fn(row, worker);
    });
  }
  // The same, but the few rows of a decode or verify pass are the caller's work.
  template <typename F>
  void run_rows(int64_t rows, int64_t row_work, F&& fn) {
    if (rows > kMaxVerify) return run_each(rows, row_work, fn);
    for (int64_t row = 0; row < rows; ++row) fn(row, 0);
  }
  // A join costs 0.3 to 2 us, by how far apart the workers' processors are; 32,768 multiply-adds in
  // vector code, what two workers would save of this much, take about 0.5 us.
  static constexpr int64_t kJoinWorth = 1 << 16;

  // Whether this step's products take matvec (direct) or the panels; decides the bits of a result.
  bool direct(int64_t n) const;
  bool experts_direct(int64_t n) const;
  // Rows of a task (a multiple of kLanes) out of `rows` weight rows of `cols`
  // columns in all.
  int64_t block_rows(int64_t rows, int64_t cols, bool direct) const;
  void multiply(std::span<const Product> products, int64_t n, bool direct);
  void packed_logits(const Rows& hidden, const Weight& w, const Rows& y);
  void multiply_rows(const Rows& x, std::span<const Weight* const> w, std::span<const Rows> y,
                     bool direct);
  // y[i][at + r - first] = w[r] . x[i]
  void multiply_block(const Matrix& w, int64_t first, int64_t last, const Inputs& x, int64_t n,
                      float* const* y, int64_t at, bool direct, int worker);
  int64_t panel_floats(int64_t rows, int64_t cols) const;
  // Whether this matrix takes rounded rows of x, and memory for those: `count` of `cols`, then
  // `more` of `more_cols`; one verb at a time.
  bool takes_rounded(const Weight& w) const {
    return bf16_ && (w.format == Format::kFp8 || w.format == Format::kFp8Row);
  }
  std::span<uint16_t*> rounded_rows(int64_t count, int64_t cols, int64_t more = 0,
                                    int64_t more_cols = 0);
  std::span<uint16_t*> round_rows(std::span<const float* const> x, int64_t cols);
  void count(const Weight& w) { counters_.weight_bytes += static_cast<uint64_t>(w.bytes); }

  void kda_rows(const KdaRows& h, int64_t row, int64_t rows, int64_t fold, int64_t first,
                int64_t last, float* work);
  KdaRows kda_rows_of(const Rows& q, const Rows& k, const Rows& v, const Rows& g, const Rows& beta,
                      const Rows& o, const LayerState& state, int64_t head) const;
  int64_t recurrent_floats() const;
  void kda_chunk(const KdaRows& h, int64_t row, int64_t rows, int64_t first, int64_t last,
                 float* work);
  static int64_t kda_chunk_floats(int64_t head_dim);
  const float* past_input(const LayerState& state, int64_t s, int64_t index) const;
  void fold_tail(const LayerState& state, int64_t s, int64_t rows);
  float* fold_of(const LayerState& state, int64_t head, Fold& f, float* work) const;
  void fold_state(const LayerState& state, int64_t rows, int64_t head, int64_t first, int64_t last,
                  float* work);
  void mix_head(const KdaRows& h, int64_t fold, int64_t first, int64_t last, float* work);
  void conv_channels(const Rows& x, int64_t s, const Kda& w, const LayerState& state, int64_t first,
                     int64_t n);
  void gate_head(float* f, int64_t head, const Kda& w) const;
  void norm_gate_head(float* o, const float* gate, int64_t head, const Weight& o_norm) const;
  void count_tails(const LayerState& state);
  void count_states();
  void fused_kda(const Kda& w, const LayerState& state, const Scratch& t);

  void rotate(float* x,
              int64_t row);  // rope columns of one head, by the position of this step's row
  void update_rope_table(int64_t rows);
  void rope_head(const Rows& q, int64_t row, int64_t head);
  void absorb(const Matrix& kv_b, const Rows& q, const Rows& q_latent, int64_t head, int64_t first,
              int64_t columns, float* decoded);
  int64_t absorb_floats(int64_t columns) const;
  void gate_value(float* o, const float* gates, int64_t head) const;
  int64_t attended_bytes(int64_t rows, const LayerState& state) const;
  void fused_mla(const Mla& w, const LayerState& state, const Scratch& t);
  int64_t begin_segment(const Attention& a, int64_t first_query, int64_t count, int64_t segment,
                        const Partial& to, int64_t* seen) const;
  void attend_segment(const Attention& a, int64_t first_query, int64_t count, int64_t segment,
                      const Partial& to, float* work);
  void attend_rounded_segment(const Attention& a, int64_t first_query, int64_t count,
                              int64_t segment, const Partial& to, float* work);
  void gather_query(const Attention& a, int64_t u, float* query) const;
  void soften(float* scores, int64_t visible, int64_t block, const Partial& to, int64_t t) const;
  void attend_tile(const Attention& a, int64_t first_query, int64_t count, float* work);
  void merge(const Partial& from, const Partial& to, int64_t count, bool first) const;
  void finish(const Attention& a, int64_t first_query, int64_t count, const Partial& total) const;
  int64_t attend_floats(int64_t tile, bool rounded) const;

  struct ExpertsRun {
    bool packed_in = false, packed_out = false;  // some expert wants quantised rows, activations
    bool rounded = false;                        // some expert wants rounded ones
    bool few = true;                             // all take matvec
    int64_t width = 0, rows = 0, work = 0;
    int64_t rounded_pairs = 0;      // of the experts whose down takes rounded activations
    int64_t pairs = 0, stride = 0;  // gates: y_[pair], ups behind them
  };
  ExpertsRun prepare_experts(const Rows& h, const Moe& moe, const Ints& ids);
  void round_pairs(const Rows& h, const ExpertsRun& run);
  struct ExpertRows {  // rows [first, last) of an expert's gate and up
    const Routed* expert;
    int64_t first, last;
  };
  void expert_in(const ExpertsRun& run, const ExpertRows& rows, const ExpertRows& next, int worker);
  void gather_pairs(const Rows& h, const Moe& moe, const Ints& ids);
  // Memory for `rows` quantised rows of `cols`, as floats; and those rows in it.
  static int64_t quant_floats(int64_t rows, int64_t cols);
  static void lay_out(float* memory, int64_t cols, std::span<QuantRow> rows);
  void quantise(const float* x, int64_t first, int64_t last, const QuantRow& to) const;
  void quantise_pairs(const Rows& h, float* memory);
  void multiply_expert(const Weight& w, int64_t first, int64_t last, const Inputs& x, int64_t n,
                       float* const* y, int64_t at, bool few, int worker, const uint8_t* ahead);
  void choose(const float* biased, int32_t* ids);  // groups and top-k over one row of scores
  void choose_few(const float* biased, const float* group_score, int32_t* ids) const;

  // ---- memory ----
  void account(size_t bytes, std::string_view label);
  const float* keep_floats(const HostTensor& tensor, bool transpose);
  uint8_t* slab_bytes(size_t bytes, std::string_view label);
  void add_tiles(Weight& w);
  float* grow(std::vector<Block>& at, size_t& held, int64_t floats, std::string_view label);
  float* shared_floats(int64_t floats);  // one verb at a time
  float* worker_floats(int worker,
                       int64_t floats);  // of a task; sized by reserve_workers before the tasks run
  void reserve_workers(int64_t floats);

  BackendOptions options_;
  const Kernels& kernels_;
  const PackedKernels& packed_;
  const Bf16Kernels* bf16_;  // null: FP8 weights meet floats
  WorkerTeam team_;
  ModelShape shape_;
  Counters counters_;
  Step step_;
  double bandwidth_ = 0;
  int64_t weight_bytes_ = 0;  // of matrices, as stored

  std::vector<Block> blocks_;  // of alloc
  std::vector<Block> floats_;  // small vectors and FP8 scales as floats
  std::vector<Block> slabs_;   // packed experts
  size_t slab_used_ = 0;       // of the last slab
  size_t tiles_bytes_ = 0;
  std::vector<Block> shared_, workers_, rounded_;
  size_t shared_bytes_ = 0, workers_bytes_ = 0, rounded_bytes_ = 0;
  int64_t worker_stride_ = 0;  // floats per worker in workers_

  std::vector<float> rope_cos_, rope_sin_;  // [rows, rope / 2]
  int64_t rope_first_ = -1, rope_rows_ = 0;

  // Row pointers of the verb that runs.
  std::vector<const float*> x_;
  std::vector<float*> y_, out_;
  std::vector<uint16_t*> rounded_rows_, rounded_pairs_, act_rounded_;
  // experts(): pairs (row, slot) sorted by expert, the shared expert's rows behind them.
  std::vector<Routed> routed_;
  std::vector<int64_t> pair_of_, pair_start_;
  // The same rows and their activations quantised, [pairs], where an expert is packed.
  std::vector<QuantRow> row_quant_, pair_quant_, act_quant_;
};

Matrix matrix_of(const Weight& w);
PackedMatrix packed_of(const Weight& w);
const float* floats_of(const Weight& w);  // a small vector; SPK_CHECK that it is one

}  // namespace spk::cpu
