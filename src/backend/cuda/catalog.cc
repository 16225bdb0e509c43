#include "backend/cuda/catalog.h"

#include "backend/sampler.h"
#include "base/error.h"
#include "kernels/args.cuh"

#include <algorithm>
#include <array>

namespace spk::cuda {
namespace {

static_assert(static_cast<int>(Format::kF32) == gpu::kF32);
static_assert(static_cast<int>(Format::kBf16) == gpu::kBf16);
static_assert(static_cast<int>(Format::kFp8) == gpu::kFp8);
static_assert(static_cast<int>(Format::kMxfp4) == gpu::kMxfp4);
static_assert(static_cast<int>(Format::kInt4) == gpu::kInt4);
static_assert(static_cast<int>(Format::kFp8Row) == gpu::kFp8Row);
static_assert(kMaxVerify == gpu::kMaxVerifyRows);
static_assert(static_cast<uint32_t>(Draw::kAccept) == gpu::kDrawAccept);
static_assert(static_cast<uint32_t>(Draw::kResidual) == gpu::kDrawResidual);

constexpr std::array<int64_t, 4> kBuckets = {1, 2, 4, 8};

KernelSpec spec(const char* header, const std::string& instantiation) {
  return {cat("kernels/", header, ".cuh"), "spk::gpu::" + instantiation};
}
int code(Format format) { return static_cast<int>(format); }

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

void add(std::vector<KernelSpec>& specs, KernelSpec spec) {
  if (std::find(specs.begin(), specs.end(), spec) == specs.end()) specs.push_back(std::move(spec));
}

}  // namespace

KernelSpec embed_kernel(Format f) { return spec("rows", cat("embed<", code(f), ">")); }
KernelSpec rms_norm_kernel(bool add_first) {
  return spec("rows", add_first ? "rms_norm<true>" : "rms_norm<false>");
}
KernelSpec matvec_kernel(Format f, int64_t rows) {
  return spec("matvec", cat("matvec<", code(f), ", ", rows, ">"));
}
KernelSpec matmul_kernel(Format f) { return spec("matmul", cat("matmul<", code(f), ">")); }
KernelSpec absorb_kernel(Format f) { return spec("mla", cat("absorb<", code(f), ">")); }
bool shared_joins(Format routed, Format shared) {
  return routed == shared || (routed == Format::kMxfp4 && shared == Format::kFp8) ||
         (routed == Format::kInt4 && shared == Format::kBf16);
}
KernelSpec expert_up_kernel(Format f, Format shared, int64_t rows) {
  return spec("moe", cat("expert_up<", code(f), ", ", code(shared), ", ", rows, ">"));
}
KernelSpec expert_down_kernel(Format f, Format shared, int64_t rows) {
  return spec("moe", cat("expert_down<", code(f), ", ", code(shared), ", ", rows, ">"));
}
KernelSpec attend_kernel(const ModelShape& s, bool split) {
  return spec("mla", cat("attend<", s.latent, ", ", s.rope, ", ", split ? "true" : "false", ">"));
}
KernelSpec attend_merge_kernel(const ModelShape& s) {
  return spec("mla", cat("attend_merge<", s.latent, ">"));
}
KernelSpec plain_kernel(const char* header, const char* name, int64_t number) {
  return spec(header, cat(name, "<", number, ">"));
}

int64_t row_bucket(int64_t n) {
  for (const int64_t rows : kBuckets)
    if (n <= rows) return rows;
  return kBuckets.back();
}

std::vector<KernelSpec> kernels_of_model(const ModelShape& s, std::span<const WeightUse> weights) {
  std::vector<KernelSpec> specs;
  // Of the shared experts; their kernels are those of the routed ones where the two join.
  Format shared_up = Format::kF32, shared_down = Format::kF32;
  for (const WeightUse& w : weights) {
    if (!contains(w.name, ".shared_experts.")) continue;
    (contains(w.name, "down_proj") ? shared_down : shared_up) = w.format;
  }
  const auto beside = [](Format routed, Format shared) {
    return shared_joins(routed, shared) ? shared : routed;
  };
  for (const WeightUse& w : weights) {
    if (w.rows == 1 || w.cols == s.conv_kernel) continue;  // kept as floats
    if (contains(w.name, "embeddings")) {
      add(specs, embed_kernel(w.format));
      continue;
    }
    const bool routed = contains(w.name, ".experts.");
    for (const int64_t rows : kBuckets) {
      if (!routed) {
        add(specs, matvec_kernel(w.format, rows));
      } else if (contains(w.name, "down_proj")) {
        add(specs, expert_down_kernel(w.format, beside(w.format, shared_down), rows));
      } else {
        add(specs, expert_up_kernel(w.format, beside(w.format, shared_up), rows));
      }
    }
    if (contains(w.name, "kv_b_proj")) add(specs, absorb_kernel(w.format));
    if (!routed) add(specs, matmul_kernel(w.format));
  }
  for (const bool yes : {false, true}) {
    add(specs, rms_norm_kernel(yes));
    add(specs, attend_kernel(s, yes));
  }
  add(specs, attend_merge_kernel(s));
  for (const char* name : {"add_rows", "swiglu", "head_gate"})
    add(specs, plain_kernel("rows", name));
  add(specs, plain_kernel("rows", "norm_gate", s.head_dim));
  for (const char* name : {"conv_step", "fold_tail"})
    add(specs, plain_kernel("kda", name, s.conv_kernel));
  for (const char* name : {"kda_gate", "kda_rows", "fold_state"})
    add(specs, plain_kernel("kda", name, s.head_dim));
  for (const char* name : {"kda_prepare", "kda_scan"})
    add(specs, plain_kernel("kda_chunk", name, s.head_dim));
  for (const char* name : {"rope_table", "rope", "latent_append"})
    add(specs, plain_kernel("mla", name));
  for (const char* name : {"route", "few_expert_items", "expert_items", "expert_sum"})
    add(specs, plain_kernel("moe", name));
  return specs;
}

std::string agreement_checks() {
  std::string text;
  const auto size = [&](const char* name, size_t bytes) {
    text += cat("static_assert(sizeof(spk::gpu::", name, ") == ", bytes, ", \"", name, "\");\n");
  };
  const auto constant = [&](const char* name, int64_t value) {
    text += cat("static_assert(spk::gpu::", name, " == ", value, ", \"", name, "\");\n");
  };
#define SPK_SIZE(type) size(#type, sizeof(gpu::type))
#define SPK_CONSTANT(name) constant(#name, gpu::name)
  SPK_SIZE(View), SPK_SIZE(IntView), SPK_SIZE(Matrix), SPK_SIZE(StepInfo), SPK_SIZE(EmbedArgs);
  SPK_SIZE(NormArgs), SPK_SIZE(AddArgs), SPK_SIZE(SwigluArgs), SPK_SIZE(NormGateArgs);
  SPK_SIZE(HeadGateArgs), SPK_SIZE(ProductArgs), SPK_SIZE(ProductsArgs), SPK_SIZE(ConvArgs),
      SPK_SIZE(KdaGateArgs);
  SPK_SIZE(KdaArgs), SPK_SIZE(FoldTailArgs), SPK_SIZE(FoldStateArgs), SPK_SIZE(KdaChunkArgs);
  SPK_SIZE(RopeTableArgs), SPK_SIZE(RopeArgs), SPK_SIZE(LatentAppendArgs), SPK_SIZE(AbsorbArgs);
  SPK_SIZE(AttendArgs), SPK_SIZE(RouteArgs), SPK_SIZE(ExpertWeights), SPK_SIZE(ItemsArgs);
  SPK_SIZE(ExpertsArgs), SPK_SIZE(ExpertSumArgs), SPK_SIZE(QuantiseArgs), SPK_SIZE(SampleArgs);
  SPK_SIZE(RejectArgs);
  SPK_CONSTANT(kThreads), SPK_CONSTANT(kMaxRowsInvariant), SPK_CONSTANT(kStreamBlocks);
  SPK_CONSTANT(weight_rows(1)), SPK_CONSTANT(weight_rows(8)), SPK_CONSTANT(kMaxProducts);
  SPK_CONSTANT(kAbsorbColumns);
  SPK_CONSTANT(kTileRows), SPK_CONSTANT(kTileCols), SPK_CONSTANT(kTileDepth);
  SPK_CONSTANT(kMaxVerifyRows), SPK_CONSTANT(kKdaChunk), SPK_CONSTANT(kKdaColumns);
  SPK_CONSTANT(kKdaSlices), SPK_CONSTANT(kSegment), SPK_CONSTANT(kAttendHeads);
  SPK_CONSTANT(kMaxExperts), SPK_CONSTANT(kMaxGroups), SPK_CONSTANT(kExpertRows);
  SPK_CONSTANT(kItemInts);
#undef SPK_SIZE
#undef SPK_CONSTANT
  return text;
}

}  // namespace spk::cuda
