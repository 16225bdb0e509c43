// What an engine does with the cuda back end before its first answer: known answers over the loaded
// weights, with a head and a draft head made at load, and a probe step whose launches are counted.
// On an emulated device, or on the GPU (emulated_device.h).
#include "base/error.h"
#include "engine/proof.h"
#include "engine/require.h"
#include "support/test_model.h"

#include <gtest/gtest.h>

namespace spk {
namespace {

void prove_and_probe(MoeKernel moe, const char* required, const char* refused) {
  test::TestModel stored("cpu");
  const ModelConfig& config = stored.model.config;
  std::vector<int32_t> draft_rows;
  for (int32_t id = 0; id < config.shape.vocab; id += 3) draft_rows.push_back(id);
  const ProofTruth truth(config, stored.tensors, draft_rows, true);

  BackendOptions options;
  options.moe = moe;
  const auto backend = std::move(test::make_tested_cuda_backends(options).front());
  backend->prepare(config.shape);
  const Model model =
      load_model(config, stored.tensors, *backend, {HeadFormat::kFp8, draft_rows, 1});
  Session session(model, *backend, 64, 64, true);
  const std::vector<Proof> proofs = prove(truth, {model, *backend, session});
  EXPECT_EQ(proofs.size(), 5u);  // head, first and last experts, draft layer, draft head
  EXPECT_NO_THROW(check_proofs(proofs)) << proof_text(proofs);
  for (const Proof& p : proofs) EXPECT_GT(p.error, 0) << p.name;  // floats, not the oracle itself

  const Probe probe = probe_step(model, *backend, session, 3);
  EXPECT_NO_THROW(check_requirements(parse_requirements(required), probe, Format::kF32));
  EXPECT_THROW(check_requirements(parse_requirements(refused), probe, Format::kF32), Error);
}

TEST(CudaProof, KnownAnswersAndLaunchCountersHold) {
  prove_and_probe(MoeKernel::kPlain, "moe=plain,lm-head=fp8,draft=3", "moe=packed");
}

TEST(CudaProof, PackedExpertsHaveTheirOwn) {
  prove_and_probe(MoeKernel::kPacked, "moe=packed,lm-head=fp8,draft=3", "moe=plain");
}

}  // namespace
}  // namespace spk
