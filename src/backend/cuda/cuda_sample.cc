// Choosing tokens on the device. What it takes is what never needs more than a look at the logits;
// the rest (penalties, bias, top-p over the whole vocabulary, distributions for the rejection rule)
// is the host's.
#include "backend/cuda/cuda.h"
#include "backend/cuda/work.h"
#include "backend/sampler.h"
#include "base/error.h"
#include "base/types.h"

namespace spk::cuda {
namespace {

bool same(const gpu::SampleRule& a, const gpu::SampleRule& b) {
  return a.seed == b.seed && a.choice == b.choice && a.temperature == b.temperature &&
         a.top_p == b.top_p && a.min_p == b.min_p && a.top_k == b.top_k;
}

}  // namespace

bool CudaBackend::samples(const SamplerParams& p) const {
  if (!options_.device_sampler || !p.logit_bias.empty()) return false;
  if (p.repetition_penalty != 1.0 || p.presence_penalty != 0 || p.frequency_penalty != 0)
    return false;
  const bool few = p.top_k > 0 && p.top_k <= gpu::kFewTokens;
  return is_greedy(p) || few || (p.top_p >= 1.0 && (p.top_k <= 0 || p.top_k >= shape_.vocab));
}

std::string CudaBackend::sampling() const {
  if (!options_.device_sampler) return "on the host, by SPARKLING_SAMPLER";
  return cat("on the device: greedy, top-k up to ", gpu::kFewTokens,
             " with top-p and min-p, plain temperature; on the host: penalties, bias, top-p alone, "
             "requests without a seed that draft, drafts of a draft head");
}

void CudaBackend::sample(const Rows& logits, const SamplerParams& params, int64_t offset,
                         const Ints& ids, const Ints& failed) {
  SPK_CHECK(samples(params) && logits.rows <= ids.rows && logits.rows <= failed.rows);
  const gpu::SampleRule rule{params.seed,  params.choice, params.temperature,
                             params.top_p, params.min_p,  params.top_k};
  if (!same(rule, rule_there_)) {
    upload_bytes(rule_, &rule, sizeof rule);
    rule_there_ = rule;
  }
  const int64_t pieces = ceil_div(logits.cols, gpu::kPiece);
  gpu::ChooseArgs a{};
  Sections sections;
  sections.add(a.best, logits.rows * pieces);
  sections.place(work_space(sections.bytes()));
  a.logits = view_of(logits);
  a.rule = pointer_to<const gpu::SampleRule>(rule_);
  a.step = step_info();
  const gpu::IntView to = view_of(ids), status = view_of(failed);
  a.ids = to.data;
  a.id_stride = to.stride;
  a.failed = status.data;
  a.failed_stride = status.stride;
  a.n = static_cast<int>(logits.rows);
  a.vocab = static_cast<int>(logits.cols);
  a.pieces = static_cast<int>(pieces);
  a.offset = static_cast<int>(offset);
  launch(plain_kernel("choose", "best_of_pieces"),
         {ceil_div(pieces, gpu::kPiecesPerBlock), logits.rows}, gpu::kThreads, a);
  launch(plain_kernel("choose", "choose"), {logits.rows}, gpu::kChooseThreads, a);
}

}  // namespace spk::cuda
