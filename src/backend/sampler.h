// The sampler's rule, once, as host code; every back end's sampler is compared with it.
//
// Order: logit bias, penalties, temperature, top-k, top-p, min-p, then Gumbel-max over the
// surviving ids with ONE random number per (seed, choice, the token's absolute position, token id),
// counter-based, so that a later acceptance rule that re-samples a position keeps every seeded
// text. Pure given its inputs; a Sampler owns scratch, one per thread.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace spk {

struct SamplerParams {
  double temperature = 1.0;  // below 1e-6: greedy, ties to the lowest id
  int64_t top_k = 0;         // 0 or -1: off
  double top_p = 1.0;
  double min_p = 0.0;
  double repetition_penalty = 1.0;  // over prompt and answer: logit / p if positive else * p
  double presence_penalty = 0.0;    // over the answer only
  double frequency_penalty = 0.0;   // over the answer only
  std::vector<std::pair<int32_t, double>> logit_bias = {};
  uint64_t seed = 0;
  uint64_t choice = 0;  // index of the choice when n > 1
};

bool is_greedy(const SamplerParams& params);

// Range check of all fields; Error(kUsage) naming field, range and value.
void check_params(const SamplerParams& params, int64_t vocab);

// Uniform in (0, 1), a pure function of its arguments.
double uniform_at(uint64_t seed, uint64_t choice, uint64_t position, uint32_t token);

struct TokenLogprob {
  int32_t id = -1;
  double logprob = 0;
};

struct TokenProbability {
  int32_t id = -1;
  double probability = 0;
};

// Random numbers that are not a token's own: purposes that must not share noise. Above every token
// id.
enum class Draw : uint32_t { kDraft = 0xffffff00u, kAccept, kResidual };

// Inverse CDF over a distribution (need not be normalised); u in (0, 1).
int32_t draw_from(std::span<const TokenProbability> distribution, double u);

class Sampler {
 public:
  explicit Sampler(int64_t vocab);

  // Token counts the penalties see. `prompt` counts only for the repetition penalty.
  void reset(std::span<const int32_t> prompt);
  void accept(int32_t id);
  void retract(int32_t id);  // undoes one accept: a draft that was only tried

  // Chooses the token for absolute position `position` from one row of logits [vocab]. NaN logits
  // are an Error.
  int32_t sample(std::span<const float> logits, const SamplerParams& params, int64_t position);

  // The same row as a distribution: the surviving ids in ascending order with their probabilities.
  // Greedy is one id.
  void distribution(std::span<const float> logits, const SamplerParams& params, int64_t position,
                    std::vector<TokenProbability>& out);

  // Log-probabilities of the plain softmax of the row (before any parameter), the `top` best first.
  void logprobs(std::span<const float> logits, int top, int32_t chosen, TokenLogprob& chosen_out,
                std::vector<TokenLogprob>& top_out);

 private:
  struct Candidate {
    float logit;
    int32_t id;
    double weight;  // set while top_p cuts
  };
  // Leaves the surviving ids in candidates_, best first id returned; `top` is the best logit.
  int32_t survivors(std::span<const float> logits, const SamplerParams& params, int64_t position,
                    float& top);
  static bool better(const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  }
  // The row after bias and penalties; the row itself when there are none.
  std::span<const float> adjusted(std::span<const float> logits, const SamplerParams& params);
  void keep_best(std::span<const float> x, size_t count);
  template <typename Weight>
  bool stands_alone(std::span<const float> x, int32_t best, double top_p, size_t count,
                    Weight&& weight) const;

  std::vector<float> work_;
  std::vector<float> maxima_, ordered_;  // of pieces of the row
  std::vector<Candidate> candidates_;
  std::vector<int32_t> prompt_count_;
  std::vector<int32_t> answer_count_;
  std::vector<int32_t> touched_;  // ids that have or had a count, each once
  std::vector<bool> is_touched_;
  void touch(int32_t id);
};

}  // namespace spk
