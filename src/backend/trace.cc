#include "backend/trace.h"

#include <chrono>
#include <unordered_map>
#include <utility>

namespace spk {
namespace {

using Clock = std::chrono::steady_clock;

// "model.layers.7.attention.o_proj.weight" -> "attention.o_proj"
std::string role_of(std::string_view name) {
  constexpr std::string_view kLayers = "layers.", kWeight = ".weight";
  if (const size_t at = name.find(kLayers); at != std::string_view::npos) {
    const size_t dot = name.find('.', at + kLayers.size());
    if (dot != std::string_view::npos) name.remove_prefix(dot + 1);
  }
  if (const size_t at = name.rfind(kWeight); at != std::string_view::npos)
    name = name.substr(0, at);
  return std::string(name);
}

Part part_of_role(std::string_view role) {
  if (role.rfind("attention", 0) == 0) return Part::kAttention;
  if (role.rfind("mlp.gate_proj", 0) == 0 || role.rfind("mlp.up_proj", 0) == 0 ||
      role.rfind("mlp.down_proj", 0) == 0)
    return Part::kFeedForward;
  if (role.rfind("mlp", 0) == 0) return Part::kMoe;
  return Part::kOther;
}

class Traced final : public Backend {
 public:
  Traced(std::unique_ptr<Backend> inner, Trace& trace)
      : inner_(std::move(inner)), b_(*inner_), trace_(trace) {}

  std::string_view name() const override { return b_.name(); }
  bool on_host() const override { return b_.on_host(); }
  std::string description() const override { return b_.description(); }
  size_t real_bytes() const override { return b_.real_bytes(); }
  void prepare(const ModelShape& shape) override { b_.prepare(shape); }
  Buffer alloc(size_t bytes, std::string_view label) override { return b_.alloc(bytes, label); }
  bool uploads_late() const override { return b_.uploads_late(); }
  void finish_uploads(UploadSource& source) override { b_.finish_uploads(source); }
  Weight upload(const HostTensor& tensor) override { return b_.upload(tensor); }
  Weight upload_expert(const HostTensor& tensor) override { return b_.upload_expert(tensor); }
  std::string expert_kernel(const Weight& w) const override { return b_.expert_kernel(w); }
  const Counters& counters() const override { return b_.counters(); }
  double read_bandwidth() override { return b_.read_bandwidth(); }
  int64_t cache_bytes() const override { return b_.cache_bytes(); }
  std::string own_times() override { return b_.own_times(); }
  void read(const Rows& from, double* to) override { b_.read(from, to); }
  void read(const Rows& from, float* to) override { b_.read(from, to); }
  void write(const double* from, const Rows& to) override { b_.write(from, to); }
  void read(const Ints& from, int32_t* to) override { b_.read(from, to); }
  void write(const int32_t* from, const Ints& to) override { b_.write(from, to); }
  void zero(const Rows& rows) override { b_.zero(rows); }
  void copy(const Rows& from, const Rows& to) override {
    timed("copy", Part::kOther, [&] { b_.copy(from, to); });
  }
  void begin(const Step& step) override { b_.begin(step); }
  void end() override { b_.end(); }
  void wait() override { b_.wait(); }

  void embed(const Weight& table, const Ints& tokens, const Rows& y) override {
    timed("embed", Part::kOther, [&] { b_.embed(table, tokens, y); });
  }
  void rms_norm(const Rows& x, const Weight& w, const Rows& y) override {
    timed("rms_norm", Part::kOther, [&] { b_.rms_norm(x, w, y); });
  }
  void add_rms_norm(const Rows& x, const Rows& o, const Weight& w, const Rows& y) override {
    timed("add_rms_norm", Part::kOther, [&] { b_.add_rms_norm(x, o, w, y); });
  }
  void add(const Rows& x, const Rows& o) override {
    timed("add", Part::kOther, [&] { b_.add(x, o); });
  }
  void matmul(const Rows& x, const Weight& w, const Rows& y) override {
    if (!trace_.on) return b_.matmul(x, w, y);
    measure(of_weight(w), [&] { b_.matmul(x, w, y); });
  }
  void matmul_many(const Rows& x, std::span<const Weight* const> w,
                   std::span<const Rows> y) override {
    if (!trace_.on) return b_.matmul_many(x, w, y);
    measure(of_weight(*w[0]), [&] { b_.matmul_many(x, w, y); });
  }
  void conv_step(const Rows& q, const Rows& k, const Rows& v, const Kda& w,
                 const LayerState& state) override {
    timed("conv_step", Part::kAttention, [&] { b_.conv_step(q, k, v, w, state); });
  }
  void kda_gate(const Rows& f, const Rows& b, const Kda& w) override {
    timed("kda_gate", Part::kAttention, [&] { b_.kda_gate(f, b, w); });
  }
  void kda_mix(const Rows& q, const Rows& k, const Rows& v, const Rows& g, const Rows& beta,
               const LayerState& state, const Rows& o) override {
    timed("kda_mix", Part::kAttention, [&] { b_.kda_mix(q, k, v, g, beta, state, o); });
  }
  void commit(const LayerState& state, int64_t rows) override {
    timed("commit", Part::kAttention, [&] { b_.commit(state, rows); });
  }
  void norm_gate(const Rows& o, const Rows& gate, const Weight& o_norm) override {
    timed("norm_gate", Part::kAttention, [&] { b_.norm_gate(o, gate, o_norm); });
  }
  void rope(const Rows& q) override {
    timed("rope", Part::kAttention, [&] { b_.rope(q); });
  }
  void latent_append(const Rows& kv, const Weight& norm, const LayerState& state) override {
    timed("latent_append", Part::kAttention, [&] { b_.latent_append(kv, norm, state); });
  }
  void latent_absorb(const Rows& q, const Weight& kv_b, const Rows& q_latent) override {
    timed("latent_absorb", Part::kAttention, [&] { b_.latent_absorb(q, kv_b, q_latent); });
  }
  void latent_attend(const Rows& q_latent, const Rows& q, const LayerState& state,
                     const Rows& z) override {
    timed("latent_attend", Part::kAttention, [&] { b_.latent_attend(q_latent, q, state, z); });
  }
  void latent_expand(const Rows& z, const Weight& kv_b, const Rows& o) override {
    timed("latent_expand", Part::kAttention, [&] { b_.latent_expand(z, kv_b, o); });
  }
  void head_gate(const Rows& o, const Rows& gate) override {
    timed("head_gate", Part::kAttention, [&] { b_.head_gate(o, gate); });
  }
  void route(const Rows& h, const Moe& moe, const Ints& forced, const Ints& ids,
             const Rows& weights) override {
    timed("route", Part::kMoe, [&] { b_.route(h, moe, forced, ids, weights); });
  }
  void experts(const Rows& h, const Moe& moe, const Ints& ids, const Rows& weights,
               const Rows& o) override {
    timed("experts", Part::kMoe, [&] { b_.experts(h, moe, ids, weights, o); });
  }
  void swiglu(const Rows& gate, const Rows& up, double limit) override {
    timed("swiglu", Part::kFeedForward, [&] { b_.swiglu(gate, up, limit); });
  }
  bool samples(const SamplerParams& p) const override { return b_.samples(p); }
  std::string sampling() const override { return b_.sampling(); }
  void sample(const Rows& logits, const SamplerParams& params, int64_t offset, const Ints& ids,
              const Ints& failed) override {
    timed("sample", Part::kOther, [&] { b_.sample(logits, params, offset, ids, failed); });
  }
  void join(const Rows& a, const Rows& b, const Rows& y) override {
    timed("join", Part::kOther, [&] { b_.join(a, b, y); });
  }
  void logits(const Rows& hidden, const LmHead& head, const Rows& y) override {
    timed("logits", Part::kHead, [&] { b_.logits(hidden, head, y); });
  }
  FusionPlan plan() const override { return b_.plan(); }
  void fused(Block block, const Layer& layer, const LayerState& state, const Scratch& t) override {
    static constexpr std::string_view kNames[kBlocks] = {"block kda", "block mla", "block moe",
                                                         "block ffn"};
    static constexpr Part kPartOf[kBlocks] = {Part::kAttention, Part::kAttention, Part::kMoe,
                                              Part::kFeedForward};
    const auto i = static_cast<size_t>(block);
    timed(kNames[i], kPartOf[i], [&] { b_.fused(block, layer, state, t); });
  }

 private:
  TraceEntry& entry(std::string_view label, Part part) {
    auto at = trace_.entries.find(label);
    if (at == trace_.entries.end()) {
      at = trace_.entries.emplace(std::string(label), TraceEntry{}).first;
      at->second.part = part;
    }
    return at->second;
  }
  // A model's weights stay where they are, so their entries are looked up once.
  TraceEntry& of_weight(const Weight& w) {
    TraceEntry*& known = of_weight_[&w];
    if (known == nullptr) {
      const std::string role = role_of(w.name);
      known = &entry("matmul " + role, part_of_role(role));
    }
    return *known;
  }
  template <typename F>
  void timed(std::string_view label, Part part, F&& work) {
    if (!trace_.on) return work();
    measure(entry(label, part), std::forward<F>(work));
  }
  template <typename F>
  void measure(TraceEntry& e, F&& work) {
    const Counters before = b_.counters();
    const Clock::time_point start = Clock::now();
    work();
    b_.wait();
    e.seconds += std::chrono::duration<double>(Clock::now() - start).count();
    const Counters& after = b_.counters();
    e.bytes += after.weight_bytes - before.weight_bytes + after.state_bytes - before.state_bytes;
    ++e.calls;
  }

  std::unique_ptr<Backend> inner_;
  Backend& b_;
  Trace& trace_;
  std::unordered_map<const Weight*, TraceEntry*> of_weight_;
};

void add(TraceEntry& to, const TraceEntry& e) {
  to.calls += e.calls;
  to.seconds += e.seconds;
  to.bytes += e.bytes;
}

}  // namespace

std::string_view part_name(Part part) {
  static constexpr std::string_view kNames[kParts] = {"experts", "attention", "dense FFN", "head",
                                                      "other"};
  return kNames[static_cast<size_t>(part)];
}

void Trace::clear() {
  for (auto& [label, e] : entries) {
    const Part part = e.part;
    e = {};
    e.part = part;
  }
}

TraceEntry Trace::sum() const {
  TraceEntry all;
  for (const auto& [label, e] : entries) add(all, e);
  return all;
}

std::array<TraceEntry, kParts> Trace::parts() const {
  std::array<TraceEntry, kParts> out;
  for (int i = 0; i < kParts; ++i) out[i].part = static_cast<Part>(i);
  for (const auto& [label, e] : entries) add(out[static_cast<size_t>(e.part)], e);
  return out;
}

std::unique_ptr<Backend> make_trace_backend(std::unique_ptr<Backend> inner, Trace& trace) {
  return std::make_unique<Traced>(std::move(inner), trace);
}

}  // namespace spk
