// Choosing a token for each row of logits where they lie, for requests without penalties and bias:
// greedy, or temperature with top-k, top-p and min-p. The host's tokens (backend/sampler.h).
//
// Two launches: the largest logit of every 64, by all multiprocessors; then a block a row, which
// looks at those maxima, and again only at the pieces that can hold one of the best. The k-th best
// maximum is a bar that at least k logits reach, so what is below it is not among the k best. All
// that changes from step to step or request to request is in device memory, so both launches can
// be replayed.
#pragma once

#include "kernels/sample.cuh"

namespace spk::gpu {

constexpr unsigned kNanKey = 0xffffffffu, kLeastKey = 0x007fffffu;  // of minus infinity
SPK_DEVICE unsigned key_or_nan(float x) { return x == x ? key_of(x) : kNanKey; }
SPK_DEVICE float logit_of(unsigned key) {
  return __uint_as_float(key ^ (key >> 31 ? 0x80000000u : 0xffffffffu));
}

// Grid: (pieces / kPiecesPerBlock, rows). A warp takes a piece at a time.
template <int = 0>
__global__ void __launch_bounds__(kThreads) best_of_pieces(const ChooseArgs a) {
  start_after_previous();
  constexpr int kEach = kPiecesPerBlock / kWarps;
  const int lane = threadIdx.x % kWarp;
  const int first = blockIdx.x * kPiecesPerBlock + static_cast<int>(threadIdx.x) / kWarp * kEach;
  const float* x = row_of(a.logits, blockIdx.y);
  unsigned key[kEach];
#pragma unroll
  for (int p = 0; p < kEach; ++p) {
    key[p] = 0;
#pragma unroll
    for (int i = 0; i < kPiece; i += kWarp) {
      const int id = (first + p) * kPiece + i + lane;
      if (id < a.vocab) key[p] = max_of(key[p], key_or_nan(x[id]));
    }
  }
#pragma unroll
  for (int p = 0; p < kEach; ++p) {
    const unsigned best = warp_largest(key[p]);
    if (lane == 0 && first + p < a.pieces) a.best[blockIdx.y * a.pieces + first + p] = best;
  }
}

SPK_DEVICE unsigned largest_of_all(unsigned x) {
  SPK_SHARED(unsigned, parts, kSampleWarps);
  x = warp_largest(x);
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = x;
  __syncthreads();
  x = parts[0];
  for (int w = 1; w < kSampleWarps; ++w) x = max_of(x, parts[w]);
  __syncthreads();
  return x;
}
SPK_DEVICE int smallest_of_all(int x) {
  return static_cast<int>(~largest_of_all(~static_cast<unsigned>(x)));
}

// The lowest id with the largest logit.
SPK_DEVICE int first_best(const float* x, const unsigned* best, const ChooseArgs& a, unsigned key) {
  int piece = a.pieces;
  for (int p = threadIdx.x; p < a.pieces; p += kSampleThreads)
    if (best[p] == key) piece = min(piece, p);
  piece = smallest_of_all(piece);
  const int id = piece * kPiece + static_cast<int>(threadIdx.x);
  const bool mine = threadIdx.x < kPiece && id < a.vocab && key_of(x[id]) == key;
  return smallest_of_all(mine ? id : a.vocab);
}

// By the rule of top-k for a few: the best of all threads; false when too many logits tie at the
// bar.
SPK_DEVICE bool choose_among_few(const float* x, const unsigned* best, const ChooseArgs& a,
                                 const SampleRule& rule, u64 position, double top, Choice& chosen) {
  constexpr int kRoom = kSampleThreads;
  SPK_SHARED(int, listed, kRoom);
  SPK_SHARED(unsigned, found_key, kRoom);
  SPK_SHARED(int, found_id, kRoom);
  SPK_SHARED(unsigned, key, kRoom);  // best first
  SPK_SHARED(int, id, kRoom);
  SPK_SHARED(double, weight, kRoom);
  SPK_SHARED(int, counts, 2);
  const int t = threadIdx.x, lane = t % kWarp, top_k = static_cast<int>(rule.top_k);
  unsigned bar = 0;
  for (unsigned bit = 1u << 31; bit > 0; bit /= 2) {
    int count = 0;
    for (int p = t; p < a.pieces; p += kSampleThreads) count += best[p] >= (bar | bit) ? 1 : 0;
    if (sum_all(count) >= top_k) bar |= bit;
  }
  if (t < 2) counts[t] = 0;
  __syncthreads();
  for (int p = t; p < a.pieces; p += kSampleThreads) {
    if (best[p] < bar) continue;
    const int slot = atomicAdd(&counts[0], 1);
    if (slot < kRoom) listed[slot] = p;
  }
  __syncthreads();
  const int pieces = counts[0];
  if (pieces > kRoom) return false;
  for (int p = t / kWarp; p < pieces; p += kSampleWarps)
    for (int i = listed[p] * kPiece + lane; i < min((listed[p] + 1) * kPiece, a.vocab);
         i += kWarp) {
      const unsigned mine = key_of(x[i]);
      if (mine < bar) continue;
      const int slot = atomicAdd(&counts[1], 1);
      if (slot >= kRoom) continue;
      found_key[slot] = mine;
      found_id[slot] = i;
    }
  __syncthreads();
  const int found = counts[1];
  if (found > kRoom) return false;
  if (t < found) {  // the order in which they were found does not matter: each knows its place
    int place = 0;
    for (int f = 0; f < found; ++f)
      place +=
          found_key[f] > found_key[t] || (found_key[f] == found_key[t] && found_id[f] < found_id[t])
              ? 1
              : 0;
    key[place] = found_key[t];
    id[place] = found_id[t];
  }
  __syncthreads();
  int kept = min(found, top_k);
  if (t < kept) weight[t] = weight_of(logit_of(key[t]), top, rule.temperature);
  __syncthreads();
  if (rule.top_p < 1.0) {
    if (t == 0) {
      double total = 0, sum = 0;
      for (int k = 0; k < kept; ++k) total += weight[k];
      int enough = 0;
      while (sum < rule.top_p * total && enough < kept) sum += weight[enough++];
      counts[0] = enough > 1 ? enough : 1;
    }
    __syncthreads();
    kept = counts[0];
  }
  chosen = {-static_cast<double>(__uint_as_float(0x7f800000u)), a.vocab};
  if (t < kept && (rule.min_p <= 0 || weight[t] >= rule.min_p)) {
    const double u = uniform_at(rule.seed, rule.choice, position, static_cast<unsigned>(id[t]));
    const double scaled = static_cast<double>(logit_of(key[t])) / rule.temperature;
    chosen = {scaled - log(-log(u)), id[t]};
  }
  chosen = best_of_all(chosen);
  return true;
}

// Grid: rows; a block a row.
template <int = 0>
__global__ void __launch_bounds__(kSampleThreads) choose(const ChooseArgs a) {
  start_after_previous();
  const int row = blockIdx.x;
  const float* x = row_of(a.logits, row);
  const unsigned* best = a.best + static_cast<i64>(row) * a.pieces;
  const SampleRule rule = *a.rule;
  const auto position =
      static_cast<u64>(a.step->first_position + a.step->rows - a.n + row + a.offset);
  unsigned largest = 0;
  for (int p = threadIdx.x; p < a.pieces; p += kSampleThreads) largest = max_of(largest, best[p]);
  largest = largest_of_all(largest);
  int token = 0, status = kSampled;
  if (largest == kNanKey || largest <= kLeastKey) {  // uniform over the block
    status = largest == kNanKey ? kSawNan : kNoFinite;
  } else if (rule.temperature < kGreedyBelow) {
    token = first_best(x, best, a, largest);
  } else {
    const double top = logit_of(largest);
    const bool few = rule.top_k > 0 && rule.top_k <= kFewTokens && rule.top_k <= a.pieces;
    Choice chosen;
    if (!few || !choose_among_few(x, best, a, rule, position, top, chosen))
      chosen = choose_of_all(x, a.vocab, rule, position, top, nullptr, nullptr);
    token = chosen.id;
  }
  if (threadIdx.x != 0) return;
  a.ids[row * a.id_stride] = token;
  a.failed[row * a.failed_stride] = status;
}

}  // namespace spk::gpu
