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

#include <string>
#include <vector>

namespace spk {

struct Proof {
  std::string name;    // "lm-head", "draft head", "experts of layer 2", "draft layer"
  std::string detail;  // what ran: format or kernel
  double error = 0;    // relative, Euclidean, over the compared numbers
  double bound = 0;
  bool passed() const { return error <= bound; }  // false for NaN
};

struct ProofSubject {
  const Model& model;
  const TensorSet& tensors;  // as stored
  Backend& backend;
  Session& session;  // is reset
};

// Milliseconds on a small model, about a second at the size of ling-3.0-flash. Takes the
// activations of a few rows from the back end's memory, once.
std::vector<Proof> prove(const ProofSubject& subject);

// "lm-head (fp8): error 0.021, at most 0.06", one line each.
std::string proof_text(const std::vector<Proof>& proofs);
// Error(kResource) naming every proof that failed, with error and bound.
void check_proofs(const std::vector<Proof>& proofs);

}  // namespace spk
