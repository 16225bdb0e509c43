// What idle blocks of the cuda back end ask for ahead: the weights that are read next, each byte
// once. Emulated blocks note what they ask for; a GPU only runs the same.
#include "backend/cuda/next_weights.h"
#include "base/error.h"
#include "kernels/args.cuh"
#include "support/emulated_kernels.h"
#include "support/on_device.h"
#include "support/test_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace spk {
namespace {

using test::OnDevice;
using test::TestModel;

// Notes while it lives.
struct Noted {
  Noted() { test::note_asked(&asked); }
  ~Noted() { test::note_asked(nullptr); }
  Noted(const Noted&) = delete;
  Noted& operator=(const Noted&) = delete;
  test::Asked asked;
};

bool on_gpu() { return std::getenv("SPARKLING_TEST_GPU") != nullptr; }

Weight weight_of(int64_t bytes, int64_t scales) {
  static std::byte memory[2];
  Weight w;
  w.data = {memory, static_cast<size_t>(bytes)};
  if (scales > 0) w.scales = {memory + 1, static_cast<size_t>(scales)};
  return w;
}

TEST(CudaPrefetch, CodesAndScalesInOrderUpToTheBudget) {
  const Weight a = weight_of(4096, 100), none, b = weight_of(64, 0), c = weight_of(1000, 16);
  const Weight* const list[] = {&a, &none, &b, &c};
  const auto sizes = [&](int64_t budget) {
    const gpu::NextWeights next = cuda::next_weights(list, budget);
    std::vector<int64_t> found;
    found.reserve(static_cast<size_t>(next.count));
    for (int k = 0; k < next.count; ++k) found.push_back(next.stretch[k].bytes);
    return found;
  };
  EXPECT_EQ(sizes(1 << 20), (std::vector<int64_t>{4096, 112, 64, 1008, 16}));
  EXPECT_EQ(sizes(4096 + 112 + 70), (std::vector<int64_t>{4096, 112, 64}));
  EXPECT_EQ(sizes(100), (std::vector<int64_t>{96}));
  EXPECT_EQ(sizes(15), std::vector<int64_t>{});
  const std::vector<const Weight*> many(20, &a);
  EXPECT_EQ(cuda::next_weights(many, 1 << 30).count, gpu::kMaxStretches);
}

// Any number of blocks: every byte of every stretch once, in pieces of the right form.
TEST(CudaPrefetch, BlocksShareTheStretches) {
  ModelShape shape;
  shape.head_dim = 32;
  for (const int blocks : {1, 3, 7}) {
    OnDevice device(false);
    // More than a piece for each thread of one block, pieces that are not whole, the least.
    const std::vector<int64_t> bytes = {gpu::kPieceBytes * 300 + 16, gpu::kPieceBytes, 16,
                                        gpu::kPieceBytes * 5 - 16};
    gpu::KdaBlockArgs a{};  // without heads: all blocks ask
    a.next.blocks = blocks;
    for (const int64_t n : bytes)
      a.next.stretch[a.next.count++] = {
          device.put(std::vector<unsigned char>(static_cast<size_t>(n))), n};
    Noted noted;
    device.launch(cuda::kda_block_kernel(shape), {blocks}, gpu::kda_block_threads(32), a);
    if (on_gpu()) continue;
    std::sort(noted.asked.begin(), noted.asked.end());
    std::vector<gpu::Stretch> stretches(a.next.stretch, a.next.stretch + a.next.count);
    std::sort(stretches.begin(), stretches.end(),
              [](const gpu::Stretch& x, const gpu::Stretch& y) { return x.data < y.data; });
    size_t at = 0;
    for (const gpu::Stretch& s : stretches)
      for (int64_t done = 0; done < s.bytes; ++at) {
        ASSERT_LT(at, noted.asked.size());
        EXPECT_EQ(noted.asked[at].first, s.data + done) << blocks;
        EXPECT_EQ(noted.asked[at].second % 16, 0);
        EXPECT_GT(noted.asked[at].second, 0);
        EXPECT_LE(noted.asked[at].second, gpu::kPieceBytes);
        done += noted.asked[at].second;
      }
    EXPECT_EQ(at, noted.asked.size());
  }
}

// A step that comes again asks, beside KDA, for the output projection and what is behind it, and
// beside a route for the first products of the next layer; with the switch off for nothing.
TEST(CudaPrefetch, StepsAskForWhatTheyReadNext) {
  for (const bool prefetch : {true, false}) {
    BackendOptions options;
    options.prefetch = prefetch;
    TestModel m("cuda", 5, test::Release::kFp4, "{}", options);
    const auto session = m.session(64, 16);
    const SamplerParams params;
    const std::vector<int32_t> prompt = m.prompt(5, 3);
    test::decode(m, *session, prompt, 2, 0, AcceptRule::kCoupled, params);
    Sampler sampler(m.vocab());
    sampler.reset(prompt);
    Noted noted;
    session->cycle(1, 0, AcceptRule::kCoupled, sampler, params);
    if (on_gpu()) continue;
    const auto first_of = [&](const Weight& w) {
      return std::count_if(noted.asked.begin(), noted.asked.end(), [&](const auto& asked) {
        return asked.first == static_cast<const unsigned char*>(w.data.handle);
      });
    };
    const int wanted = prefetch ? 1 : 0;
    const std::vector<Layer>& layers = m.model.layers;
    for (size_t i = 0; i < layers.size(); ++i) {
      const Layer& l = layers[i];
      EXPECT_EQ(l.is_mla ? wanted : first_of(l.kda.o), wanted) << i;
      if (i == 0 || !layers[i - 1].is_moe) continue;
      EXPECT_EQ(first_of(l.is_mla ? l.mla.kv_a : l.kda.q), wanted) << i;
    }
    EXPECT_EQ(noted.asked.empty(), !prefetch);
  }
}

}  // namespace
}  // namespace spk
