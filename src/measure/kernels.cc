#include "measure/kernels.h"

#include "backend/sampler.h"
#include "base/error.h"
#include "base/types.h"
#include "engine/cache.h"
#include "measure/statistics.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>

namespace spk {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<int64_t, 4> kRowCounts = {1, 2, 4, 8};
constexpr int64_t kMostCopies = 8192;
constexpr int64_t kLeastTimes = 12, kLeastOfDevice = 4;
constexpr int64_t kPeriod = 64;  // calls until the same inputs come again, at least
constexpr size_t kAlign = 64;

// Products that share an input: the tensors by the end of their names.
struct ProductKernel {
  const char* name;
  Component component;
  std::vector<std::string_view> ends;  // those that exist are taken
};
const std::vector<ProductKernel>& products() {
  static const std::vector<ProductKernel> all = {
      {"kda-in",
       Component::kKda,
       {"attention.q_proj.weight", "attention.k_proj.weight", "attention.v_proj.weight",
        "attention.f_proj.weight", "attention.g_proj.weight", "attention.b_proj.weight"}},
      {"kda-out", Component::kKda, {"attention.o_proj.weight"}},
      {"mla-in",
       Component::kMla,
       {"attention.q_proj.weight", "attention.q_a_proj.weight",
        "attention.kv_a_proj_with_mqa.weight", "attention.g_proj.weight"}},
      {"mla-out", Component::kMla, {"attention.dense.weight"}},
      {"dense-ffn-in", Component::kDense, {"mlp.gate_proj.weight", "mlp.up_proj.weight"}},
      {"router", Component::kRouter, {"mlp.gate.weight"}},
  };
  return all;
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// Copies of tensors at addresses of their own.
class Copies {
 public:
  HostTensor make(const HostTensor& t) {
    HostTensor copy = t;
    const auto codes = static_cast<size_t>(code_bytes(t.format, t.rows, t.cols));
    copy.data = take(t.data, codes);
    if (t.scales != nullptr) copy.scales = take(t.scales, static_cast<size_t>(t.bytes()) - codes);
    return copy;
  }

 private:
  const std::byte* take(const std::byte* from, size_t bytes) {
    // The vector loops may read a little past the end, as in a mapped file.
    memory_.emplace_back(bytes + 2 * kAlign);
    std::byte* at = memory_.back().data();
    at += (kAlign - reinterpret_cast<uintptr_t>(at) % kAlign) % kAlign;
    std::memcpy(at, from, bytes);
    return at;
  }
  std::deque<std::vector<std::byte>> memory_;
};

class Bench {
 public:
  Bench(const ModelConfig& config, const TensorSet& tensors, std::unique_ptr<Backend> backend,
        const KernelRequest& request)
      : config_(config),
        tensors_(tensors),
        owned_(std::move(backend)),
        b_(*owned_),
        request_(request) {
    b_.prepare(config.shape);
  }

  void product(const ProductKernel& kernel, std::vector<KernelRow>& out);
  void head(std::vector<KernelRow>& out);
  void experts(std::vector<KernelRow>& out);
  void moe(std::vector<KernelRow>& out);
  void kda_mix(std::vector<KernelRow>& out);
  void attend(std::vector<KernelRow>& out);

 private:
  int64_t copies_for(int64_t bytes) const {
    return std::clamp<int64_t>(ceil_div(3 * b_.cache_bytes(), std::max<int64_t>(bytes, 1)), 1,
                               kMostCopies);
  }
  static int64_t period_of(int64_t copies) { return round_up(kPeriod, copies); }
  Rows rows(int64_t n, int64_t cols) {
    const Rows r{b_.alloc(static_cast<size_t>(n * cols) * b_.real_bytes(), "bench"), 0, n, cols,
                 cols};
    std::vector<double> values(static_cast<size_t>(n * cols));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = 2 * uniform_at(1, 2, static_cast<uint64_t>(i), 3) - 1;
    b_.write(values.data(), r);
    return r;
  }
  void begin(int64_t n, int64_t position) {
    Step step;
    step.kind = n == 1 ? StepKind::kDecode : StepKind::kVerify;
    step.rows = n;
    step.first_position = position;
    b_.begin(step);
  }
  void measure(const std::string& name, int64_t n, int64_t copies,
               const std::function<void(int64_t copy, int64_t input)>& call,
               std::vector<KernelRow>& out);

  const ModelConfig& config_;
  const TensorSet& tensors_;
  std::unique_ptr<Backend> owned_;
  Backend& b_;
  const KernelRequest& request_;
  Copies copies_;
};

void Bench::measure(const std::string& name, int64_t n, int64_t copies,
                    const std::function<void(int64_t, int64_t)>& call,
                    std::vector<KernelRow>& out) {
  const int64_t period = period_of(copies), batch = b_.on_host() ? 1 : period;
  const int64_t least = b_.on_host() ? kLeastTimes : kLeastOfDevice;
  // Page faults, scratch, and what a device keeps for calls that come again: not counted.
  for (int64_t i = 0; i < (b_.on_host() ? copies : 3 * period); ++i) {
    call(i % copies, i % period);
    if ((i + 1) % batch == 0) b_.wait();
  }
  const Counters before = b_.counters();
  std::vector<double> times;
  const Clock::time_point start = Clock::now();
  double elapsed = 0;
  for (int64_t i = 0; elapsed < request_.seconds || i < least * batch;) {
    const Clock::time_point from = Clock::now();
    for (int64_t k = 0; k < batch; ++k, ++i) call(i % copies, i % period);
    b_.wait();
    const Clock::time_point to = Clock::now();
    times.push_back(1e6 * std::chrono::duration<double>(to - from).count() /
                    static_cast<double>(batch));
    elapsed = std::chrono::duration<double>(to - start).count();
  }
  const Counters& after = b_.counters();
  KernelRow row;
  row.name = name;
  row.rows = n;
  row.copies = copies;
  row.calls = static_cast<int64_t>(times.size()) * batch;
  row.microseconds = median(times);
  row.spread_percent = 100 * (quantile(times, 0.95) / row.microseconds - 1);
  row.bytes = static_cast<double>(after.weight_bytes - before.weight_bytes + after.state_bytes -
                                  before.state_bytes) /
              static_cast<double>(row.calls);
  out.push_back(row);
}

void Bench::product(const ProductKernel& kernel, std::vector<KernelRow>& out) {
  // The tensors of the first layer that has them.
  std::vector<const BoundTensor*> found;
  int64_t layer = -1, bytes = 0;
  for (const BoundTensor& bound : tensors_.tensors) {
    if (bound.component != kernel.component || (layer >= 0 && bound.layer != layer)) continue;
    for (const std::string_view end : kernel.ends) {
      if (!ends_with(bound.name, end)) continue;
      layer = bound.layer;
      bytes += bound.tensor.bytes();
      found.push_back(&bound);
    }
  }
  if (found.empty()) return;
  const int64_t copies = copies_for(bytes);
  std::vector<std::vector<Weight>> weights(static_cast<size_t>(copies));
  for (auto& group : weights)
    for (const BoundTensor* bound : found) group.push_back(b_.upload(copies_.make(bound->tensor)));
  const int64_t most = kRowCounts.back();
  const Rows x = rows(most, found[0]->tensor.cols);
  std::vector<Rows> y;
  y.reserve(found.size());
  for (const BoundTensor* bound : found) y.push_back(rows(most, bound->tensor.rows));
  for (const int64_t n : kRowCounts) {
    std::vector<Rows> part;
    part.reserve(y.size());
    for (const Rows& r : y) part.push_back(r.slice_rows(0, n));
    begin(n, 0);
    measure(
        kernel.name, n, copies,
        [&](int64_t c, int64_t) {
          std::vector<const Weight*> group;
          for (const Weight& w : weights[static_cast<size_t>(c)]) group.push_back(&w);
          b_.matmul_many(x.slice_rows(0, n), group, part);
        },
        out);
  }
}

void Bench::head(std::vector<KernelRow>& out) {
  const HostTensor& stored = tensors_.at("lm_head.weight").tensor;
  std::vector<LmHead> heads;
  const LmHead first(b_, stored, request_.head, {}, request_.threads);
  const int64_t copies = copies_for(first.bytes());
  for (int64_t c = 0; c < copies; ++c)
    heads.emplace_back(b_, copies_.make(stored), request_.head, std::span<const int32_t>(),
                       request_.threads);
  const Rows x = rows(kRowCounts.back(), stored.cols), y = rows(kRowCounts.back(), stored.rows);
  for (const int64_t n : kRowCounts) {
    begin(n, 0);
    measure(
        "head", n, copies,
        [&](int64_t c, int64_t) {
          b_.logits(x.slice_rows(0, n), heads[static_cast<size_t>(c)], y.slice_rows(0, n));
        },
        out);
  }
}

void Bench::experts(std::vector<KernelRow>& out) {
  const ModelShape& s = config_.shape;
  int64_t bytes = 0;
  for (const BoundTensor& bound : tensors_.tensors)
    if (bound.layer == config_.dense_layers &&
        (bound.component == Component::kRouted || bound.component == Component::kShared))
      bytes += bound.tensor.bytes();
  const int64_t copies = copies_for(bytes);
  std::vector<Moe> layers(static_cast<size_t>(copies));
  for (Moe& moe : layers) {
    moe.experts.resize(static_cast<size_t>(s.experts));
    for (const BoundTensor& bound : tensors_.tensors) {
      if (bound.layer != config_.dense_layers) continue;
      const bool routed = bound.component == Component::kRouted;
      if (!routed && bound.component != Component::kShared) continue;
      Ffn& ffn = routed ? moe.experts[static_cast<size_t>(bound.expert)] : moe.shared;
      const bool down = ends_with(bound.name, "down_proj.weight");
      const bool up = ends_with(bound.name, "up_proj.weight");
      (down ? ffn.down : up ? ffn.up : ffn.gate) = b_.upload_expert(copies_.make(bound.tensor));
    }
  }
  const int64_t most = kRowCounts.back();
  const Rows x = rows(most, s.hidden), y = rows(most, s.hidden), weight = rows(most, s.top_k);
  // Rows choose on their own, as random tokens do: the distinct ones follow.
  const int64_t choices = period_of(copies) * most;
  const Ints ids{b_.alloc(static_cast<size_t>(choices * s.top_k) * sizeof(int32_t), "ids"), 0,
                 choices, s.top_k, s.top_k};
  std::vector<int32_t> table;
  for (int64_t row = 0; row < choices; ++row) {
    std::vector<int32_t> chosen;
    for (uint32_t k = 0; static_cast<int64_t>(chosen.size()) < s.top_k; ++k) {
      const double u = uniform_at(7, static_cast<uint64_t>(row), 0, k);
      const auto e = static_cast<int32_t>(u * static_cast<double>(s.experts));
      if (std::find(chosen.begin(), chosen.end(), e) == chosen.end()) chosen.push_back(e);
    }
    table.insert(table.end(), chosen.begin(), chosen.end());
  }
  b_.write(table.data(), ids);
  for (const int64_t n : kRowCounts) {
    begin(n, 0);
    measure(
        "experts", n, copies,
        [&](int64_t c, int64_t input) {
          b_.experts(x.slice_rows(0, n), layers[static_cast<size_t>(c)],
                     ids.slice_rows(input * most, n), weight.slice_rows(0, n), y.slice_rows(0, n));
        },
        out);
  }
}

// What stands between a mixer and the next layer: addition and norm, router, choice, experts, their
// sum, addition; as a step asks for it.
void Bench::moe(std::vector<KernelRow>& out) {
  const int64_t first = config_.dense_layers, most = kRowCounts.back();
  const auto feeds = [](const BoundTensor& t) {
    return t.component == Component::kRouter || t.component == Component::kRouted ||
           t.component == Component::kShared ||
           ends_with(t.name, "post_attention_layernorm.weight");
  };
  int64_t bytes = 0;
  for (const BoundTensor& t : tensors_.tensors)
    if (t.layer == first && feeds(t)) bytes += t.tensor.bytes();
  const int64_t layers = std::min(copies_for(bytes), config_.moe_layers());
  const Model model = load_model(config_, tensors_, b_, {}, nullptr, [&](const BoundTensor& t) {
    return t.layer >= first && t.layer < first + layers && feeds(t);
  });
  const bool fused = b_.plan().fused[static_cast<int>(Block::kMoe)];
  const int64_t hidden = config_.shape.hidden, inputs = period_of(layers);
  const Rows residual = rows(inputs * most, hidden);  // other tokens, other experts
  const Scratch scratch = make_scratch(config_.shape, false, most, most, b_);
  for (const int64_t n : kRowCounts) {
    begin(n, 0);
    measure(
        "moe", n, layers,
        [&](int64_t c, int64_t input) {
          const Layer& l = model.layers[static_cast<size_t>(first + c)];
          Scratch t = scratch.first(n);
          t.x = residual.slice_rows(input * most, n);
          b_.add_rms_norm(t.x, t.o, l.ffn_norm, t.h);
          if (fused) {
            b_.fused(Block::kMoe, l, {}, t);
          } else {
            b_.route(t.h, l.moe, {}, t.route_id, t.route_weight);
            b_.experts(t.h, l.moe, t.route_id, t.route_weight, t.o);
          }
          b_.add(t.x, t.o);
        },
        out);
  }
}

void Bench::kda_mix(std::vector<KernelRow>& out) {
  const ModelShape& s = config_.shape;
  const int64_t n = kRowCounts.back(), width = s.heads * s.head_dim;
  const auto real = static_cast<int64_t>(b_.real_bytes());
  const int64_t copies = copies_for(width * s.head_dim * real);
  std::vector<LayerState> states(static_cast<size_t>(copies));
  for (LayerState& state : states) {
    state.kda_state = rows(width, s.head_dim);
    state.record_k = rows(kMaxVerify, width);
    state.record_u = rows(kMaxVerify, width);
    state.record_g = rows(kMaxVerify, width);
  }
  const Rows q = rows(n, width), k = rows(n, width), v = rows(n, width), g = rows(n, width),
             beta = rows(n, s.heads), o = rows(n, width);
  for (const int64_t count : kRowCounts) {
    begin(count, 0);
    measure(
        "kda-mix", count, copies,
        [&](int64_t c, int64_t) {
          const auto part = [count](const Rows& r) { return r.slice_rows(0, count); };
          b_.kda_mix(part(q), part(k), part(v), part(g), part(beta), states[static_cast<size_t>(c)],
                     part(o));
        },
        out);
  }
}

void Bench::attend(std::vector<KernelRow>& out) {
  const ModelShape& s = config_.shape;
  const int64_t n = kRowCounts.back(), cols = s.latent + s.rope;
  const auto real = static_cast<int64_t>(b_.real_bytes());
  const int64_t copies = copies_for(request_.depth * cols * real);
  std::vector<LayerState> states(static_cast<size_t>(copies));
  for (LayerState& state : states) state.latent = rows(request_.depth + n, cols);
  const Rows q = rows(n, s.heads * (s.nope + s.rope)), latent = rows(n, s.heads * s.latent),
             z = rows(n, s.heads * s.latent);
  for (const int64_t count : kRowCounts) {
    begin(count, request_.depth);
    measure(
        cat("attend@", request_.depth), count, copies,
        [&](int64_t c, int64_t) {
          b_.latent_attend(latent.slice_rows(0, count), q.slice_rows(0, count),
                           states[static_cast<size_t>(c)], z.slice_rows(0, count));
        },
        out);
  }
}

}  // namespace

std::vector<std::string> kernel_names(const ModelConfig& config) {
  std::vector<std::string> names;
  for (const ProductKernel& kernel : products()) names.emplace_back(kernel.name);
  for (const char* name : {"head", "experts", "moe", "kda-mix", "attend"}) names.emplace_back(name);
  if (config.moe_layers() == 0) {
    names.erase(
        std::remove_if(names.begin(), names.end(),
                       [](const auto& n) { return n == "experts" || n == "router" || n == "moe"; }),
        names.end());
  }
  return names;
}

std::vector<KernelRow> run_kernels(const ModelConfig& config, const TensorSet& tensors,
                                   const std::function<std::unique_ptr<Backend>()>& backend,
                                   const KernelRequest& request) {
  std::vector<KernelRow> rows;
  std::string known;
  bool any = false;
  for (const std::string& name : kernel_names(config)) {
    known += (known.empty() ? "" : ", ") + name;
    if (name.find(request.filter) == std::string::npos) continue;
    any = true;
    Bench bench(config, tensors, backend(), request);
    if (name == "head") {
      bench.head(rows);
    } else if (name == "experts") {
      bench.experts(rows);
    } else if (name == "moe") {
      bench.moe(rows);
    } else if (name == "kda-mix") {
      bench.kda_mix(rows);
    } else if (name == "attend") {
      bench.attend(rows);
    } else {
      for (const ProductKernel& kernel : products())
        if (name == kernel.name) bench.product(kernel, rows);
    }
  }
  if (!any) fail_usage("--kernel: expected part of ", known, ", found '", request.filter, "'");
  return rows;
}

}  // namespace spk
