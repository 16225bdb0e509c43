// Far out in a long context: a recurrent state after 200,000 tokens, a cache beyond 2^31 numbers.
#include "base/error.h"
#include "support/verbs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace spk {
namespace {

// An emulator or a sanitizer makes these loops 20 times as slow.
bool short_run() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  return std::getenv("SPARKLING_SHORT") != nullptr;
#endif
}

// The recurrence of one head, token by token in double: S = diag(exp g) S + k u^T with
// u = beta (v - S^T k), o = S^T q.
class Recurrence {
 public:
  explicit Recurrence(int64_t d) : d_(d), s_(static_cast<size_t>(d * d)) {}

  void step(std::vector<double> q, std::vector<double> k, const std::vector<double>& v,
            const std::vector<double>& g, double beta, std::vector<double>& o) {
    unit(q, 1 / std::sqrt(static_cast<double>(d_)));
    unit(k, 1);
    std::vector<double> u(v);
    for (int64_t a = 0; a < d_; ++a) {
      const double decay = std::exp(g[static_cast<size_t>(a)]);
      for (int64_t b = 0; b < d_; ++b) {
        double& x = s_[static_cast<size_t>(a * d_ + b)];
        x *= decay;
        u[static_cast<size_t>(b)] -= x * k[static_cast<size_t>(a)];
      }
    }
    std::fill(o.begin(), o.end(), 0.0);
    for (int64_t a = 0; a < d_; ++a) {
      for (int64_t b = 0; b < d_; ++b) {
        double& x = s_[static_cast<size_t>(a * d_ + b)];
        x += k[static_cast<size_t>(a)] * beta * u[static_cast<size_t>(b)];
        o[static_cast<size_t>(b)] += q[static_cast<size_t>(a)] * x;
      }
    }
  }
  const std::vector<double>& state() const { return s_; }

 private:
  static void unit(std::vector<double>& x, double scale) {
    double sum = 0;
    for (const double v : x) sum += v * v;
    for (double& v : x) v *= scale / std::sqrt(sum + 1e-6);
  }

  int64_t d_;
  std::vector<double> s_;
};

double relative(const std::vector<double>& got, const std::vector<double>& truth) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    difference += (got[i] - truth[i]) * (got[i] - truth[i]);
    size += truth[i] * truth[i];
  }
  return std::sqrt(difference / size);
}

// Channels that forget at once beside channels that remember 100,000 tokens: what is wrong in a
// slow one would stay and add up.
TEST(LongContext, TheErrorOfAStateDoesNotGrowOver200000Tokens) {
  ModelShape shape = test::small_shape();
  shape.heads = 1;
  shape.head_dim = 64;
  const int64_t d = shape.head_dim, chunk = 256, end = short_run() ? 8192 : 200192;
  const auto backend = make_cpu_backend({});
  backend->prepare(shape);
  const auto make = [&](int64_t rows, int64_t cols) {
    const auto bytes = static_cast<size_t>(rows * cols) * backend->real_bytes();
    return Rows{backend->alloc(bytes, "test"), 0, rows, cols, cols};
  };
  const Rows q = make(chunk, d), k = make(chunk, d), v = make(chunk, d), g = make(chunk, d);
  const Rows beta = make(chunk, 1), o = make(chunk, d);
  LayerState state;
  state.kda_state = make(d, d);
  backend->zero(state.kda_state);

  Recurrence truth(d);
  std::mt19937_64 random(5);
  std::normal_distribution<double> distribution;
  const auto normal = [&] { return distribution(random); };
  const auto fill = [&](const Rows& rows, auto&& value) {
    std::vector<double> x;
    for (int64_t r = 0; r < rows.rows; ++r)
      for (int64_t c = 0; c < rows.cols; ++c)
        x.push_back(static_cast<double>(static_cast<float>(value(c))));
    backend->write(x.data(), rows);
    return x;
  };
  const auto row = [&](const std::vector<double>& all, int64_t r) {
    return std::vector<double>(all.begin() + r * d, all.begin() + (r + 1) * d);
  };
  double early = 0, latest = 0;
  std::vector<double> out(static_cast<size_t>(d)), got(static_cast<size_t>(chunk * d));
  std::vector<double> kept(static_cast<size_t>(d * d));
  for (int64_t at = 0; at < end; at += chunk) {
    const auto any = [&](int64_t) { return normal(); };
    const auto xq = fill(q, any), xk = fill(k, any), xv = fill(v, any);
    const auto xg = fill(g, [&](int64_t c) {
      return -5 * std::exp2(-20.0 * static_cast<double>(c) / static_cast<double>(d));
    });
    const auto xb = fill(beta, [&](int64_t) { return 1 / (1 + std::exp(-normal())); });
    Step step;
    step.kind = StepKind::kPrefill;
    step.rows = chunk;
    step.first_position = at;
    backend->begin(step);
    backend->kda_mix(q, k, v, g, beta, state, o);
    backend->end();
    for (int64_t r = 0; r < chunk; ++r)
      truth.step(row(xq, r), row(xk, r), row(xv, r), row(xg, r), xb[static_cast<size_t>(r)], out);
    backend->read(o, got.data());
    ASSERT_LT(relative(row(got, chunk - 1), out), 1e-4) << "token " << at + chunk;
    backend->read(state.kda_state, kept.data());
    latest = relative(kept, truth.state());
    ASSERT_LT(latest, 2e-6) << "token " << at + chunk;
    if (at < 4096) early = std::max(early, latest);
  }
  EXPECT_LT(latest, 4 * early) << "after " << end << " tokens, against the first 4,096";
}

// Latents whose last rows lie beyond 2^31 floats of the cache. Rows that were never written are
// zero pages, which cost no memory and have a score of 0, so that the softmax is known in closed
// form.
TEST(LongContext, LatentsBeyond31BitsOfIndex) {
  ModelShape shape = test::small_shape();
  shape.heads = 1;
  shape.latent = 512;
  shape.rope = 64;
  shape.nope = shape.v_dim = 128;
  shape.rope_freq.assign(32, 0.0);
  const int64_t width = shape.latent + shape.rope;
  const int64_t last = short_run() ? 20000 : (int64_t{1} << 31) / width + 1000;
  const auto backend = make_cpu_backend({});
  backend->prepare(shape);
  const auto make = [&](int64_t rows, int64_t cols) {
    const auto bytes = static_cast<size_t>(rows * cols) * backend->real_bytes();
    return Rows{backend->alloc(bytes, "test"), 0, rows, cols, cols};
  };
  LayerState state;
  state.latent = make(last + 1, width);
  std::vector<double> marked(static_cast<size_t>(width), 0.0);
  marked[3] = 7;                                  // what a head finds
  marked[static_cast<size_t>(shape.latent)] = 2;  // how it is found: the rope part's score
  backend->write(marked.data(), state.latent.slice_rows(last, 1));

  const Rows q_latent = make(1, shape.latent), q = make(1, shape.nope + shape.rope);
  const Rows z = make(1, shape.latent);
  backend->zero(q_latent);
  backend->zero(q);
  std::vector<double> query(static_cast<size_t>(shape.nope + shape.rope), 0.0);
  const double scale = 1 / std::sqrt(static_cast<double>(shape.nope + shape.rope));
  const double score = std::log(static_cast<double>(last));  // half of the weight
  query[static_cast<size_t>(shape.nope)] = score / scale / 2;
  backend->write(query.data(), q);
  Step step;
  step.kind = StepKind::kDecode;
  step.rows = 1;
  step.first_position = last;
  backend->begin(step);
  backend->latent_attend(q_latent, q, state, z);
  backend->end();
  std::vector<double> found(static_cast<size_t>(shape.latent));
  backend->read(z, found.data());
  EXPECT_NEAR(found[3], 3.5, 1e-3);
  found[3] = 0;
  for (const double x : found) EXPECT_EQ(x, 0.0);
}

}  // namespace
}  // namespace spk
