// The router: scores of all experts in one product, then groups and top-k per row, exactly and with
// ties to the lower index. Selecting by a perturbed score would reorder unequal ones; so the scores
// stay as they are.
#include "backend/cpu/cpu.h"
#include "base/error.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace spk::cpu {
namespace {

constexpr float kOut = -std::numeric_limits<float>::infinity();

// Selections instead of branches: which of a group's scores are largest cannot be predicted.
float two_largest(const float* x, int64_t n) {
  float first = kOut, second = kOut;
  for (int64_t i = 0; i < n; ++i) {
    const float lower = x[i] > first ? first : x[i];
    second = lower > second ? lower : second;
    first = x[i] > first ? x[i] : first;
  }
  return n > 1 ? first + second : first;
}

// The index of the largest of x that is not taken (NaN), the first of equals.
int64_t take_largest(float* x, int64_t n) {
  int64_t best = -1;
  for (int64_t i = 0; i < n; ++i)
    if (!std::isnan(x[i]) && (best < 0 || x[i] > x[best])) best = i;
  SPK_CHECK(best >= 0);
  x[best] = std::numeric_limits<float>::quiet_NaN();
  return best;
}

// Of up to so many scores each is compared with each.
constexpr int64_t kCounted = 64;

// rank[i] = scores before x[i], the larger ones and equal ones with a lower index. For 16 scores
// this takes 70 cycles; sorting them in by branches takes 300, as each of those is a guess.
void rank_all(const float* x, int64_t n, int32_t* rank) {
  for (int32_t i = 0; i < n; ++i) {
    const float mine = x[i];
    int32_t before = 0;
    for (int32_t j = 0; j < n; ++j)
      before += static_cast<int32_t>(x[j] > mine) |
                (static_cast<int32_t>(x[j] == mine) & static_cast<int32_t>(j < i));
    rank[i] = before;
  }
}

bool any_nan(const float* x, int64_t n) {
  int32_t found = 0;  // no early end, so that it takes several at a time
  for (int64_t i = 0; i < n; ++i) found |= static_cast<int32_t>(std::isnan(x[i]));
  return found != 0;
}

}  // namespace

// The few scores of a small model, none of them NaN.
void CpuBackend::choose_few(const float* biased, const float* group_score, int32_t* ids) const {
  const int64_t groups = shape_.groups, per_group = shape_.experts / groups;
  float score[2 * kCounted];  // the last group that is left out lies behind
  int32_t rank[kCounted], id[2 * kCounted], sorted[kCounted];
  rank_all(group_score, groups, rank);
  int64_t n = 0;
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t e = 0; e < per_group; ++e) {
      score[n + e] = biased[g * per_group + e];
      id[n + e] = static_cast<int32_t>(g * per_group + e);
    }
    n += rank[g] < shape_.keep_groups ? per_group : 0;
  }
  rank_all(score, n, rank);
  for (int64_t i = 0; i < n; ++i) sorted[rank[i]] = id[i];
  std::copy_n(sorted, shape_.top_k, ids);
}

void CpuBackend::choose(const float* biased, int32_t* ids) {
  constexpr int64_t kMaxGroups = 2048;  // the config has at most 4096 experts, two or more a group
  const int64_t groups = shape_.groups, per_group = shape_.experts / groups;
  SPK_CHECK(groups <= kMaxGroups);
  float score[kMaxGroups];
  for (int64_t g = 0; g < groups; ++g) score[g] = two_largest(biased + g * per_group, per_group);
  const bool few = groups <= kCounted && shape_.keep_groups * per_group <= kCounted;
  if (few && !any_nan(biased, shape_.experts) && !any_nan(score, groups))
    return choose_few(biased, score, ids);
  for (int64_t kept = 0; kept < shape_.keep_groups; ++kept) take_largest(score, groups);
  // One pass over the groups that were kept, with the best so far in order: an equal score goes
  // behind, so that ties keep the lower id.
  const int64_t top_k = shape_.top_k;
  int64_t found = 0;
  for (int64_t g = 0; g < groups; ++g) {
    if (!std::isnan(score[g])) continue;
    for (int64_t e = g * per_group; e < (g + 1) * per_group; ++e) {
      if (found == top_k && !(biased[e] > biased[ids[top_k - 1]])) continue;
      if (std::isnan(biased[e])) continue;
      // Its place is behind all that are not smaller; those behind it move on by one, the last one
      // out. Again without branches.
      const int64_t last = found < top_k ? found++ : top_k - 1;
      auto moving = static_cast<int32_t>(e);
      bool in = false;
      for (int64_t at = 0; at < last; ++at) {
        const int32_t here = ids[at];
        in |= biased[e] > biased[here];
        ids[at] = in ? moving : here;
        moving = in ? here : moving;
      }
      ids[last] = moving;
    }
  }
  SPK_CHECK(found == top_k);
}

void CpuBackend::route(const Rows& h, const Moe& moe, const Ints& forced, const Ints& ids,
                       const Rows& weights) {
  const int64_t n = h.rows, experts = shape_.experts, top_k = shape_.top_k;
  float* scores = shared_floats(2 * n * experts);
  float* biased = scores + n * experts;
  const Rows out = {{scores, 0}, 0, n, experts, experts};
  matmul(h, moe.router, out);
  const float* bias = floats_of(moe.bias);
  run_rows(n, experts * 16, [&](int64_t i, int) {
    float* s = scores + i * experts;
    kernels_.sigmoid(s, experts);
    int32_t* chosen = row_of(ids, i);
    if (forced) {
      std::copy_n(row_of(forced, i), top_k, chosen);
    } else {
      float* b = biased + i * experts;
      std::copy_n(bias, experts, b);
      kernels_.add(b, s, experts);
      choose(b, chosen);
    }
    float sum = 1e-20f;
    for (int64_t k = 0; k < top_k; ++k) {
      SPK_CHECK(chosen[k] >= 0 && chosen[k] < experts);
      sum += s[chosen[k]];
    }
    for (int64_t k = 0; k < top_k; ++k)
      row_of(weights, i)[k] = s[chosen[k]] / sum * static_cast<float>(shape_.routed_scale);
  });
}

}  // namespace spk::cpu
