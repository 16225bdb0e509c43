// Choosing a token from one row of logits, by the rule of backend/sampler.h with the same random
// numbers, and the accept-or-resample step of the rejection rule. One block a row.
//
// Nothing is sorted: the k-th largest logit, and the one at which the best tokens' share reaches
// top-p, are found bit by bit over an order-preserving integer of the logit, ties by ascending id.
// Sums of weights are double and run in one fixed order.
#pragma once

#include "kernels/common.cuh"

namespace spk::gpu {

using u64 = unsigned long long;
constexpr int kSampleThreads = kChooseThreads;
constexpr int kSampleWarps = kSampleThreads / kWarp;
constexpr double kGreedyBelow = 1e-6;

SPK_DEVICE u64 mix_bits(u64 x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}
SPK_DEVICE double uniform_at(u64 seed, u64 choice, u64 position, unsigned token) {
  constexpr u64 kGolden = 0x9e3779b97f4a7c15ull;
  u64 h = mix_bits(seed + kGolden);
  h = mix_bits(h ^ (choice + 1) * kGolden);
  h = mix_bits(h ^ (position + 1) * kGolden);
  h = mix_bits(h ^ (static_cast<u64>(token) + 1) * kGolden);
  return (static_cast<double>(h >> 11) + 0.5) * 0x1p-53;
}

// Larger logits have larger keys; minus zero counts as zero.
SPK_DEVICE unsigned key_of(float x) {
  const unsigned bits = __float_as_uint(x + 0.f);
  return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}

// Sum over the block, the same bits for all: lanes by butterfly, warps in order.
template <typename T>
SPK_DEVICE T sum_all(T x) {
  SPK_SHARED(T, parts, kSampleWarps);
#pragma unroll
  for (int d = kWarp / 2; d > 0; d /= 2) x += __shfl_xor_sync(kAllLanes, x, d);
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = x;
  __syncthreads();
  T sum = parts[0];
  for (int w = 1; w < kSampleWarps; ++w) sum += parts[w];
  __syncthreads();
  return sum;
}

struct Choice {
  double score;
  int id;
};
SPK_DEVICE bool goes_before(const Choice& a, const Choice& b) {
  return a.score > b.score || (a.score == b.score && a.id < b.id);
}
SPK_DEVICE Choice best_of_all(Choice x) {
  SPK_SHARED(Choice, parts, kSampleWarps);
#pragma unroll
  for (int d = kWarp / 2; d > 0; d /= 2) {
    const Choice other = {__shfl_xor_sync(kAllLanes, x.score, d),
                          __shfl_xor_sync(kAllLanes, x.id, d)};
    if (goes_before(other, x)) x = other;
  }
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = x;
  __syncthreads();
  x = parts[0];
  for (int w = 1; w < kSampleWarps; ++w)
    if (goes_before(parts[w], x)) x = parts[w];
  __syncthreads();
  return x;
}

// Which ids survive: a larger key than `key`, or that key and an id up to `last_id`.
struct Cut {
  unsigned key;
  int last_id;
};
SPK_DEVICE bool survives(const Cut& cut, unsigned key, int id) {
  return key > cut.key || (key == cut.key && id <= cut.last_id);
}

// The smallest id bound under which `wanted` survivors of `before` have exactly the key `key`.
SPK_DEVICE int last_of_ties(const float* work, int vocab, const Cut& before, unsigned key,
                            int wanted) {
  int bound = 0;  // the largest bound with fewer than `wanted` ids below it
  for (int bit = 1 << 30; bit > 0; bit /= 2) {
    const int tried = bound + bit;
    if (tried > vocab) continue;
    int count = 0;
    for (int i = threadIdx.x; i < tried; i += kSampleThreads)
      count += key_of(work[i]) == key && survives(before, key, i) ? 1 : 0;
    if (sum_all(count) < wanted) bound = tried;
  }
  return bound;  // ids 0 .. bound: one more than fewer
}

SPK_DEVICE Cut top_k_cut(const float* work, int vocab, i64 top_k) {
  const Cut all = {0, vocab};
  if (top_k <= 0 || top_k >= vocab) return all;
  const int wanted = static_cast<int>(top_k);
  unsigned key = 0;
  for (unsigned bit = 1u << 31; bit > 0; bit /= 2) {
    int count = 0;
    for (int i = threadIdx.x; i < vocab; i += kSampleThreads)
      count += key_of(work[i]) >= (key | bit) ? 1 : 0;
    if (sum_all(count) >= wanted) key |= bit;
  }
  int above = 0;
  for (int i = threadIdx.x; i < vocab; i += kSampleThreads) above += key_of(work[i]) > key ? 1 : 0;
  above = sum_all(above);
  return {key, last_of_ties(work, vocab, all, key, wanted - above)};
}

// Relative to the largest logit, whose weight is 1.
SPK_DEVICE double weight_of(float logit, double top, double temperature) {
  return exp((static_cast<double>(logit) - top) / temperature);
}

SPK_DEVICE Cut top_p_cut(const float* work, int vocab, const Cut& before, double top,
                         double temperature, double top_p) {
  if (top_p >= 1.0) return before;
  const auto sum_from = [&](unsigned key, bool equal_too) {
    double sum = 0;
    for (int i = threadIdx.x; i < vocab; i += kSampleThreads) {
      const unsigned mine = key_of(work[i]);
      if (survives(before, mine, i) && (mine > key || (equal_too && mine == key)))
        sum += weight_of(work[i], top, temperature);
    }
    return sum_all(sum);
  };
  const double wanted = top_p * sum_from(0, true);
  unsigned key = 0;
  for (unsigned bit = 1u << 31; bit > 0; bit /= 2)
    if (sum_from(key | bit, true) >= wanted) key |= bit;
  // Of the ids with that key as many as are needed, at least one.
  double sum = sum_from(key, false);
  const unsigned bits = key ^ (key >> 31 ? 0x80000000u : 0xffffffffu);
  const double each = weight_of(__uint_as_float(bits), top, temperature);
  int ties = 1;
  for (sum += each; sum < wanted && ties < vocab && each > 0; sum += each) ++ties;
  const int last = last_of_ties(work, vocab, before, key, ties);
  // All of them: the cut before stays, for this key too.
  return {key, key == before.key ? min(last, before.last_id) : last};
}

// Bias and penalties, as floats and doubles where the host has them.
SPK_DEVICE void adjust(const SampleArgs& a) {
  for (int i = threadIdx.x; i < a.vocab; i += kSampleThreads) a.work[i] = a.logits[i];
  __syncthreads();
  if (threadIdx.x == 0)  // in order: an id may come twice
    for (int b = 0; b < a.bias_count; ++b) a.work[a.bias_ids[b]] += a.bias_values[b];
  __syncthreads();
  const bool repeat = a.repetition_penalty != 1.0;
  if (!a.prompt_count || (!repeat && a.presence_penalty == 0 && a.frequency_penalty == 0)) return;
  for (int i = threadIdx.x; i < a.vocab; i += kSampleThreads) {
    const int answer = a.answer_count[i];
    if (a.prompt_count[i] + answer == 0) continue;
    double x = a.work[i];
    if (repeat) x = x > 0 ? x / a.repetition_penalty : x * a.repetition_penalty;
    if (answer > 0) x -= a.presence_penalty + a.frequency_penalty * answer;
    a.work[i] = static_cast<float>(x);
  }
  __syncthreads();
}

// The choice among all ids by the whole rule, from a row without NaN whose largest logit is `top`,
// finite. `weights` and `total` (null: not wanted): of the distribution.
SPK_DEVICE Choice choose_of_all(const float* work, int vocab, const SampleRule& rule, u64 position,
                                double top, double* weights, double* total) {
  const float infinity = __uint_as_float(0x7f800000u);
  Cut cut = top_k_cut(work, vocab, rule.top_k);
  cut = top_p_cut(work, vocab, cut, top, rule.temperature, rule.top_p);
  double sum = 0;
  Choice chosen = {-static_cast<double>(infinity), vocab};
  for (int i = threadIdx.x; i < vocab; i += kSampleThreads) {
    const float x = work[i];
    bool in = survives(cut, key_of(x), i);
    const double weight = in ? weight_of(x, top, rule.temperature) : 0.0;
    if (rule.min_p > 0 && weight < rule.min_p) in = false;
    if (in) {
      sum += weight;
      const double u = uniform_at(rule.seed, rule.choice, position, static_cast<unsigned>(i));
      const Choice mine = {static_cast<double>(x) / rule.temperature - log(-log(u)), i};
      if (goes_before(mine, chosen)) chosen = mine;
    }
    if (weights) weights[i] = in ? weight : 0.0;
  }
  if (total) {
    sum = sum_all(sum);
    if (threadIdx.x == 0) *total = sum;
  }
  return best_of_all(chosen);
}

// One block.
template <int = 0>
__global__ void __launch_bounds__(kSampleThreads) sample(const SampleArgs a) {
  start_after_previous();
  const float infinity = __uint_as_float(0x7f800000u);
  adjust(a);
  int nans = 0;
  Choice best = {-static_cast<double>(infinity), a.vocab};
  for (int i = threadIdx.x; i < a.vocab; i += kSampleThreads) {
    const float x = a.work[i];
    nans += x != x ? 1 : 0;
    const Choice mine = {x, i};
    if (x > -infinity && goes_before(mine, best)) best = mine;
  }
  nans = sum_all(nans);
  best = best_of_all(best);
  if (nans > 0 || best.id == a.vocab) {  // uniform over the block
    if (threadIdx.x == 0) {
      a.out[0] = -1;
      a.out[1] = nans > 0 ? kSawNan : kNoFinite;
    }
    return;
  }
  if (a.temperature < kGreedyBelow) {
    if (a.weights)
      for (int i = threadIdx.x; i < a.vocab; i += kSampleThreads)
        a.weights[i] = i == best.id ? 1.0 : 0.0;
    if (threadIdx.x == 0 && a.total) *a.total = 1.0;
  } else {
    const SampleRule rule = {a.seed, a.choice, a.temperature, a.top_p, a.min_p, a.top_k};
    best = choose_of_all(a.work, a.vocab, rule, static_cast<u64>(a.position), best.score, a.weights,
                         a.total);
  }
  if (threadIdx.x == 0) {
    a.out[0] = best.id;
    a.out[1] = kSampled;
  }
}

// One block: takes the draft with probability min(1, p / q), else draws from max(p - q, 0), both
// with numbers of their own.
template <int = 0>
__global__ void __launch_bounds__(kSampleThreads) reject(const RejectArgs a) {
  start_after_previous();
  SPK_SHARED(double, sums, kSampleThreads);
  const int t = threadIdx.x;
  const double p_total = *a.p_total, q_total = *a.q_total;
  const int draft = *a.draft;
  const double p_draft = a.p[draft] / p_total, q_draft = a.q[draft] / q_total;
  const u64 position = static_cast<u64>(a.position);
  if (uniform_at(a.seed, a.choice, position, kDrawAccept) * q_draft < p_draft) {
    if (t == 0) {
      a.out[0] = draft;
      a.out[1] = 1;
    }
    return;  // the whole block
  }
  const auto rest = [&](int i) { return a.p[i] / p_total - a.q[i] / q_total; };
  // Ids in order: a thread takes a run of them.
  const int run = (a.vocab + kSampleThreads - 1) / kSampleThreads;
  const int first = min(t * run, a.vocab), last = min(first + run, a.vocab);
  double sum = 0;
  for (int i = first; i < last; ++i) sum += rest(i) > 0 ? rest(i) : 0.0;
  // p == q leaves nothing; then the draft was taken except for rounding, and p itself is right.
  const bool nothing = sum_all(sum) <= 0;
  const auto weight = [&](int i) {
    if (nothing) return a.p[i] / p_total;
    return rest(i) > 0 ? rest(i) : 0.0;
  };
  sum = 0;
  for (int i = first; i < last; ++i) sum += weight(i);
  sums[t] = sum;
  __syncthreads();
  if (t != 0) return;
  double total = 0;
  for (int s = 0; s < kSampleThreads; ++s) total += sums[s];
  double left = uniform_at(a.seed, a.choice, position, kDrawResidual) * total;
  int from = 0;
  while (from + 1 < kSampleThreads && left >= sums[from]) left -= sums[from++];
  // Rounding may leave a rest beyond the last id with a weight.
  int token = -1;
  for (int i = min(from * run, a.vocab); i < a.vocab; ++i) {
    const double w = weight(i);
    if (w <= 0) continue;
    token = i;
    left -= w;
    if (left < 0) break;
  }
  for (int i = a.vocab - 1; token < 0 && i >= 0; --i)
    if (weight(i) > 0) token = i;
  a.out[0] = token;
  a.out[1] = 0;
}

}  // namespace spk::gpu
