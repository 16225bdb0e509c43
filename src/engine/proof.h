// Known-answer tests at start: is each optimisation right on the LOADED weights?
//
// A switch that nobody reads raises no error, and an optimisation can be fast and wrong. So rows of
// the LM head, one expert of the first and last MoE layer, and a step of the draft layer run
// through the very objects that decoding uses and are compared with the reference back end over the
// tensors as stored. The bound of each is the rounding of its format with a margin; a wrong scale,
// shuffled rows or another head are far outside.
#pragma once

#include "engine/session.h"
#include "model/model.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace spk {

struct Proof {
  std::string name;    // "lm-head", "draft head", "experts of layer 2", "draft layer"
  std::string detail;  // what ran: format or kernel
  double error = 0;    // Euclidean, over the compared numbers; a head's relative to its products
  double bound = 0;
  bool passed() const { return error <= bound; }  // false for NaN
};

// What the answers must be. Made BEFORE the weights are loaded: loading may give the stored
// tensors' memory back. Holds one expert of two layers and the draft layer without its other
// experts, in double.
class ProofTruth {
 public:
  // `draft_rows`: ids of the draft head's rows, empty: none. Without `drafts` no draft layer.
  ProofTruth(const ModelConfig& config, const TensorSet& tensors,
             std::span<const int32_t> draft_rows, bool drafts);
  ~ProofTruth();
  ProofTruth(ProofTruth&&) noexcept;

 private:
  friend class Prover;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct ProofSubject {
  const Model& model;
  Backend& backend;
  Session& session;   // is reset
  bool fast = false;  // activations of some products are rounded to BF16
};

// Milliseconds on a small model, about a second at the size of ling-3.0-flash. Takes the
// activations of a few rows from the back end's memory, once.
std::vector<Proof> prove(const ProofTruth& truth, const ProofSubject& subject);

// The row of n hidden values that the LM head is asked with: standard normal, always the same.
std::vector<double> proof_hidden(int64_t n);

// "lm-head (fp8): error 0.021, at most 0.06", one line each.
std::string proof_text(const std::vector<Proof>& proofs);
// Error(kResource) naming every proof that failed, with error and bound.
void check_proofs(const std::vector<Proof>& proofs);

}  // namespace spk
