// Everything that is not a matrix product: norms, gates, activations, convolution, the delta rule
// of one row.
#pragma once

#include "backend/cpu/kernels.h"
#include "backend/cpu/loops_math.h"

namespace spk::cpu::SPK_ISA {

inline float dot(const float* a, const float* b, int64_t n) {
  V16 sum = zero();
  for_lanes(n, [&](int64_t i, int64_t c) { sum = fma(get(a + i, c), get(b + i, c), sum); });
  return reduce(sum);
}

inline float square_root(float x) { return __builtin_sqrtf(x); }

inline void rms_norm(const float* x, const float* w, float eps, int64_t n, float* y) {
  const float r = 1.f / square_root(dot(x, x, n) / static_cast<float>(n) + eps);
  const V16 factor = set1(r);
  for_lanes(n, [&](int64_t i, int64_t c) {
    put(y + i, mul(get(w + i, c), mul(get(x + i, c), factor)), c);
  });
}

inline void add_to(float* x, const float* o, int64_t n) {
  for_lanes(n, [&](int64_t i, int64_t c) { put(x + i, add(get(x + i, c), get(o + i, c)), c); });
}

inline void axpy(float a, const float* x, float* y, int64_t n) {
  const V16 factor = set1(a);
  for_lanes(
      n, [&](int64_t i, int64_t c) { put(y + i, fma(factor, get(x + i, c), get(y + i, c)), c); });
}

inline void scale_to(float a, const float* x, float* y, int64_t n) {
  const V16 factor = set1(a);
  for_lanes(n, [&](int64_t i, int64_t c) { put(y + i, mul(factor, get(x + i, c)), c); });
}

inline void multiply(const float* a, float* y, int64_t n) {
  for_lanes(n, [&](int64_t i, int64_t c) { put(y + i, mul(get(a + i, c), get(y + i, c)), c); });
}

inline void weighted_sum(const WeightedRows& w, int64_t n, float* y) {
  for_lanes(n, [&](int64_t i, int64_t c) {
    V16 sum = mul(set1(w.weights[0]), get(w.table + w.rows[0] * w.stride + i, c));
    for (int64_t j = 1; j < w.count; ++j)
      sum = fma(set1(w.weights[j]), get(w.table + w.rows[j] * w.stride + i, c), sum);
    if (w.last) sum = add(sum, get(w.last + i, c));
    put(y + i, sum, c);
  });
}

// min(silu(gate), limit) * clip(up, +-limit); a limit of 0 is none.
inline void swiglu(float* gate, const float* up, float limit, int64_t n) {
  const V16 top = set1(limit), bottom = set1(-limit);
  for_lanes(n, [&](int64_t i, int64_t c) {
    V16 a = silu16(get(gate + i, c)), b = get(up + i, c);
    if (limit > 0) {
      a = lower(a, top);
      b = higher(lower(b, top), bottom);
    }
    put(gate + i, mul(a, b), c);
  });
}

inline void sigmoid(float* x, int64_t n) {
  for_lanes(n, [&](int64_t i, int64_t c) { put(x + i, sigmoid16(get(x + i, c)), c); });
}

inline void exp_of(const float* x, float* y, int64_t n) {
  for_lanes(n, [&](int64_t i, int64_t c) { put(y + i, exp16(get(x + i, c)), c); });
}

inline float largest(const float* x, int64_t n) {
  constexpr float kLowest = -__builtin_inff();
  V16 top = set1(kLowest);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) top = higher(load(x + i), top);
  float lanes[16], all = kLowest;
  store(lanes, top);
  for (const float lane : lanes) all = lane > all ? lane : all;
  for (; i < n; ++i) all = x[i] > all ? x[i] : all;
  return all;
}

inline float exp_sum(const float* x, float bias, float* y, int64_t n) {
  const V16 b = set1(bias);
  V16 sum = zero();
  for_lanes(n, [&](int64_t i, int64_t c) {
    put(y + i, exp16(sub(get(x + i, c), b)), c);
    sum = add(sum, get(y + i, c));  // read back: lanes beyond the end must add nothing
  });
  return reduce(sum);
}

// Plain loops: integers, and float operations of one rounding each, which compilers vectorise and
// cannot reorder.
inline void quantise(const float* x, int64_t n, int8_t* q, float* scale, int32_t* offset) {
  constexpr uint32_t kFinite = 0x7f800000u;
  constexpr uint32_t kSmallest = 27u << 23;  // 2^-100: 127 / max|x| must stay a float
  for (int64_t g = 0; g < n / kGroup; ++g, x += kGroup, q += kGroup) {
    uint32_t bits[kGroup];
    __builtin_memcpy(bits, x, sizeof bits);
    uint32_t largest = 0;  // magnitudes compare as integers do
    for (const uint32_t b : bits) {
      const uint32_t magnitude = b & 0x7fffffffu;
      largest = largest < magnitude ? magnitude : largest;
    }
    const bool finite = largest < kFinite, some = finite && largest >= kSmallest;
    const float top = __builtin_bit_cast(float, some ? largest : 0x3f800000u);
    const float inverse = some ? 127.f / top : 0.f;
    int32_t sum = 0;
    for (int i = 0; i < kGroup; ++i) {
      const float clean = finite ? x[i] : 0.f;
      const auto rounded = __builtin_bit_cast(int32_t, clean * inverse + kRound);
      const auto code = static_cast<int8_t>(rounded & 0xff);
      q[i] = code;
      sum += code;
    }
    scale[g] = finite ? (some ? top / 127.f * .5f : 0.f) : __builtin_nanf("");
    offset[g] = -12 * sum;
  }
}

// Taps: a constant keeps the taps and the past in registers; 0: as the matrix has them. The past
// may lie in rows that the record overwrites: each register of it is read before.
template <int Taps>
inline void conv_of(const Conv& c, int64_t first, int64_t last) {
  constexpr int kMaxTaps = Taps ? Taps : kMostPast + 1;
  const int taps = Taps ? Taps : static_cast<int>(c.kernel), past = taps - 1;
  for (int64_t at = first; at < last; at += 16) {
    V16 w[kMaxTaps], in[kMaxTaps];  // in: the current row and those before it, oldest first
    for (int j = 0; j < taps; ++j) w[j] = load(c.taps + j * c.channels + at);
    for (int j = 0; j < past; ++j) in[j] = load(c.past[j] + at);
    const auto leave = [&] {
      for (int j = 0; j < past; ++j) store(c.tail + j * c.tail_stride + at, in[j]);
    };
    if (c.tail && c.tail_rows == 0) leave();
    for (int64_t t = 0; t < c.rows; ++t) {
      float* x = c.x + t * c.stride + at;
      in[past] = load(x);
      if (c.record) store(c.record + t * c.record_stride + at, in[past]);
      V16 sum = mul(w[0], in[0]);
      for (int j = 1; j < taps; ++j) sum = fma(w[j], in[j], sum);
      store(x, silu16(sum));
      for (int j = 0; j < past; ++j) in[j] = in[j + 1];
    }
    if (c.tail && c.tail_rows > 0) leave();
  }
}

inline void conv(const Conv& c, int64_t first, int64_t last) {
  c.kernel == 4 ? conv_of<4>(c, first, last) : conv_of<0>(c, first, last);
}

inline void gate(float* f, const float* bias, float rate, float lowest, int64_t n) {
  const V16 r = set1(rate), l = set1(lowest);
  for_lanes(n, [&](int64_t i, int64_t c) {
    const V16 a = mul(r, add(get(f + i, c), get(bias + i, c)));
    put(f + i, mul(l, sigmoid16(a)), c);
  });
}

inline void unit(const float* x, float scale, int64_t n, float* y) {
  scale_to(scale / square_root(dot(x, x, n) + 1e-6f), x, y, n);
}

inline void norm_gate(float* o, const float* w, const float* g, float eps, int64_t n) {
  const float r = 1.f / square_root(dot(o, o, n) / static_cast<float>(n) + eps);
  const V16 factor = set1(r);
  for_lanes(n, [&](int64_t i, int64_t c) {
    const V16 normed = mul(get(w + i, c), mul(get(o + i, c), factor));
    put(o + i, mul(normed, sigmoid16(get(g + i, c))), c);
  });
}

// Two exponentials a row, and two a block: the other factors are products of those. Spans of half
// a block each way keep all of them within floats (kda.h).
inline void kda_decay(const KdaDecay& b) {
  constexpr int64_t kMostRows = 16;
  for (int64_t at = 0; at < b.d; at += 16) {
    V16 sum[kMostRows], s = zero();
    for (int64_t i = 0; i < b.rows; ++i) sum[i] = s = add(s, load(b.g + i * b.g_stride + at));
    const V16 middle = sum[b.rows / 2];
    const V16 to_middle = exp16(middle), to_end = exp16(sub(s, middle));
    const V16 before = load(b.decay + at);
    for (int64_t i = 0; i < b.rows; ++i) {
      const int64_t here = i * b.d + at;
      const V16 left = exp16(sub(sum[i], middle)), q = mul(load(b.q + here), left);
      const V16 k = load(b.k + here), left_k = mul(k, left);
      const V16 right = mul(k, exp16(sub(middle, sum[i])));
      const V16 start_q = mul(q, to_middle), start_k = mul(left_k, to_middle);
      store(b.middle_q + here, q);
      store(b.middle_k + here, left_k);
      store(b.right + here, right);
      store(b.end_k + here, mul(right, to_end));
      store(b.start_q + here, start_q);
      store(b.start_k + here, start_k);
      store(b.chunk_q + here, mul(start_q, before));
      store(b.chunk_k + here, mul(start_k, before));
    }
    const V16 whole = mul(to_middle, to_end);
    store(b.block_decay + at, whole);
    store(b.decay + at, mul(before, whole));
  }
}

// V registers of state columns through all rows. o = Sd^T q + u (k . q) with Sd the decayed state;
// its decay is in the vectors that it meets, which are shorter. A row needs its whole u before the
// state can move on, and the next row meets the state as it moves: R rows take R passes over the
// d x 16 V floats, and one more where the state is kept. The fold does the operations of a row, so
// that a folded record gives the bits of having decoded the row.
template <int V>
struct StateColumns {
  const Deltas& x;
  int64_t at;

  // The accepted rows of the pass before, on each register of the state while it is at hand.
  void fold(int64_t i, V16 (&s)[V]) const {
    for (int64_t r = 0; r < x.fold.rows; ++r) {
      const V16 a = set1(x.fold.alpha[r][i]), k = set1(x.fold.k[r][i]);
      for (int v = 0; v < V; ++v) s[v] = fma(k, load(x.fold.u[r] + at + 16 * v), mul(a, s[v]));
    }
  }
  void fold_all() const {
    for (int64_t i = 0; i < x.d; ++i) {
      float* p = x.state + i * x.stride + at;
      V16 s[V];
      for (int v = 0; v < V; ++v) s[v] = load(p + 16 * v);
      fold(i, s);
      for (int v = 0; v < V; ++v) store(p + 16 * v, s[v]);
    }
  }

  // What a row sees of the state: `before` brings number i of it.
  template <typename Before>
  void row(const DeltaRow& r, V16 (&u)[V], Before&& before) const {
    V16 seen[V], out[V];
    for (int v = 0; v < V; ++v) seen[v] = out[v] = zero();
    for (int64_t i = 0; i < x.d; ++i) {
      V16 s[V];
      before(i, s);
      const V16 k = set1(r.decayed_k[i]), q = set1(r.decayed_q[i]);
      for (int v = 0; v < V; ++v) {
        seen[v] = fma(k, s[v], seen[v]);
        out[v] = fma(q, s[v], out[v]);
      }
    }
    for (int v = 0; v < V; ++v) {
      u[v] = mul(set1(r.beta), sub(load(r.v + at + 16 * v), seen[v]));
      store(r.o + at + 16 * v, fma(set1(r.qk), u[v], out[v]));
      if (r.u) store(r.u + at + 16 * v, u[v]);
    }
  }

  // Number i of the state after row r.
  static void move(const DeltaRow& r, int64_t i, const V16 (&u)[V], const float* from,
                   V16 (&s)[V]) {
    const V16 a = set1(r.alpha[i]), k = set1(r.k[i]);
    for (int v = 0; v < V; ++v) s[v] = fma(k, u[v], mul(a, load(from + 16 * v)));
  }

  void run() const {
    V16 u[V];
    if (x.fold.rows > 0) {
      row(x.row[0], u, [&](int64_t i, V16(&s)[V]) {
        float* p = x.state + i * x.stride + at;
        for (int v = 0; v < V; ++v) s[v] = load(p + 16 * v);
        fold(i, s);
        for (int v = 0; v < V; ++v) store(p + 16 * v, s[v]);
      });
    } else {
      row(x.row[0], u, [&](int64_t i, V16(&s)[V]) {
        const float* p = x.state + i * x.stride + at;
        for (int v = 0; v < V; ++v) s[v] = load(p + 16 * v);
      });
    }
    const float* from = x.state + at;
    int64_t from_stride = x.stride;
    float* const to = x.moving ? x.moving : x.state + at;
    const int64_t to_stride = x.moving ? 16 * V : x.stride;
    for (int64_t t = 1; t < x.rows; ++t) {
      V16 next[V];
      row(x.row[t], next, [&](int64_t i, V16(&s)[V]) {
        move(x.row[t - 1], i, u, from + i * from_stride, s);
        if (x.moving && t + 1 == x.rows) return;
        for (int v = 0; v < V; ++v) store(to + i * to_stride + 16 * v, s[v]);
      });
      for (int v = 0; v < V; ++v) u[v] = next[v];
      from = to;
      from_stride = to_stride;
    }
    if (x.moving) return;
    for (int64_t i = 0; i < x.d; ++i) {
      V16 s[V];
      move(x.row[x.rows - 1], i, u, from + i * from_stride, s);
      for (int v = 0; v < V; ++v) store(to + i * to_stride + 16 * v, s[v]);
    }
  }
};

inline void deltas(const Deltas& d) {
  constexpr int64_t V = kWideRegisters ? 4 : 2;
  static_assert(16 * V <= kStateColumns);
  int64_t at = d.first;
  for (; at + 16 * V <= d.last; at += 16 * V) StateColumns<V>{d, at}.run();
  for (; at < d.last; at += 16) StateColumns<1>{d, at}.run();
}

inline void fold(const Deltas& d) {
  constexpr int64_t V = kWideRegisters ? 8 : 4;
  int64_t at = d.first;
  for (; at + 16 * V <= d.last; at += 16 * V) StateColumns<V>{d, at}.fold_all();
  for (; at < d.last; at += 16) StateColumns<1>{d, at}.fold_all();
}

}  // namespace spk::cpu::SPK_ISA
