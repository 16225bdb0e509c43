#include "backend/compare.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <unordered_map>
#include <vector>

namespace spk {
namespace {

struct PairBuffer {
  Buffer a, b;
};
struct PairWeight {
  Weight a, b;
};

struct Named {
  std::string_view name;
  Rows rows;
};

class Compare final : public Backend {
 public:
  Compare(Backend& a, Backend& b, std::function<bool(const VerbReport&)> report)
      : a_(a), b_(b), report_(std::move(report)) {}

  std::string_view name() const override { return "compare"; }
  std::string description() const override {
    return cat("compare: ", a_.description(), " against ", b_.description());
  }
  size_t real_bytes() const override { return std::max(a_.real_bytes(), b_.real_bytes()); }
  double read_bandwidth() override { return b_.read_bandwidth(); }
  const Counters& counters() const override { return b_.counters(); }

  void prepare(const ModelShape& shape) override {
    a_.prepare(shape);
    b_.prepare(shape);
  }
  Buffer alloc(size_t bytes, std::string_view label) override {
    buffers_.push_back({a_.alloc(bytes, label), b_.alloc(bytes, label)});
    return {&buffers_.back(), bytes};
  }
  bool uploads_late() const override { return false; }  // one of the two may read at once
  void finish_uploads(UploadSource& source) override {
    a_.finish_uploads(source);
    b_.finish_uploads(source);
  }
  Weight upload(const HostTensor& tensor) override {
    weights_.push_back({a_.upload(tensor), b_.upload(tensor)});
    return pair();
  }
  Weight upload_expert(const HostTensor& tensor) override {
    weights_.push_back({a_.upload_expert(tensor), b_.upload_expert(tensor)});
    return pair();
  }
  std::string expert_kernel(const Weight& weight) const override {
    return b_.expert_kernel(side(weight, false));
  }

  void read(const Rows& from, double* to) override { a_.read(side(from, true), to); }
  void read(const Rows& from, float* to) override { a_.read(side(from, true), to); }
  void write(const double* from, const Rows& to) override {
    both([&](Backend& back, bool first) { back.write(from, side(to, first)); });
  }
  void read(const Ints& from, int32_t* to) override { a_.read(side(from, true), to); }
  void write(const int32_t* from, const Ints& to) override {
    both([&](Backend& back, bool first) { back.write(from, side(to, first)); });
  }
  void zero(const Rows& rows) override {
    both([&](Backend& back, bool first) { back.zero(side(rows, first)); });
  }
  void copy(const Rows& from, const Rows& to) override {
    both([&](Backend& back, bool first) { back.copy(side(from, first), side(to, first)); });
  }

  void begin(const Step& step) override {
    both([&](Backend& back, bool first) {
      Step s = step;
      s.tokens = side(step.tokens, first);
      s.routes_in = side(step.routes_in, first);
      s.routes_out = side(step.routes_out, first);
      back.begin(s);
    });
    seen_rows_ = step.first_position + step.rows;
  }
  void end() override {
    both([](Backend& back, bool) { back.end(); });
  }

  void embed(const Weight& table, const Ints& tokens, const Rows& y) override {
    at(table);
    run("embed", {}, {{"y", y}},
        [&](Backend& back, bool f) { back.embed(side(table, f), side(tokens, f), side(y, f)); });
  }
  void rms_norm(const Rows& x, const Weight& w, const Rows& y) override {
    at(w);
    run("rms_norm", {x}, {{"y", y}},
        [&](Backend& back, bool f) { back.rms_norm(side(x, f), side(w, f), side(y, f)); });
  }
  void add_rms_norm(const Rows& x, const Rows& o, const Weight& w, const Rows& y) override {
    at(w);
    run("add_rms_norm", {x, o}, {{"x", x}, {"y", y}}, [&](Backend& back, bool f) {
      back.add_rms_norm(side(x, f), side(o, f), side(w, f), side(y, f));
    });
  }
  void add(const Rows& x, const Rows& o) override {
    run("add", {x, o}, {{"x", x}},
        [&](Backend& back, bool f) { back.add(side(x, f), side(o, f)); });
  }
  void matmul(const Rows& x, const Weight& w, const Rows& y) override {
    at(w);
    run("matmul", {x}, {{w.name, y}},
        [&](Backend& back, bool f) { back.matmul(side(x, f), side(w, f), side(y, f)); });
  }
  void matmul_many(const Rows& x, std::span<const Weight* const> w,
                   std::span<const Rows> y) override {
    std::vector<Named> outs;
    outs.reserve(w.size());
    for (size_t i = 0; i < w.size(); ++i) {
      at(*w[i]);
      outs.push_back({w[i]->name, y[i]});
    }
    run("matmul_many", {x}, outs, [&](Backend& back, bool f) {
      std::vector<Weight> ws;
      std::vector<const Weight*> pointers;
      std::vector<Rows> ys;
      ws.reserve(w.size());
      pointers.reserve(w.size());
      ys.reserve(w.size());
      for (const Weight* each : w) ws.push_back(side(*each, f));
      for (const Weight& each : ws) pointers.push_back(&each);
      for (const Rows& each : y) ys.push_back(side(each, f));
      back.matmul_many(side(x, f), pointers, ys);
    });
  }

  void conv_step(const Rows& q, const Rows& k, const Rows& v, const Kda& w,
                 const LayerState& state) override {
    at(w.conv_q);
    run("conv_step", {q, k, v, state.conv_tail},
        {{"q", q}, {"k", k}, {"v", v}, {"state.conv_tail", state.conv_tail}},
        [&](Backend& back, bool f) {
          back.conv_step(side(q, f), side(k, f), side(v, f), side(w, f), side(state, f));
        });
  }
  void kda_gate(const Rows& f, const Rows& b, const Kda& w) override {
    run("kda_gate", {f, b}, {{"g", f}, {"beta", b}}, [&](Backend& back, bool first) {
      back.kda_gate(side(f, first), side(b, first), side(w, first));
    });
  }
  void kda_mix(const Rows& q, const Rows& k, const Rows& v, const Rows& g, const Rows& beta,
               const LayerState& state, const Rows& o) override {
    run("kda_mix", {q, k, v, g, beta, state.kda_state},
        {{"o", o}, {"state.kda_state", state.kda_state}}, [&](Backend& back, bool f) {
          back.kda_mix(side(q, f), side(k, f), side(v, f), side(g, f), side(beta, f),
                       side(state, f), side(o, f));
        });
  }
  void commit(const LayerState& state, int64_t rows) override {
    if (!state.kda_state.buffer) return;
    run("commit",
        {state.kda_state, state.conv_tail, state.record_in, state.record_k, state.record_u,
         state.record_g},
        {{"state.kda_state", state.kda_state}, {"state.conv_tail", state.conv_tail}},
        [&](Backend& back, bool f) { back.commit(side(state, f), rows); });
  }
  void norm_gate(const Rows& o, const Rows& gate, const Weight& o_norm) override {
    run("norm_gate", {o, gate}, {{"o", o}},
        [&](Backend& back, bool f) { back.norm_gate(side(o, f), side(gate, f), side(o_norm, f)); });
  }

  void rope(const Rows& q) override {
    run("rope", {q}, {{"q", q}}, [&](Backend& back, bool f) { back.rope(side(q, f)); });
  }
  void latent_append(const Rows& kv, const Weight& kv_a_norm, const LayerState& state) override {
    const Rows added = state.latent.slice_rows(seen_rows_ - kv.rows, kv.rows);
    run("latent_append", {kv}, {{"state.latent", added}}, [&](Backend& back, bool f) {
      back.latent_append(side(kv, f), side(kv_a_norm, f), side(state, f));
    });
  }
  void latent_absorb(const Rows& q, const Weight& kv_b, const Rows& q_latent) override {
    run("latent_absorb", {q}, {{"q_latent", q_latent}}, [&](Backend& back, bool f) {
      back.latent_absorb(side(q, f), side(kv_b, f), side(q_latent, f));
    });
  }
  void latent_attend(const Rows& q_latent, const Rows& q, const LayerState& state,
                     const Rows& z) override {
    run("latent_attend", {q_latent, q, state.latent.slice_rows(0, seen_rows_)}, {{"z", z}},
        [&](Backend& back, bool f) {
          back.latent_attend(side(q_latent, f), side(q, f), side(state, f), side(z, f));
        });
  }
  void latent_expand(const Rows& z, const Weight& kv_b, const Rows& o) override {
    run("latent_expand", {z}, {{"o", o}},
        [&](Backend& back, bool f) { back.latent_expand(side(z, f), side(kv_b, f), side(o, f)); });
  }
  void head_gate(const Rows& o, const Rows& gate) override {
    run("head_gate", {o, gate}, {{"o", o}},
        [&](Backend& back, bool f) { back.head_gate(side(o, f), side(gate, f)); });
  }

  void route(const Rows& h, const Moe& moe, const Ints& forced, const Ints& ids,
             const Rows& weights) override {
    at(moe.router);
    sync(h);
    both([&](Backend& back, bool f) {
      back.route(side(h, f), side(moe, f), side(forced, f), side(ids, f), side(weights, f));
    });
    // A flipped row has other weights for a good reason: it is counted, not measured.
    const size_t n = static_cast<size_t>(ids.rows * ids.cols);
    std::vector<int32_t> id_a(n), id_b(n);
    a_.read(side(ids, true), id_a.data());
    b_.read(side(ids, false), id_b.data());
    VerbReport report = describe("route");
    report.output = "weights";
    for (int64_t i = 0; i < ids.rows; ++i) {
      if (std::equal(id_a.begin() + i * ids.cols, id_a.begin() + (i + 1) * ids.cols,
                     id_b.begin() + i * ids.cols)) {
        measure(weights.slice_rows(i, 1), i, report);
      } else {
        ++report.route_flips;
      }
    }
    b_.write(id_a.data(), side(ids, false));
    deliver(report);
  }
  void experts(const Rows& h, const Moe& moe, const Ints& ids, const Rows& weights,
               const Rows& o) override {
    run("experts", {h, weights}, {{"o", o}}, [&](Backend& back, bool f) {
      back.experts(side(h, f), side(moe, f), side(ids, f), side(weights, f), side(o, f));
    });
  }
  void swiglu(const Rows& gate, const Rows& up, double limit) override {
    run("swiglu", {gate, up}, {{"gate", gate}},
        [&](Backend& back, bool f) { back.swiglu(side(gate, f), side(up, f), limit); });
  }
  void join(const Rows& x, const Rows& y, const Rows& z) override {
    run("join", {x, y}, {{"y", z}},
        [&](Backend& back, bool f) { back.join(side(x, f), side(y, f), side(z, f)); });
  }
  void logits(const Rows& hidden, const LmHead& head, const Rows& y) override {
    layer_.clear();
    run("logits", {hidden}, {{"logits", y}}, [&](Backend& back, bool f) {
      back.logits(side(hidden, f), head_of(side(weight_of(head), f)), side(y, f));
    });
  }

 private:
  // The newest pair; not `packed`: the tensor's memory may still be read by one of the two.
  Weight pair() {
    Weight w = weights_.back().b;
    w.data = {&weights_.back(), w.data.bytes};
    w.packed = false;
    return w;
  }

  template <typename F>
  void both(F f) {
    f(a_, true);
    f(b_, false);
  }

  template <typename F>
  void run(const char* verb, const std::vector<Rows>& in, const std::vector<Named>& out, F f) {
    for (const Rows& rows : in) sync(rows);
    both(f);
    for (const Named& each : out) {
      VerbReport report = describe(verb);
      report.output = each.name;
      measure(each.rows, 0, report);
      deliver(report);
    }
  }

  // a's values become b's.
  void sync(const Rows& rows) {
    values_a_.resize(static_cast<size_t>(rows.rows * rows.cols));
    a_.read(side(rows, true), values_a_.data());
    b_.write(values_a_.data(), side(rows, false));
  }

  void measure(const Rows& rows, int64_t first_row, VerbReport& report) {
    const size_t n = static_cast<size_t>(rows.rows * rows.cols);
    values_a_.resize(n);
    values_b_.resize(n);
    a_.read(side(rows, true), values_a_.data());
    b_.read(side(rows, false), values_b_.data());
    // The sums of all of a row's few columns (one a head) may happen to cancel; its terms, whose
    // rounding it has, are as large as those of other rows.
    constexpr int64_t kFew = 16;
    constexpr double kSmall = 0.1 * 0.1, kNothing = 1e-60;
    double least = kNothing;
    if (rows.cols < kFew) {
      for (const double x : values_a_) least += x * x;
      least = std::max(kNothing, least / static_cast<double>(rows.rows) * kSmall);
    }
    for (int64_t i = 0; i < rows.rows; ++i) {
      double difference = 0, size = 0;
      for (int64_t c = 0; c < rows.cols; ++c) {
        const double x = values_a_[i * rows.cols + c], y = values_b_[i * rows.cols + c];
        difference += (x - y) * (x - y);
        size += x * x;
      }
      if (!std::isfinite(difference)) report.finite = false;
      const double error = std::sqrt(difference / std::max(size, least));
      if (error > report.error) {
        report.error = error;
        report.row = first_row + i;
      }
    }
  }

  VerbReport describe(const char* verb) const {
    VerbReport report;
    report.where = layer_.empty() ? verb : layer_ + "." + verb;
    return report;
  }
  void deliver(const VerbReport& report) {
    if (!report_(report))
      throw Error(ErrorKind::kInterrupted, cat("stopped after ", report.where, " as asked"));
  }

  // Every layer starts with a weight of its own, so the last weight seen names the layer.
  void at(const Weight& w) {
    constexpr std::string_view kPrefix = "layers.";
    const size_t start = w.name.find(kPrefix);
    if (start == std::string_view::npos) {
      layer_.clear();
      return;
    }
    const size_t digits = start + kPrefix.size();
    layer_ = cat("layer.", w.name.substr(digits, w.name.find('.', digits) - digits));
  }

  Buffer side(const Buffer& x, bool first) const {
    if (!x.handle) return {};
    const auto* pair = static_cast<const PairBuffer*>(x.handle);
    return first ? pair->a : pair->b;
  }
  Rows side(Rows x, bool first) const {
    x.buffer = side(x.buffer, first);
    return x;
  }
  Ints side(Ints x, bool first) const {
    x.buffer = side(x.buffer, first);
    return x;
  }
  Weight side(const Weight& x, bool first) const {
    if (!x) return {};
    const auto* pair = static_cast<const PairWeight*>(x.data.handle);
    return first ? pair->a : pair->b;
  }
  LayerState side(const LayerState& x, bool f) const {
    LayerState y = x;
    for (Rows* r : {&y.kda_state, &y.conv_tail, &y.latent, &y.record_in, &y.record_k, &y.record_u,
                    &y.record_g})
      *r = side(*r, f);
    return y;
  }
  Ffn side(const Ffn& x, bool f) const { return {side(x.gate, f), side(x.up, f), side(x.down, f)}; }
  Kda side(const Kda& x, bool f) const {
    Kda y;
    y.q = side(x.q, f), y.k = side(x.k, f), y.v = side(x.v, f), y.f = side(x.f, f);
    y.g = side(x.g, f), y.b = side(x.b, f), y.o = side(x.o, f), y.o_norm = side(x.o_norm, f);
    y.conv_q = side(x.conv_q, f), y.conv_k = side(x.conv_k, f), y.conv_v = side(x.conv_v, f);
    y.a_log = side(x.a_log, f), y.dt_bias = side(x.dt_bias, f);
    return y;
  }
  // Hundreds of experts: each layer's copy is made once.
  const Moe& side(const Moe& x, bool f) {
    auto [found, fresh] = (f ? moe_a_ : moe_b_).try_emplace(&x);
    Moe& y = found->second;
    if (fresh) {
      y = x;
      y.router = side(x.router, f);
      y.bias = side(x.bias, f);
      y.shared = side(x.shared, f);
      for (size_t e = 0; e < x.experts.size(); ++e) y.experts[e] = side(x.experts[e], f);
    }
    return y;
  }

  Backend& a_;
  Backend& b_;
  std::function<bool(const VerbReport&)> report_;
  std::deque<PairBuffer> buffers_;
  std::deque<PairWeight> weights_;
  std::unordered_map<const Moe*, Moe> moe_a_, moe_b_;
  std::string layer_;
  int64_t seen_rows_ = 0;
  std::vector<double> values_a_, values_b_;
};

}  // namespace

std::unique_ptr<Backend> make_compare_backend(Backend& a, Backend& b,
                                              std::function<bool(const VerbReport&)> report) {
  return std::make_unique<Compare>(a, b, std::move(report));
}

}  // namespace spk
