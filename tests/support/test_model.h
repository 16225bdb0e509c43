// A small random model on a back end, with a session: what the engine's tests stand on.
#pragma once

#include "backend/backend.h"
#include "engine/session.h"
#include "model/model.h"
#include "support/checkpoint_writer.h"
#include "support/emulated_device.h"

#include <memory>
#include <string>
#include <vector>

namespace spk::test {

class TestModel {
 public:
  explicit TestModel(const std::string& backend_name = "reference", uint64_t seed = 1,
                     Release release = Release::kFp4, const std::string& patch = "{}",
                     const BackendOptions& options = {})
      : written(small_config(patch), release, seed), source(written.open()) {
    // "cuda" runs on an emulated device or, when asked, on the GPU (emulated_device.h).
    backend = backend_name == "reference" ? make_reference_backend(options)
              : backend_name == "cuda"    ? std::move(make_tested_cuda_backends(options).front())
                                          : make_cpu_backend(options);
    const ModelConfig config = written.parsed();
    backend->prepare(config.shape);
    tensors = bind_tensors(config, *source);
    model = load_model(config, tensors, *backend);
    model.plan = backend->plan();
  }

  std::unique_ptr<Session> session(int64_t context = 256, int64_t chunk = 64, bool drafts = true) {
    return std::make_unique<Session>(model, *backend, context, chunk, drafts);
  }
  int64_t vocab() const { return model.config.shape.vocab; }
  std::vector<int32_t> prompt(int64_t n, uint64_t seed) const {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < n; ++i)
      ids.push_back(static_cast<int32_t>(uniform_at(seed, 0, static_cast<uint64_t>(i), 0) *
                                         static_cast<double>(vocab())));
    return ids;
  }
  std::vector<double> values(const Rows& rows) const {
    std::vector<double> out(static_cast<size_t>(rows.rows * rows.cols));
    backend->read(rows, out.data());
    return out;
  }

  WrittenCheckpoint written;
  std::unique_ptr<Checkpoint> source;
  std::unique_ptr<Backend> backend;
  TensorSet tensors;
  Model model;
};

// Text of `count` tokens after `prompt`, by cycles of the given depth.
struct Text {
  std::vector<int32_t> tokens;
  int64_t cycles = 0;
};
inline Text decode(TestModel& m, Session& session, const std::vector<int32_t>& prompt,
                   int64_t count, int depth, AcceptRule rule, const SamplerParams& params) {
  Text text;
  session.sync(prompt, [] { return true; });
  Sampler sampler(m.vocab());
  sampler.reset(prompt);
  int32_t last = sampler.sample(session.logits(), params, static_cast<int64_t>(prompt.size()));
  sampler.accept(last);
  text.tokens.push_back(last);
  while (static_cast<int64_t>(text.tokens.size()) < count) {
    const int64_t left = count - static_cast<int64_t>(text.tokens.size());
    const int use = static_cast<int>(std::min<int64_t>(depth, left - 1));
    const CycleResult r = session.cycle(last, use, rule, sampler, params);
    text.tokens.insert(text.tokens.end(), r.tokens.begin(), r.tokens.begin() + r.count);
    last = text.tokens.back();
    ++text.cycles;
  }
  return text;
}

}  // namespace spk::test
