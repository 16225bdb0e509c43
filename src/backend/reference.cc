// Back end `reference`: every verb as plain loops, activations and state in double. The oracle of
// all others.
//
// Read it to learn what a verb means. Weights stay as stored and are expanded row by row; nothing
// here is fast, and nothing here may be clever.
#include "backend/backend.h"
#include "backend/taps.h"
#include "base/bandwidth.h"
#include "base/error.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

namespace spk {
namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }

// A stored tensor; small ones (norms, gates, convolutions) are also kept as numbers.
struct RefTensor {
  HostTensor host;
  std::vector<double> values;
};

double* row_of(const Rows& r, int64_t i) {
  return static_cast<double*>(r.buffer.handle) + r.offset + i * r.stride;
}
int32_t* row_of(const Ints& r, int64_t i) {
  return static_cast<int32_t*>(r.buffer.handle) + r.offset + i * r.stride;
}
const RefTensor& tensor(const Weight& w) { return *static_cast<const RefTensor*>(w.data.handle); }
const double* values(const Weight& w) {
  const RefTensor& t = tensor(w);
  SPK_CHECK(!t.values.empty());
  return t.values.data();
}

void norm_row(const double* x, const double* w, int64_t n, double eps, double* y) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
  const double scale = 1.0 / std::sqrt(sum / static_cast<double>(n) + eps);
  for (int64_t i = 0; i < n; ++i) y[i] = w[i] * (x[i] * scale);
}

class Reference final : public Backend {
 public:
  explicit Reference(const BackendOptions& options) : options_(options) {}

  std::string_view name() const override { return "reference"; }
  std::string description() const override { return "reference: plain loops, double, 1 thread"; }
  size_t real_bytes() const override { return sizeof(double); }
  double read_bandwidth() override {
    int64_t most = int64_t{32} << 20;
    if (options_.memory != 0)
      most = std::min(most, static_cast<int64_t>(options_.memory - counters_.allocated_bytes));
    if (bandwidth_ == 0) bandwidth_ = measure_read_bandwidth(1, most);
    return bandwidth_;
  }

  void prepare(const ModelShape& shape) override { shape_ = shape; }

  Buffer alloc(size_t bytes, std::string_view label) override {
    if (options_.memory != 0 && counters_.allocated_bytes + bytes > options_.memory)
      fail_resource("memory limit: ", label, " needs ", bytes, " bytes, ",
                    counters_.allocated_bytes, " are in use and the limit is ", options_.memory);
    // calloc: large pieces (latents for a whole context) stay untouched zero pages until they are
    // written.
    std::unique_ptr<void, decltype(&std::free)> memory(std::calloc(std::max<size_t>(bytes, 1), 1),
                                                       &std::free);
    if (!memory) fail_resource("out of memory: ", label, " needs ", bytes, " bytes");
    const Buffer buffer{memory.get(), bytes};
    memory_.push_back(std::move(memory));
    ++counters_.allocations;
    counters_.allocated_bytes += bytes;
    return buffer;
  }

  Weight upload(const HostTensor& host) override {
    RefTensor& t = tensors_.emplace_back();
    t.host = host;
    if (host.rows == 1 || is_conv_taps(host.name)) {
      t.values.resize(static_cast<size_t>(host.rows * host.cols));
      for (int64_t r = 0; r < host.rows; ++r)
        dequantise_row(host, r, t.values.data() + r * host.cols);
    }
    Weight w;
    w.data = {&t, static_cast<size_t>(host.bytes())};
    w.format = host.format;
    w.rows = host.rows;
    w.cols = host.cols;
    w.bytes = host.bytes();
    w.name = host.name;
    return w;
  }

  const Counters& counters() const override { return counters_; }

  void read(const Rows& from, double* to) override {
    for (int64_t i = 0; i < from.rows; ++i)
      std::copy_n(row_of(from, i), from.cols, to + i * from.cols);
  }
  void read(const Rows& from, float* to) override {
    for (int64_t i = 0; i < from.rows; ++i)
      for (int64_t c = 0; c < from.cols; ++c)
        to[i * from.cols + c] = static_cast<float>(row_of(from, i)[c]);
  }
  void write(const double* from, const Rows& to) override {
    for (int64_t i = 0; i < to.rows; ++i) std::copy_n(from + i * to.cols, to.cols, row_of(to, i));
  }
  void read(const Ints& from, int32_t* to) override {
    for (int64_t i = 0; i < from.rows; ++i)
      std::copy_n(row_of(from, i), from.cols, to + i * from.cols);
  }
  void write(const int32_t* from, const Ints& to) override {
    for (int64_t i = 0; i < to.rows; ++i) std::copy_n(from + i * to.cols, to.cols, row_of(to, i));
  }
  void zero(const Rows& r) override {
    for (int64_t i = 0; i < r.rows; ++i) std::fill_n(row_of(r, i), r.cols, 0.0);
  }
  void copy(const Rows& from, const Rows& to) override {
    for (int64_t i = 0; i < from.rows; ++i) std::copy_n(row_of(from, i), from.cols, row_of(to, i));
  }

  void begin(const Step& step) override {
    first_position_ = step.first_position;
    verify_ = step.kind == StepKind::kVerify;
    fold_ = step.fold;
    abort_ = step.abort;
    SPK_CHECK((!verify_ || step.rows <= kMaxVerify) && fold_ <= kMaxVerify);
  }
  void end() override { abort_ = nullptr; }

  void embed(const Weight& table, const Ints& tokens, const Rows& y) override {
    for (int64_t i = 0; i < y.rows; ++i)
      dequantise_row(tensor(table).host, *row_of(tokens, i), row_of(y, i));
    counters_.weight_bytes += static_cast<uint64_t>(table.bytes / table.rows * y.rows);
  }

  void rms_norm(const Rows& x, const Weight& w, const Rows& y) override {
    for (int64_t i = 0; i < x.rows; ++i)
      norm_row(row_of(x, i), values(w), x.cols, shape_.eps, row_of(y, i));
  }
  void add_rms_norm(const Rows& x, const Rows& o, const Weight& w, const Rows& y) override {
    add(x, o);
    rms_norm(x, w, y);
  }
  void add(const Rows& x, const Rows& o) override {
    for (int64_t i = 0; i < x.rows; ++i)
      for (int64_t c = 0; c < x.cols; ++c) row_of(x, i)[c] += row_of(o, i)[c];
  }

  void matmul(const Rows& x, const Weight& w, const Rows& y) override {
    SPK_CHECK(x.cols == w.cols && y.cols == w.rows && x.rows == y.rows);
    row_.resize(static_cast<size_t>(w.cols));
    for (int64_t r = 0; r < w.rows; ++r) {
      check_abort();
      dequantise_row(tensor(w).host, r, row_.data());
      for (int64_t i = 0; i < x.rows; ++i)
        row_of(y, i)[r] = std::inner_product(row_.begin(), row_.end(), row_of(x, i), 0.0);
    }
    counters_.weight_bytes += static_cast<uint64_t>(w.bytes);
  }
  void matmul_many(const Rows& x, std::span<const Weight* const> w,
                   std::span<const Rows> y) override {
    for (size_t i = 0; i < w.size(); ++i) matmul(x, *w[i], y[i]);
  }

  void conv_step(const Rows& q, const Rows& k, const Rows& v, const Kda& w,
                 const LayerState& state) override {
    const Rows* in[3] = {&q, &k, &v};
    const Weight* taps[3] = {&w.conv_q, &w.conv_k, &w.conv_v};
    const int64_t past = shape_.conv_kernel - 1;
    fold_tail(state, fold_);
    std::vector<double> tail(static_cast<size_t>(past));
    for (int s = 0; s < 3; ++s) {
      for (int64_t c = 0; c < in[s]->cols; ++c) {
        const double* tap = values(*taps[s]) + c * shape_.conv_kernel;
        for (int64_t j = 0; j < past; ++j) tail[j] = row_of(state.conv_tail, s * past + j)[c];
        for (int64_t i = 0; i < in[s]->rows; ++i) {
          double& x = row_of(*in[s], i)[c];
          if (verify_) row_of(state.record_in, s * kMaxVerify + i)[c] = x;
          double sum = tap[past] * x;
          for (int64_t j = 0; j < past; ++j) sum += tap[j] * tail[j];
          std::rotate(tail.begin(), tail.begin() + 1, tail.end());
          tail[past - 1] = x;
          x = silu(sum);
        }
        if (verify_) continue;
        for (int64_t j = 0; j < past; ++j) row_of(state.conv_tail, s * past + j)[c] = tail[j];
      }
    }
  }

  void commit(const LayerState& state, int64_t rows) override {
    if (!state.kda_state.buffer) return;
    fold_tail(state, rows);
    fold_state(state, rows);
  }

  void kda_gate(const Rows& f, const Rows& b, const Kda& w) override {
    for (int64_t i = 0; i < f.rows; ++i) {
      for (int64_t c = 0; c < f.cols; ++c) {
        const double rate = std::exp(values(w.a_log)[c / shape_.head_dim]);
        double& x = row_of(f, i)[c];
        x = shape_.kda_lower_bound * sigmoid(rate * (x + values(w.dt_bias)[c]));
      }
      for (int64_t h = 0; h < b.cols; ++h) row_of(b, i)[h] = sigmoid(row_of(b, i)[h]);
    }
  }

  void kda_mix(const Rows& q, const Rows& k, const Rows& v, const Rows& g, const Rows& beta,
               const LayerState& state, const Rows& o) override {
    const int64_t d = shape_.head_dim;
    Rows s = state.kda_state;
    fold_state(state, fold_);
    if (verify_) {
      private_.resize(static_cast<size_t>(s.rows * s.cols));
      const Rows copied = view(private_, s.rows, s.cols);
      copy(s, copied);
      s = copied;
    }
    std::vector<double> qn(static_cast<size_t>(d)), kn(qn), u(qn);
    for (int64_t i = 0; i < q.rows; ++i) {
      check_abort();
      for (int64_t h = 0; h < shape_.heads; ++h) {
        unit_row(row_of(q, i) + h * d, d, 1.0 / std::sqrt(static_cast<double>(d)), qn.data());
        unit_row(row_of(k, i) + h * d, d, 1.0, kn.data());
        const double* vh = row_of(v, i) + h * d;
        const double* gh = row_of(g, i) + h * d;
        double* oh = row_of(o, i) + h * d;
        for (int64_t b = 0; b < d; ++b) {  // the delta uses the decayed state
          double seen = 0;
          for (int64_t a = 0; a < d; ++a) seen += std::exp(gh[a]) * row_of(s, h * d + a)[b] * kn[a];
          u[b] = row_of(beta, i)[h] * (vh[b] - seen);
        }
        update(s, h, gh, kn.data(), u.data());
        for (int64_t b = 0; b < d; ++b) {  // the output uses the updated state
          oh[b] = 0;
          for (int64_t a = 0; a < d; ++a) oh[b] += qn[a] * row_of(s, h * d + a)[b];
        }
        if (verify_) {
          std::copy_n(kn.data(), d, row_of(state.record_k, i) + h * d);
          std::copy_n(u.data(), d, row_of(state.record_u, i) + h * d);
          std::copy_n(gh, d, row_of(state.record_g, i) + h * d);
        }
      }
    }
  }

  void norm_gate(const Rows& o, const Rows& gate, const Weight& o_norm) override {
    const int64_t d = shape_.head_dim;
    for (int64_t i = 0; i < o.rows; ++i) {
      for (int64_t h = 0; h < shape_.heads; ++h) {
        double* y = row_of(o, i) + h * d;
        norm_row(y, values(o_norm), d, shape_.eps, y);
        for (int64_t c = 0; c < d; ++c) y[c] *= sigmoid(row_of(gate, i)[h * d + c]);
      }
    }
  }

  void rope(const Rows& q) override {
    const int64_t width = shape_.nope + shape_.rope;
    for (int64_t i = 0; i < q.rows; ++i)
      for (int64_t h = 0; h < shape_.heads; ++h)
        rotate(row_of(q, i) + h * width + shape_.nope, first_position_ + i);
  }

  void latent_append(const Rows& kv, const Weight& kv_a_norm, const LayerState& state) override {
    for (int64_t i = 0; i < kv.rows; ++i) {
      double* to = row_of(state.latent, first_position_ + i);
      norm_row(row_of(kv, i), values(kv_a_norm), shape_.latent, shape_.eps, to);
      std::copy_n(row_of(kv, i) + shape_.latent, shape_.rope, to + shape_.latent);
      rotate(to + shape_.latent, first_position_ + i);
    }
  }

  void latent_absorb(const Rows& q, const Weight& kv_b, const Rows& q_latent) override {
    const int64_t per_head = shape_.nope + shape_.v_dim;
    zero(q_latent);
    row_.resize(static_cast<size_t>(shape_.latent));
    for (int64_t h = 0; h < shape_.heads; ++h) {
      for (int64_t n = 0; n < shape_.nope; ++n) {
        dequantise_row(tensor(kv_b).host, h * per_head + n, row_.data());
        for (int64_t i = 0; i < q.rows; ++i) {
          const double x = row_of(q, i)[h * (shape_.nope + shape_.rope) + n];
          double* to = row_of(q_latent, i) + h * shape_.latent;
          for (int64_t c = 0; c < shape_.latent; ++c) to[c] += x * row_[c];
        }
      }
    }
    counters_.weight_bytes += static_cast<uint64_t>(kv_b.bytes * shape_.nope / per_head);
  }

  void latent_attend(const Rows& q_latent, const Rows& q, const LayerState& state,
                     const Rows& z) override {
    const double scale = 1.0 / std::sqrt(static_cast<double>(shape_.nope + shape_.rope));
    for (int64_t i = 0; i < q.rows; ++i) {
      check_abort();
      const int64_t n = first_position_ + i + 1;
      scores_.resize(static_cast<size_t>(n));
      for (int64_t h = 0; h < shape_.heads; ++h) {
        const double* ql = row_of(q_latent, i) + h * shape_.latent;
        const double* qr = row_of(q, i) + h * (shape_.nope + shape_.rope) + shape_.nope;
        for (int64_t m = 0; m < n; ++m) {
          const double* c = row_of(state.latent, m);
          scores_[m] = scale * (std::inner_product(ql, ql + shape_.latent, c, 0.0) +
                                std::inner_product(qr, qr + shape_.rope, c + shape_.latent, 0.0));
        }
        const double top = *std::max_element(scores_.begin(), scores_.end());
        double sum = 0;
        for (double& s : scores_) sum += s = std::exp(s - top);
        double* to = row_of(z, i) + h * shape_.latent;
        std::fill_n(to, shape_.latent, 0.0);
        for (int64_t m = 0; m < n; ++m)
          for (int64_t c = 0; c < shape_.latent; ++c)
            to[c] += scores_[m] / sum * row_of(state.latent, m)[c];
      }
    }
  }

  void latent_expand(const Rows& z, const Weight& kv_b, const Rows& o) override {
    const int64_t per_head = shape_.nope + shape_.v_dim;
    row_.resize(static_cast<size_t>(shape_.latent));
    for (int64_t h = 0; h < shape_.heads; ++h) {
      for (int64_t n = 0; n < shape_.v_dim; ++n) {
        dequantise_row(tensor(kv_b).host, h * per_head + shape_.nope + n, row_.data());
        for (int64_t i = 0; i < z.rows; ++i)
          row_of(o, i)[h * shape_.v_dim + n] =
              std::inner_product(row_.begin(), row_.end(), row_of(z, i) + h * shape_.latent, 0.0);
      }
    }
    counters_.weight_bytes +=
        static_cast<uint64_t>(kv_b.bytes - kv_b.bytes * shape_.nope / per_head);
  }

  void head_gate(const Rows& o, const Rows& gate) override {
    for (int64_t i = 0; i < o.rows; ++i)
      for (int64_t c = 0; c < o.cols; ++c)
        row_of(o, i)[c] *= sigmoid(row_of(gate, i)[c / shape_.v_dim]);
  }

  void route(const Rows& h, const Moe& moe, const Ints& forced, const Ints& ids,
             const Rows& weights) override {
    const int64_t experts = shape_.experts, per_group = experts / shape_.groups;
    std::vector<double> score(static_cast<size_t>(h.rows * experts));
    matmul(h, moe.router, view(score, h.rows, experts));
    std::vector<double> biased(static_cast<size_t>(experts));
    std::vector<double> group(static_cast<size_t>(shape_.groups));
    for (int64_t i = 0; i < h.rows; ++i) {
      double* s = score.data() + i * experts;
      for (int64_t e = 0; e < experts; ++e) {
        s[e] = sigmoid(s[e]);
        biased[e] = s[e] + values(moe.bias)[e];
      }
      if (forced) {
        std::copy_n(row_of(forced, i), shape_.top_k, row_of(ids, i));
      } else {
        for (int64_t j = 0; j < shape_.groups; ++j)
          group[j] = top_two(biased.data() + j * per_group, per_group);
        for (int64_t j : drop_order(group, shape_.keep_groups))
          std::fill_n(biased.begin() + j * per_group, per_group,
                      -std::numeric_limits<double>::infinity());
        best(biased, shape_.top_k, row_of(ids, i));
      }
      double sum = 1e-20;
      for (int64_t k = 0; k < shape_.top_k; ++k) sum += s[row_of(ids, i)[k]];
      for (int64_t k = 0; k < shape_.top_k; ++k)
        row_of(weights, i)[k] = s[row_of(ids, i)[k]] / sum * shape_.routed_scale;
    }
  }

  void experts(const Rows& h, const Moe& moe, const Ints& ids, const Rows& weights,
               const Rows& o) override {
    std::vector<double> gate(static_cast<size_t>(std::max(shape_.expert_dim, shape_.shared_dim)));
    std::vector<double> up(gate), out(static_cast<size_t>(shape_.hidden));
    for (int64_t i = 0; i < h.rows; ++i) {
      check_abort();
      const Rows x = h.slice_rows(i, 1);
      ffn(x, moe.shared, shape_.shared_dim, moe.shared_limit, gate, up, row_of(o, i));
      for (int64_t k = 0; k < shape_.top_k; ++k) {
        ffn(x, moe.experts[row_of(ids, i)[k]], shape_.expert_dim, moe.routed_limit, gate, up,
            out.data());
        const double w = row_of(weights, i)[k];
        for (int64_t c = 0; c < shape_.hidden; ++c) row_of(o, i)[c] += w * out[c];
      }
    }
  }

  void swiglu(const Rows& gate, const Rows& up, double limit) override {
    for (int64_t i = 0; i < gate.rows; ++i)
      activate(row_of(gate, i), row_of(up, i), gate.cols, limit);
  }

  void join(const Rows& a, const Rows& b, const Rows& y) override {
    copy(a, y.slice_cols(0, a.cols));
    copy(b, y.slice_cols(a.cols, b.cols));
  }

  void logits(const Rows& hidden, const LmHead& head, const Rows& y) override {
    matmul(hidden, weight_of(head), y);
  }

 private:
  // A step of a large model takes minutes here, so that the slow loops look for themselves.
  void check_abort() {
    if (abort_ == nullptr || !abort_->load(std::memory_order_relaxed)) return;
    abort_ = nullptr;  // the step is over, and what it points to may be too
    throw Error(ErrorKind::kInterrupted, "interrupted");
  }

  static Rows view(std::vector<double>& memory, int64_t rows, int64_t cols) {
    return {{memory.data(), memory.size() * sizeof(double)}, 0, rows, cols, cols};
  }

  static void unit_row(const double* x, int64_t n, double scale, double* y) {
    const double sum = std::inner_product(x, x + n, x, 0.0);
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] / std::sqrt(sum + 1e-6) * scale;
  }

  // S <- diag(exp g) S + k u^T for one head: the whole recurrence, once u is known.
  void update(const Rows& s, int64_t h, const double* g, const double* k, const double* u) const {
    const int64_t d = shape_.head_dim;
    for (int64_t a = 0; a < d; ++a) {
      double* row = row_of(s, h * d + a);
      for (int64_t b = 0; b < d; ++b) row[b] = std::exp(g[a]) * row[b] + k[a] * u[b];
    }
  }

  void fold_state(const LayerState& state, int64_t rows) const {
    const int64_t d = shape_.head_dim;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t h = 0; h < shape_.heads; ++h)
        update(state.kda_state, h, row_of(state.record_g, i) + h * d,
               row_of(state.record_k, i) + h * d, row_of(state.record_u, i) + h * d);
  }

  void fold_tail(const LayerState& state, int64_t rows) {
    const int64_t past = shape_.conv_kernel - 1;
    for (int s = 0; s < 3; ++s) {
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j + 1 < past; ++j)
          copy(state.conv_tail.slice_rows(s * past + j + 1, 1),
               state.conv_tail.slice_rows(s * past + j, 1));
        copy(state.record_in.slice_rows(s * kMaxVerify + i, 1),
             state.conv_tail.slice_rows(s * past + past - 1, 1));
      }
    }
  }

  void rotate(double* x, int64_t position) const {
    for (int64_t j = 0; j < shape_.rope / 2; ++j) {
      const double angle = static_cast<double>(position) * shape_.rope_freq[j];
      const double c = std::cos(angle) * shape_.rope_factor;
      const double s = std::sin(angle) * shape_.rope_factor;
      const double even = x[2 * j], odd = x[2 * j + 1];
      x[2 * j] = even * c - odd * s;
      x[2 * j + 1] = odd * c + even * s;
    }
  }

  static double top_two(const double* x, int64_t n) {
    double first = -std::numeric_limits<double>::infinity(), second = first;
    for (int64_t i = 0; i < n; ++i) {
      if (x[i] > first) {
        second = first;
        first = x[i];
      } else {
        second = std::max(second, x[i]);
      }
    }
    return n > 1 ? first + second : first;
  }

  // The groups that are not among the best `keep`; ties keep the lower index.
  static std::vector<int64_t> drop_order(const std::vector<double>& group, int64_t keep) {
    std::vector<int64_t> order(group.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return group[a] > group[b]; });
    return {order.begin() + keep, order.end()};
  }

  static void best(const std::vector<double>& x, int64_t count, int32_t* ids) {
    std::vector<int32_t> order(x.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return x[a] > x[b]; });
    std::copy_n(order.begin(), count, ids);
  }

  static void activate(double* gate, const double* up, int64_t n, double limit) {
    for (int64_t i = 0; i < n; ++i) {
      const double a = silu(gate[i]);
      gate[i] = limit > 0 ? std::min(a, limit) * std::clamp(up[i], -limit, limit) : a * up[i];
    }
  }

  void ffn(const Rows& x, const Ffn& w, int64_t width, double limit, std::vector<double>& gate,
           std::vector<double>& up, double* y) {
    matmul(x, w.gate, view(gate, 1, width));
    matmul(x, w.up, view(up, 1, width));
    activate(gate.data(), up.data(), width, limit);
    matmul(view(gate, 1, width), w.down, {{y, 0}, 0, 1, w.down.rows, w.down.rows});
  }

  BackendOptions options_;
  ModelShape shape_;
  Counters counters_;
  double bandwidth_ = 0;
  int64_t first_position_ = 0;
  const std::atomic<bool>* abort_ = nullptr;
  int64_t fold_ = 0;
  bool verify_ = false;
  std::deque<RefTensor> tensors_;
  std::vector<std::unique_ptr<void, decltype(&std::free)>> memory_;
  std::vector<double> row_, scores_, private_;
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend(const BackendOptions& options) {
  return std::make_unique<Reference>(options);
}

std::string Backend::expert_kernel(const Weight&) const { return cat("plain ", name()); }

int64_t Backend::cache_bytes() const { return last_level_cache_bytes(); }
void Backend::sample(const Rows&, const SamplerParams&, int64_t, const Ints&, const Ints&) {
  SPK_CHECK(!"this back end chooses no tokens");
}

void Backend::commit(const LayerState&, int64_t) { SPK_CHECK(!"this back end has no verify pass"); }

void Backend::fused(Block, const Layer&, const LayerState&, const Scratch&) {
  SPK_CHECK(!"fused() called for a block that is not in the plan");
}

}  // namespace spk
