#include "measure/projection.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>

namespace spk {
namespace {

constexpr double kTextOverlap = 0.6;  // distinct experts in real text, of independent growth
constexpr int64_t kPrefillChunk = 8192;

class Planner {
 public:
  Planner(const ModelConfig& config, const TensorSet& tensors, const Device& device,
          const PlanRequest& request)
      : config_(config), tensors_(tensors), device_(device), request_(request) {}

  Plan make() const;

 private:
  ByteCount count(HeadFormat head, int64_t draft_rows) const {
    return count(head, draft_rows, request_.bf16_latents);
  }
  ByteCount count(HeadFormat head, int64_t draft_rows, bool bf16_latents) const {
    return ByteCount(config_, tensors_, {head, draft_rows, bf16_latents ? 2 : 4, 4});
  }
  CycleBytes cycle(const ByteCount& bytes, int64_t drafts, double accept_length,
                   double distinct) const;
  double distinct_of(int64_t rows, double overlap) const {
    return distinct_experts(config_.shape.experts, config_.shape.top_k, rows, overlap);
  }
  PlanRow row(std::string name, const CycleBytes& cycle, double reached) const;
  void add_rows(Plan& plan) const;
  void add_prefill(const ModelSizes& sizes, Plan& plan) const;
  void add_published(Plan& plan) const;

  const ModelConfig& config_;
  const TensorSet& tensors_;
  const Device& device_;
  const PlanRequest& request_;
};

CycleBytes Planner::cycle(const ByteCount& bytes, int64_t drafts, double accept_length,
                          double distinct) const {
  CycleBytes c;
  c.drafts = drafts;
  c.accept_length = accept_length;
  c.distinct = distinct;
  c.verify = bytes.target({drafts + 1, request_.depth, distinct}).total();
  // The first draft pass also takes the rows that the last cycle accepted.
  for (int64_t i = 0; i < drafts; ++i) {
    const double extended = i == 0 ? distinct_of(std::llround(accept_length), kTextOverlap) : 0;
    c.draft += bytes.draft({1, request_.depth + i, extended}).total();
  }
  return c;
}

PlanRow Planner::row(std::string name, const CycleBytes& cycle, double reached) const {
  PlanRow r;
  r.name = std::move(name);
  r.cycle = cycle;
  r.limit_tok_s = device_.bandwidth / cycle.per_token();
  if (device_.practical > 0) r.practical_tok_s = device_.practical / cycle.per_token();
  r.projected_tok_s = reached * r.limit_tok_s;
  return r;
}

void Planner::add_rows(Plan& plan) const {
  const auto plain = static_cast<double>(config_.shape.top_k);
  const auto step = [&](HeadFormat head) { return cycle(count(head, 0), 0, 1, plain); };
  const CycleBytes wide = step(HeadFormat::kFp32);
  plan.rows.push_back(row("plain experts, FP32 head", wide, device_.reached_plain));
  plan.rows.push_back(row("+ expert kernels", wide, device_.reached));
  plan.rows.push_back(row(cat("+ ", head_format_name(request_.head), " head"), step(request_.head),
                          device_.reached));
  if (!tensors_.has_mtp || request_.drafts == 0) return;
  const double distinct =
      request_.distinct > 0 ? request_.distinct : distinct_of(request_.drafts + 1, kTextOverlap);
  plan.rows.push_back(row(cat("+ MTP, ", request_.drafts, " drafts"),
                          cycle(count(request_.head, request_.draft_head), request_.drafts,
                                request_.accept_length, distinct),
                          device_.reached));
}

// Every weight of the chosen experts twice a token, every distinct expert's bytes once a chunk.
void Planner::add_prefill(const ModelSizes& sizes, Plan& plan) const {
  plan.prefill_chunk = kPrefillChunk;
  if (device_.compute == 0) return;
  const ModelShape& s = config_.shape;
  const auto chunk = static_cast<double>(kPrefillChunk);
  const auto embed = static_cast<double>(s.vocab * s.hidden);
  const double flops = 2 * (static_cast<double>(sizes.active_parameters) - 2 * embed);
  const double bytes =
      count(request_.head, 0).target({1, 0, distinct_of(kPrefillChunk, 1)}).total();
  plan.prefill_limit_tok_s =
      chunk / std::max(bytes / device_.bandwidth, chunk * flops / device_.compute);
  plan.prefill_projected_tok_s = device_.reached_prefill * plan.prefill_limit_tok_s;
}

// Figures published for Ling-3.0-flash on the DGX Spark. A draft cycle lasts accept length over
// tok/s; its floor depends on how many distinct experts the verify pass read, which nobody
// published, so both ends are given. Accept lengths of 3.90 and 2.68 were published; with 4.0 and
// 2.9, which later analyses put in, the shares are lower. The two figures without an FP8 head are
// held against a BF16 head: the step from it to FP8 gained 2.6 ms, which 0.40 GB explain and the
// 1.21 GB of an FP32 head do not.
void Planner::add_published(Plan& plan) const {
  const ModelShape& s = config_.shape;
  if (device_.name.find("GB10") == std::string::npos || s.hidden != 2560 || config_.layers != 42)
    return;
  struct Point {
    const char* name;
    double tok_s;
    HeadFormat head;
    int64_t drafts;
    double accept_length;
  };
  constexpr Point kPoints[] = {
      {"baseline: FlashInfer experts", 36.09, HeadFormat::kBf16, 0, 1},
      {"+ Humming expert kernels", 39.45, HeadFormat::kBf16, 0, 1},
      {"+ FP8 head", 43.94, HeadFormat::kFp8, 0, 1},
      {"+ MTP, synthetic, accept length 3.90", 102.88, HeadFormat::kFp8, 3, 3.90},
      {"  the same at 4.0", 102.88, HeadFormat::kFp8, 3, 4.0},
      {"+ MTP, GSM8K, accept length 2.68", 53.89, HeadFormat::kFp8, 3, 2.68},
      {"  the same at 2.9", 53.89, HeadFormat::kFp8, 3, 2.9},
  };
  for (const Point& point : kPoints) {
    const ByteCount bytes = count(point.head, 0, true);  // that engine keeps BF16
    PublishedRow r;
    r.name = point.name;
    r.tok_s = point.tok_s;
    r.low = cycle(bytes, point.drafts, point.accept_length,
                  distinct_of(point.drafts + 1, kTextOverlap));
    r.high = cycle(bytes, point.drafts, point.accept_length, distinct_of(point.drafts + 1, 1));
    r.percent_low = 100 * point.tok_s * r.low.per_token() / device_.bandwidth;
    r.percent_high = 100 * point.tok_s * r.high.per_token() / device_.bandwidth;
    plan.published.push_back(r);
  }
}

Plan Planner::make() const {
  Plan plan;
  plan.device = device_;
  plan.request = request_;
  if (plan.request.context == 0) plan.request.context = config_.context;
  plan.step = count(request_.head, 0).target({1, request_.depth, 0});
  add_rows(plan);
  const ModelSizes sizes = model_sizes(config_, tensors_);
  add_prefill(sizes, plan);
  add_published(plan);
  plan.weight_bytes = static_cast<double>(sizes.weight_bytes);
  plan.state_bytes = static_cast<double>(sizes.state_bytes);
  const int64_t per_token = request_.bf16_latents ? sizes.latent_bytes_per_token_fast
                                                  : sizes.latent_bytes_per_token_exact;
  plan.cache_bytes = static_cast<double>(per_token * plan.request.context);
  if (device_.disk > 0) plan.load_seconds = plan.weight_bytes / device_.disk;
  if (device_.memory > 0)
    plan.fits = plan.weight_bytes + plan.state_bytes + plan.cache_bytes <= device_.memory;
  return plan;
}

}  // namespace

Plan make_plan(const ModelConfig& config, const TensorSet& tensors, const Device& device,
               const PlanRequest& request) {
  return Planner(config, tensors, device, request).make();
}

}  // namespace spk
