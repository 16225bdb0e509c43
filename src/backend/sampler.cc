#include "backend/sampler.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

namespace spk {
namespace {

// splitmix64's finaliser: every input bit reaches every output bit.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;

void check_range(const char* name, double value, double low, double high, const char* range) {
  if (!(value >= low && value <= high))  // also refuses NaN
    fail_usage(name, ": expected a number ", range, ", found ", value);
}

constexpr double kGreedyBelow = 1e-6;

constexpr size_t kPiece = 64;  // logits with a maximum of their own: 64 of them in 4,096

// Four numbers in a register of any 64-bit processor. Written out, because compilers leave a loop
// over arrays of maxima in memory, which takes four times as long.
using Four = float __attribute__((vector_size(16)));
using FourInts = int32_t __attribute__((vector_size(16)));
Four load4(const float* p) {
  Four v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
Four larger(Four a, Four b) { return a > b ? a : b; }

// The first largest of x; maxima[b]: the largest of x[kPiece b .. kPiece (b + 1)). Throws on NaN
// and when nothing is finite.
int32_t largest(std::span<const float> x, int64_t position, std::vector<float>& maxima) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  FourInts unordered = {};
  bool any = false;
  maxima.resize((x.size() + kPiece - 1) / kPiece);
  for (size_t b = 0; b < maxima.size(); ++b) {
    const float* const piece = x.data() + b * kPiece;
    const size_t n = std::min(kPiece, x.size() - b * kPiece);
    Four top[4];
    for (Four& t : top) t = Four{kLowest, kLowest, kLowest, kLowest};
    size_t at = 0;
    for (; at + 16 <= n; at += 16)
      for (size_t j = 0; j < 4; ++j) {
        const Four v = load4(piece + at + 4 * j);
        top[j] = larger(v, top[j]);
        unordered |= v != v;
      }
    const Four four = larger(larger(top[0], top[1]), larger(top[2], top[3]));
    float most = kLowest;
    for (int j = 0; j < 4; ++j) most = four[j] > most ? four[j] : most;
    for (; at < n; ++at) {
      most = piece[at] > most ? piece[at] : most;
      any |= piece[at] != piece[at];
    }
    maxima[b] = most;
  }
  for (int j = 0; j < 4; ++j) any |= unordered[j] != 0;
  if (any)
    throw Error(
        ErrorKind::kResource,
        cat("the model gave NaN as the logit of token ",
            std::find_if(x.begin(), x.end(), [](float v) { return std::isnan(v); }) - x.begin(),
            " at position ", position, ", expected a number"));
  const auto best = std::max_element(maxima.begin(), maxima.end());
  if (*best == kLowest)
    throw Error(ErrorKind::kResource, cat("no token has a finite logit at position ", position));
  const auto from = x.begin() + static_cast<int64_t>(kPiece) * (best - maxima.begin());
  return static_cast<int32_t>(std::find(from, x.end(), *best) - x.begin());
}

}  // namespace

bool is_greedy(const SamplerParams& params) { return params.temperature < kGreedyBelow; }

void check_params(const SamplerParams& p, int64_t vocab) {
  check_range("temperature", p.temperature, 0, 100, "from 0 to 100");
  if (p.top_k < -1) fail_usage("top_k: expected -1 or 0 (off) or a count, found ", p.top_k);
  check_range("top_p", p.top_p, std::numeric_limits<double>::min(), 1, "above 0, up to 1");
  check_range("min_p", p.min_p, 0, 1, "from 0 to 1");
  check_range("repetition_penalty", p.repetition_penalty, 0.01, 100, "from 0.01 to 100");
  check_range("presence_penalty", p.presence_penalty, -100, 100, "from -100 to 100");
  check_range("frequency_penalty", p.frequency_penalty, -100, 100, "from -100 to 100");
  for (const auto& [id, bias] : p.logit_bias) {
    if (id < 0 || id >= vocab)
      fail_usage("logit_bias: expected a token id from 0 to ", vocab - 1, ", found ", id);
    check_range("logit_bias", bias, -1000, 1000, "from -1000 to 1000");
  }
}

double uniform_at(uint64_t seed, uint64_t choice, uint64_t position, uint32_t token) {
  uint64_t h = mix(seed + kGolden);
  h = mix(h ^ (choice + 1) * kGolden);
  h = mix(h ^ (position + 1) * kGolden);
  h = mix(h ^ (uint64_t{token} + 1) * kGolden);
  return (static_cast<double>(h >> 11) + 0.5) * 0x1p-53;
}

Sampler::Sampler(int64_t vocab) {
  const auto n = static_cast<size_t>(vocab);
  work_.reserve(n);
  maxima_.reserve(n / kPiece + 1);
  ordered_.reserve(n / kPiece + 1);
  candidates_.reserve(n);
  prompt_count_.resize(n);
  answer_count_.resize(n);
  touched_.reserve(n);
  is_touched_.resize(n);
}

void Sampler::touch(int32_t id) {
  if (is_touched_[id]) return;
  is_touched_[id] = true;
  touched_.push_back(id);
}

void Sampler::reset(std::span<const int32_t> prompt) {
  for (int32_t id : touched_) {
    prompt_count_[id] = answer_count_[id] = 0;
    is_touched_[id] = false;
  }
  touched_.clear();
  for (int32_t id : prompt) {
    touch(id);
    ++prompt_count_[id];
  }
}

void Sampler::accept(int32_t id) {
  touch(id);
  ++answer_count_[id];
}

void Sampler::retract(int32_t id) {
  SPK_DCHECK(answer_count_[id] > 0);
  --answer_count_[id];
}

std::span<const float> Sampler::adjusted(std::span<const float> logits, const SamplerParams& p) {
  const bool repeat = p.repetition_penalty != 1.0;
  const bool penalties = repeat || p.presence_penalty != 0 || p.frequency_penalty != 0;
  if (!penalties && p.logit_bias.empty()) return logits;
  work_.assign(logits.begin(), logits.end());
  for (const auto& [id, bias] : p.logit_bias) work_[id] += static_cast<float>(bias);
  if (!penalties) return work_;
  for (int32_t id : touched_) {
    if (prompt_count_[id] + answer_count_[id] == 0) continue;  // retracted
    double x = work_[id];
    if (repeat) x = x > 0 ? x / p.repetition_penalty : x * p.repetition_penalty;
    if (answer_count_[id] > 0) x -= p.presence_penalty + p.frequency_penalty * answer_count_[id];
    work_[id] = static_cast<float>(x);
  }
  return work_;
}

// The `count` best of x into candidates_. As many pieces have a maximum of at least the count-th
// best maximum, so what is smaller is not among the best: few pieces are looked at twice. Ids
// ascend, so an equal one that comes later is worse.
void Sampler::keep_best(std::span<const float> x, size_t count) {
  float bar = -std::numeric_limits<float>::infinity();
  if (count <= maxima_.size()) {
    ordered_ = maxima_;
    const auto at = ordered_.begin() + static_cast<int64_t>(count) - 1;
    std::nth_element(ordered_.begin(), at, ordered_.end(), std::greater<>());
    bar = *at;
  }
  const Four bars = {bar, bar, bar, bar};
  for (size_t piece = 0; piece < maxima_.size(); ++piece) {
    if (maxima_[piece] < bar) continue;
    const size_t end = std::min((piece + 1) * kPiece, x.size());
    for (size_t i = piece * kPiece; i < end; i += 4) {
      if (i + 4 <= end) {
        const FourInts reach = load4(x.data() + i) >= bars;
        if ((reach[0] | reach[1] | reach[2] | reach[3]) == 0) continue;
      }
      for (size_t j = i; j < std::min(i + 4, end); ++j)
        if (x[j] >= bar) candidates_.push_back({x[j], static_cast<int32_t>(j), 0});
    }
  }
  if (candidates_.size() <= count) return;
  std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<int64_t>(count) - 1,
                   candidates_.end(), better);
  candidates_.resize(count);
}

// Whether the best token reaches top_p even if all others weighed as much as the second best, which
// is so at most places of a text and needs no list of candidates. The margin is more than all
// roundings of the sum that would be made.
template <typename Weight>
bool Sampler::stands_alone(std::span<const float> x, int32_t best, double top_p, size_t count,
                           Weight&& weight) const {
  if (top_p >= 1.0) return false;
  const size_t piece = static_cast<size_t>(best) / kPiece, first = piece * kPiece;
  float second = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < maxima_.size(); ++i)
    if (i != piece) second = std::max(second, maxima_[i]);
  for (size_t i = first; i < std::min(first + kPiece, x.size()); ++i)
    if (i != static_cast<size_t>(best)) second = std::max(second, x[i]);
  const double others = static_cast<double>(count - 1) * weight(second);
  return top_p * (1 + others) * (1 + 1e-9) <= 1;
}

int32_t Sampler::survivors(std::span<const float> logits, const SamplerParams& p, int64_t position,
                           float& top) {
  SPK_CHECK(logits.size() == prompt_count_.size());
  const std::span<const float> x = adjusted(logits, p);
  const int32_t best = largest(x, position, maxima_);
  top = x[static_cast<size_t>(best)];
  candidates_.clear();
  if (is_greedy(p)) {
    candidates_.push_back({top, best, 1});
    return best;
  }

  const auto weight = [&](float logit) {
    return std::exp((static_cast<double>(logit) - top) / p.temperature);
  };
  const size_t count = p.top_k > 0 ? std::min(static_cast<size_t>(p.top_k), x.size()) : x.size();
  if (stands_alone(x, best, p.top_p, count, weight)) {
    candidates_.push_back({top, best, 1});
    return best;
  }
  if (p.top_k > 0 && static_cast<size_t>(p.top_k) < x.size()) {
    keep_best(x, static_cast<size_t>(p.top_k));
  } else {
    for (size_t i = 0; i < x.size(); ++i) candidates_.push_back({x[i], static_cast<int32_t>(i), 0});
  }
  if (p.top_p < 1.0) {
    // The smallest set of best tokens whose share reaches top_p. Sorting only as many as needed: a
    // growing prefix, which often is one token long.
    double total = 0;
    for (Candidate& c : candidates_) total += c.weight = weight(c.logit);
    const size_t few = candidates_.size() <= 256 ? 4 : 64;
    size_t sorted = 0, keep = 0;
    double sum = 0;
    while (sum < p.top_p * total && keep < candidates_.size()) {
      if (keep == sorted) {
        const size_t next = std::min(candidates_.size(), std::max<size_t>(few, sorted * 8));
        std::partial_sort(candidates_.begin() + static_cast<int64_t>(sorted),
                          candidates_.begin() + static_cast<int64_t>(next), candidates_.end(),
                          better);
        sorted = next;
      }
      sum += candidates_[keep++].weight;
    }
    candidates_.resize(std::max<size_t>(keep, 1));
  }
  if (p.min_p > 0)
    std::erase_if(candidates_, [&](const Candidate& c) { return weight(c.logit) < p.min_p; });
  return best;
}

int32_t Sampler::sample(std::span<const float> logits, const SamplerParams& p, int64_t position) {
  float top;
  int32_t best = survivors(logits, p, position, top);
  if (candidates_.size() == 1) return candidates_[0].id;
  double best_score = -std::numeric_limits<double>::infinity();
  for (const Candidate& c : candidates_) {
    const double u =
        uniform_at(p.seed, p.choice, static_cast<uint64_t>(position), static_cast<uint32_t>(c.id));
    const double score = static_cast<double>(c.logit) / p.temperature - std::log(-std::log(u));
    if (score > best_score || (score == best_score && c.id < best)) {
      best_score = score;
      best = c.id;
    }
  }
  return best;
}

void Sampler::distribution(std::span<const float> logits, const SamplerParams& p, int64_t position,
                           std::vector<TokenProbability>& out) {
  float top;
  survivors(logits, p, position, top);
  std::sort(candidates_.begin(), candidates_.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  out.clear();
  double total = 0;
  for (const Candidate& c : candidates_) {
    const double w = candidates_.size() == 1
                         ? 1.0
                         : std::exp((static_cast<double>(c.logit) - top) / p.temperature);
    out.push_back({c.id, w});
    total += w;
  }
  for (TokenProbability& t : out) t.probability /= total;
}

int32_t draw_from(std::span<const TokenProbability> distribution, double u) {
  double total = 0;
  for (const TokenProbability& t : distribution) total += t.probability;
  double left = u * total;
  int32_t last = -1;
  for (const TokenProbability& t : distribution) {
    if (t.probability <= 0) continue;
    last = t.id;  // rounding may leave a rest beyond the last token
    left -= t.probability;
    if (left < 0) break;
  }
  SPK_CHECK(last >= 0);
  return last;
}

void Sampler::logprobs(std::span<const float> logits, int count, int32_t chosen,
                       TokenLogprob& chosen_out, std::vector<TokenLogprob>& top_out) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float x : logits) sum += std::exp(static_cast<double>(x) - top);
  const double norm = static_cast<double>(top) + std::log(sum);
  chosen_out = {chosen, static_cast<double>(logits[chosen]) - norm};
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i)
    candidates_.push_back({logits[i], static_cast<int32_t>(i), 0});
  const auto n = std::min<size_t>(static_cast<size_t>(std::max(count, 0)), candidates_.size());
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<int64_t>(n),
                    candidates_.end(), better);
  top_out.clear();
  for (size_t i = 0; i < n; ++i)
    top_out.push_back({candidates_[i].id, static_cast<double>(candidates_[i].logit) - norm});
}

}  // namespace spk
