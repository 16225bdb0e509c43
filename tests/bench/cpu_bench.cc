// Times the verbs of the cpu back end on the family's shapes, weights cold: each call takes the
// next of enough copies to fill the last-level cache four times. Prints GB/s of weights and state
// and their share of the measured read bandwidth (decode), or GFLOP/s (prefill). best_GB/s is of
// the shortest call: on a machine that others use too, the only figure that compares kernels.
//
//   cpu_bench [--threads=N] [--isa=NAME] [Google Benchmark's options]
#include "backend/backend.h"
#include "base/bandwidth.h"
#include "base/error.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace spk {
namespace {

BackendOptions g_options{2, 0, "", false};
double g_bandwidth = 0;

struct Named {
  const char* name;
  int64_t hidden, heads, expert_dim, experts, top_k;
};
constexpr Named kFlash{"flash", 2560, 32, 768, 512, 8};
constexpr Named kTiny{"tiny", 1536, 16, 512, 128, 8};
constexpr Named kNano{"nano", 256, 2, 64, 32, 4};

ModelShape shape_of(const Named& n) {
  ModelShape s;
  s.hidden = n.hidden;
  s.vocab = 4096;
  s.heads = n.heads;
  s.head_dim = s.nope = s.v_dim = 128;
  s.rope = 64;
  s.latent = 512;
  s.experts = n.experts;
  s.top_k = n.top_k;
  s.groups = 8;
  s.keep_groups = 4;
  s.expert_dim = s.shared_dim = n.expert_dim;
  for (int i = 0; i < 32; ++i) s.rope_freq.push_back(std::pow(6e6, -2.0 * i / 64));
  return s;
}

// A back end with random weights; bytes are random, scales small.
class Bed {
 public:
  explicit Bed(const ModelShape& shape, MoeKernel moe = MoeKernel::kPlain) : shape_(shape) {
    BackendOptions options = g_options;
    options.moe = moe;
    backend_ = make_cpu_backend(options);
    backend_->prepare(shape);
  }
  Backend& backend() { return *backend_; }

  Weight weight(int64_t rows, int64_t cols, Format format, bool expert = false) {
    HostTensor t;
    t.name = "bench";
    t.format = format;
    t.rows = rows;
    t.cols = cols;
    t.scale_type = format == Format::kFp8     ? ScaleType::kF32
                   : format == Format::kMxfp4 ? ScaleType::kE8m0
                   : format == Format::kInt4  ? ScaleType::kBf16
                                              : ScaleType::kNone;
    const size_t kept = memory_.size();
    std::vector<std::byte>& codes = fill(code_bytes(format, rows, cols));
    if (format == Format::kBf16 || format == Format::kF32)  // small finite numbers
      for (size_t i = format == Format::kBf16 ? 1 : 3; i < codes.size();
           i += i % 4 == 3 && format == Format::kF32 ? 4 : 2)
        codes[i] = std::byte{0x3c};
    if (format == Format::kFp8)
      for (std::byte& b : codes) b &= std::byte{0xbf};
    t.data = codes.data();
    const int64_t count = scale_count(format, rows, cols);
    if (count > 0) {
      std::vector<std::byte>& scales = fill(count * scale_bytes(t.scale_type));
      const float one = 0.01f;
      const uint16_t bf16 = 0x3c23;
      for (int64_t i = 0; i < count; ++i) {
        if (t.scale_type == ScaleType::kF32)
          std::memcpy(&scales[static_cast<size_t>(4 * i)], &one, 4);
        if (t.scale_type == ScaleType::kBf16)
          std::memcpy(&scales[static_cast<size_t>(2 * i)], &bf16, 2);
        if (t.scale_type == ScaleType::kE8m0) scales[static_cast<size_t>(i)] = std::byte{120};
      }
      t.scales = scales.data();
    }
    if (!expert) return backend_->upload(t);
    const Weight w = backend_->upload_expert(t);
    if (w.packed) {  // the stored form is not read again
      while (memory_.size() > kept) memory_.pop_back();
    }
    return w;
  }
  Weight vector(int64_t cols) {
    std::vector<std::byte>& bytes = fill(4 * cols);
    for (int64_t i = 0; i < cols; ++i) {
      const float x = 0.5f;
      std::memcpy(&bytes[static_cast<size_t>(4 * i)], &x, 4);
    }
    HostTensor t;
    t.name = "bench";
    t.rows = 1;
    t.cols = cols;
    t.data = bytes.data();
    return backend_->upload(t);
  }
  Rows rows(int64_t count, int64_t cols, double size = 1) {
    const Rows r{backend_->alloc(static_cast<size_t>(count * cols) * 4, "bench"), 0, count, cols,
                 cols};
    std::vector<double> x(static_cast<size_t>(count * cols));
    for (double& v : x) v = size * normal_(random_);
    backend_->write(x.data(), r);
    return r;
  }
  Ints ints(const std::vector<int32_t>& values, int64_t cols) {
    const Ints i{backend_->alloc(values.size() * 4, "bench"), 0,
                 static_cast<int64_t>(values.size()) / cols, cols, cols};
    backend_->write(values.data(), i);
    return i;
  }
  void begin(int64_t rows, int64_t first) {
    Step step;
    step.kind = rows == 1 ? StepKind::kDecode : StepKind::kPrefill;
    step.rows = rows;
    step.first_position = first;
    backend_->begin(step);
  }
  uint64_t random() { return random_(); }

 private:
  std::vector<std::byte>& fill(int64_t bytes) {
    std::vector<std::byte>& v = memory_.emplace_back(static_cast<size_t>(bytes));
    for (size_t i = 0; i + 8 <= v.size(); i += 8) {
      const uint64_t r = random_();
      std::memcpy(&v[i], &r, 8);
    }
    return v;
  }

  ModelShape shape_;
  std::unique_ptr<Backend> backend_;
  std::deque<std::vector<std::byte>> memory_;
  std::mt19937_64 random_{7};
  std::normal_distribution<double> normal_;
};

int64_t copies_for(int64_t bytes) {
  return std::max<int64_t>(1, (4 * last_level_cache_bytes() + bytes - 1) / bytes);
}

void report(benchmark::State& state, double bytes, double flops) {
  const auto n = static_cast<double>(state.iterations());
  state.counters["GB/s"] = benchmark::Counter(bytes * n / 1e9, benchmark::Counter::kIsRate);
  state.counters["of_bw"] =
      benchmark::Counter(bytes * n / g_bandwidth, benchmark::Counter::kIsRate);
  state.counters["GFLOP/s"] = benchmark::Counter(flops * n / 1e9, benchmark::Counter::kIsRate);
}

// The calls of a benchmark, with the time of the shortest one.
template <typename F>
double best_seconds(benchmark::State& state, F&& call) {
  using Clock = std::chrono::steady_clock;
  double best = std::numeric_limits<double>::infinity();
  for (auto _ : state) {
    const Clock::time_point start = Clock::now();
    call();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

void matmul(benchmark::State& state, int64_t rows, int64_t cols, Format format, int64_t n) {
  Bed bed(shape_of(kTiny));
  std::vector<Weight> w;
  const int64_t bytes = code_bytes(format, rows, cols);
  for (int64_t i = 0; i < copies_for(bytes); ++i) w.push_back(bed.weight(rows, cols, format));
  const Rows x = bed.rows(n, cols), y = bed.rows(n, rows);
  bed.begin(n, 0);
  size_t next = 0;
  const double best = best_seconds(state, [&] {
    bed.backend().matmul(x, w[next], y);
    next = (next + 1) % w.size();
  });
  state.counters["best_GB/s"] = static_cast<double>(w[0].bytes) / best / 1e9;
  report(state, static_cast<double>(w[0].bytes), 2.0 * static_cast<double>(rows * cols * n));
}

void experts(benchmark::State& state, const Named& named, MoeKernel kernel, int64_t n) {
  const ModelShape s = shape_of(named);
  Bed bed(s, kernel);
  Moe moe;
  moe.router = bed.weight(s.experts, s.hidden, Format::kBf16);
  moe.bias = bed.vector(s.experts);
  for (int64_t e = 0; e < s.experts; ++e)
    moe.experts.push_back({bed.weight(s.expert_dim, s.hidden, Format::kMxfp4, true),
                           bed.weight(s.expert_dim, s.hidden, Format::kMxfp4, true),
                           bed.weight(s.hidden, s.expert_dim, Format::kMxfp4, true)});
  moe.shared = {bed.weight(s.shared_dim, s.hidden, Format::kFp8, true),
                bed.weight(s.shared_dim, s.hidden, Format::kFp8, true),
                bed.weight(s.hidden, s.shared_dim, Format::kFp8, true)};
  const Rows h = bed.rows(n, s.hidden), o = bed.rows(n, s.hidden), weight = bed.rows(n, s.top_k);
  bed.begin(n, 0);
  std::vector<Ints> ids;
  for (int i = 0; i < 64; ++i) {
    std::vector<int32_t> id;
    for (int64_t r = 0; r < n; ++r) {
      const uint64_t at = bed.random();
      for (int64_t k = 0; k < s.top_k; ++k)
        id.push_back(static_cast<int32_t>((at + static_cast<uint64_t>(k * 13)) %
                                          static_cast<uint64_t>(s.experts)));
    }
    ids.push_back(bed.ints(id, s.top_k));
  }
  size_t next = 0;
  const uint64_t before = bed.backend().counters().weight_bytes;
  const double best = best_seconds(state, [&] {
    bed.backend().experts(h, moe, ids[next], weight, o);
    next = (next + 1) % ids.size();
  });
  const double bytes = static_cast<double>(bed.backend().counters().weight_bytes - before) /
                       static_cast<double>(state.iterations());
  state.counters["best_GB/s"] = bytes / best / 1e9;
  report(state, bytes, 6.0 * static_cast<double>(n * (s.top_k + 1) * s.hidden * s.expert_dim));
}

void route(benchmark::State& state, const Named& named, int64_t n) {
  const ModelShape s = shape_of(named);
  Bed bed(s);
  std::vector<Moe> moe(static_cast<size_t>(copies_for(s.experts * s.hidden * 2)));
  for (Moe& m : moe) {
    m.router = bed.weight(s.experts, s.hidden, Format::kBf16);
    m.bias = bed.vector(s.experts);
  }
  const Rows h = bed.rows(n, s.hidden), weight = bed.rows(n, s.top_k);
  const Ints ids = bed.ints(std::vector<int32_t>(static_cast<size_t>(n * s.top_k)), s.top_k);
  bed.begin(n, 0);
  size_t next = 0;
  for (auto _ : state) {
    bed.backend().route(h, moe[next], {}, ids, weight);
    next = (next + 1) % moe.size();
  }
  report(state, static_cast<double>(moe[0].router.bytes),
         2.0 * static_cast<double>(n * s.experts * s.hidden));
}

void kda_mix(benchmark::State& state, const Named& named, int64_t n) {
  const ModelShape s = shape_of(named);
  Bed bed(s);
  const int64_t width = s.heads * s.head_dim;
  std::vector<LayerState> layers(
      static_cast<size_t>(n > 1 ? 1 : copies_for(width * s.head_dim * 4)));
  for (LayerState& l : layers) l.kda_state = bed.rows(width, s.head_dim, 0.1);
  const Rows q = bed.rows(n, width), k = bed.rows(n, width), v = bed.rows(n, width),
             g = bed.rows(n, width, 0.1), beta = bed.rows(n, s.heads, 0.1), o = bed.rows(n, width);
  std::vector<double> decay(static_cast<size_t>(n * width), -0.5),
      half(static_cast<size_t>(n * s.heads), 0.5);
  bed.backend().write(decay.data(), g);
  bed.backend().write(half.data(), beta);
  bed.begin(n, 0);
  size_t next = 0;
  for (auto _ : state) {
    bed.backend().kda_mix(q, k, v, g, beta, layers[next], o);
    next = (next + 1) % layers.size();
  }
  report(state, static_cast<double>(width * s.head_dim * 8),
         8.0 * static_cast<double>(n * width * s.head_dim));
}

// The passes over activations of one KDA layer: what is neither product nor recurrence.
void kda_rest(benchmark::State& state, const Named& named, int64_t n) {
  const ModelShape s = shape_of(named);
  Bed bed(s);
  const int64_t width = s.heads * s.head_dim;
  Kda w;
  w.conv_q = w.conv_k = w.conv_v = bed.weight(width, 4, Format::kBf16);
  w.a_log = bed.vector(s.heads);
  w.dt_bias = bed.vector(width);
  w.o_norm = bed.vector(s.head_dim);
  const Weight norm = bed.vector(s.hidden);
  LayerState layer;
  layer.conv_tail = bed.rows(9, width);
  const Rows q = bed.rows(n, width), k = bed.rows(n, width), v = bed.rows(n, width),
             f = bed.rows(n, width), g = bed.rows(n, width), beta = bed.rows(n, s.heads),
             o = bed.rows(n, width), x = bed.rows(n, s.hidden), h = bed.rows(n, s.hidden);
  bed.begin(n, 0);
  for (auto _ : state) {
    bed.backend().rms_norm(x, norm, h);
    bed.backend().conv_step(q, k, v, w, layer);
    bed.backend().kda_gate(f, beta, w);
    bed.backend().norm_gate(o, g, w.o_norm);
    bed.backend().add_rms_norm(h, x, norm, h);
  }
  report(state, 0, 0);
}

void attend(benchmark::State& state, const Named& named, int64_t first, int64_t n) {
  const ModelShape s = shape_of(named);
  Bed bed(s);
  LayerState layer;
  layer.latent = bed.rows(first + n, s.latent + s.rope);
  const Rows ql = bed.rows(n, s.heads * s.latent, 0.1), q = bed.rows(n, s.heads * 192, 0.1),
             z = bed.rows(n, s.heads * s.latent);
  bed.begin(n, first);
  for (auto _ : state) bed.backend().latent_attend(ql, q, layer, z);
  const double seen =
      static_cast<double>(n) * (static_cast<double>(first) + static_cast<double>(n + 1) / 2);
  report(state, static_cast<double>((first + n) * (s.latent + s.rope) * 4),
         2.0 * static_cast<double>(s.heads * (2 * s.latent + s.rope)) * seen);
}

void absorb_expand(benchmark::State& state, const Named& named, int64_t n) {
  const ModelShape s = shape_of(named);
  Bed bed(s);
  std::vector<Weight> w;
  for (int64_t i = 0; i < copies_for(s.heads * 256 * s.latent); ++i)
    w.push_back(bed.weight(s.heads * 256, s.latent, Format::kFp8));
  const Rows q = bed.rows(n, s.heads * 192), ql = bed.rows(n, s.heads * s.latent),
             o = bed.rows(n, s.heads * 128);
  bed.begin(n, 0);
  size_t next = 0;
  for (auto _ : state) {
    bed.backend().latent_absorb(q, w[next], ql);
    bed.backend().latent_expand(ql, w[next], o);
    next = (next + 1) % w.size();
  }
  report(state, static_cast<double>(w[0].bytes),
         4.0 * static_cast<double>(n * s.heads * 128 * s.latent));
}

void add_all() {
  const auto add = [](const std::string& name, auto&& f) {
    benchmark::RegisterBenchmark(name.c_str(), f)->UseRealTime()->MinTime(0.2);
  };
  for (Format f : {Format::kF32, Format::kBf16, Format::kFp8, Format::kMxfp4, Format::kInt4})
    for (int64_t n : {1, 2, 4, 8, 64, 256}) {
      add(cat("matmul/", format_name(f), "/2048x1536/", n),
          [=](benchmark::State& s) { matmul(s, 2048, 1536, f, n); });
      if (f == Format::kFp8)
        add(cat("matmul/", format_name(f), "/4096x2560/", n),
            [=](benchmark::State& s) { matmul(s, 4096, 2560, f, n); });
      if (f == Format::kFp8)
        add(cat("matmul/", format_name(f), "/256x256/", n),
            [=](benchmark::State& s) { matmul(s, 256, 256, f, n); });
    }
  for (const Named& named : {kFlash, kTiny, kNano})
    for (int64_t n : {1, 4, 64, 256}) {
      const Named shape = named;
      const auto name = [&](const char* verb) { return cat(verb, "/", shape.name, "/", n); };
      add(name("experts"), [=](benchmark::State& s) { experts(s, shape, MoeKernel::kPlain, n); });
      add(name("experts_packed"),
          [=](benchmark::State& s) { experts(s, shape, MoeKernel::kPacked, n); });
      add(name("route"), [=](benchmark::State& s) { route(s, shape, n); });
      add(name("kda_mix"), [=](benchmark::State& s) { kda_mix(s, shape, n); });
      add(name("kda_rest"), [=](benchmark::State& s) { kda_rest(s, shape, n); });
      add(name("attend_1000"), [=](benchmark::State& s) { attend(s, shape, 1000, n); });
      if (n == 1)
        add(name("attend_32000"), [=](benchmark::State& s) { attend(s, shape, 32000, n); });
      add(name("absorb_expand"), [=](benchmark::State& s) { absorb_expand(s, shape, n); });
    }
}

}  // namespace
}  // namespace spk

int main(int argc, char** argv) {
  using namespace spk;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a.rfind("--threads=", 0) == 0) {
      g_options.threads = std::atoi(a.c_str() + 10);
    } else if (a.rfind("--isa=", 0) == 0) {
      g_options.isa = a.substr(6);
    } else {
      argv[kept++] = argv[i];
    }
  }
  g_bandwidth = measure_read_bandwidth(g_options.threads);
  std::printf("%s; read bandwidth %.1f GB/s\n", make_cpu_backend(g_options)->description().c_str(),
              g_bandwidth / 1e9);
  add_all();
  benchmark::Initialize(&kept, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
