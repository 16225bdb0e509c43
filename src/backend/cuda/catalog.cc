#include "backend/cuda/catalog.h"

#include "backend/sampler.h"
#include "backend/taps.h"
#include "base/error.h"
#include "kernels/resident_args.cuh"

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
static_assert(kGroup == gpu::kQuantGroup);
static_assert(kMaxVerify == gpu::kMaxVerifyRows);
static_assert(static_cast<uint32_t>(Draw::kAccept) == gpu::kDrawAccept);
static_assert(static_cast<uint32_t>(Draw::kResidual) == gpu::kDrawResidual);

constexpr std::array<int64_t, 4> kBuckets = {1, 2, 4, 8};

template <typename... Arguments>
KernelName instance(std::string_view header, std::string_view name, Arguments... arguments) {
  static_assert(sizeof...(Arguments) <= KernelName::kMost);
  return {header, name, sizeof...(Arguments), {static_cast<int64_t>(arguments)...}};
}
int64_t truth(bool yes) { return yes ? KernelName::kYes : KernelName::kNo; }

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

void add(std::vector<KernelSpec>& specs, const KernelName& name) {
  KernelSpec spec = spec_of(name);
  if (std::find(specs.begin(), specs.end(), spec) == specs.end()) specs.push_back(std::move(spec));
}

}  // namespace

size_t KernelName::Hash::operator()(const KernelName& k) const noexcept {
  // Names differ in their ends or lengths, arguments are small.
  uint64_t h = k.name.size() * 131u + static_cast<unsigned char>(k.name.back());
  for (const int64_t argument : k.arguments)
    h = (h ^ static_cast<uint64_t>(argument)) * 0x9e3779b97f4a7c15u;
  return h ^ h >> 32;
}

KernelSpec spec_of(const KernelName& k) {
  std::string list;
  for (int i = 0; i < k.count; ++i) {
    const int64_t value = k.arguments[static_cast<size_t>(i)];
    if (i > 0) list += ", ";
    list += value == KernelName::kYes  ? "true"
            : value == KernelName::kNo ? "false"
                                       : std::to_string(value);
  }
  return {cat("kernels/", k.header, ".cuh"), cat("spk::gpu::", k.name, "<", list, ">")};
}

KernelName embed_kernel(Format f) { return instance("rows", "embed", f); }
KernelName rms_norm_kernel(bool add_first) {
  return instance("rows", "rms_norm", truth(add_first));
}
KernelName matvec_kernel(Format f, int64_t rows) { return instance("matvec", "matvec", f, rows); }
bool takes_tiles(Format f, int64_t cols) {
  return (f == Format::kFp8 || f == Format::kFp8Row) && cols > 0 && cols % gpu::kTileStep == 0;
}
KernelName tiles_kernel(Format f, int64_t rows) { return instance("tile", "tiles", f, rows); }
bool has_front(Format f, int64_t cols, int64_t experts) {
  constexpr int64_t kMostExperts = 512;  // a block has a thread for each, and many registers
  return (f == Format::kBf16 || f == Format::kF32) && cols % gpu::kQuantGroup == 0 &&
         code_bytes(f, 1, cols) <= gpu::kFrontBytes && experts <= kMostExperts;
}
KernelName front_kernel(Format f, int64_t threads) {
  return instance("front", "front", f, threads);
}
KernelName matmul_kernel(Format f) { return instance("matmul", "matmul", f); }
KernelName absorb_kernel(Format f) { return instance("latent", "absorb", f); }
KernelName latent_query_kernel(Format f) { return instance("latent", "latent_query", f); }
bool shared_joins(Format routed, Format shared) {
  return routed == shared || (routed == Format::kMxfp4 && shared == Format::kFp8) ||
         (routed == Format::kInt4 && shared == Format::kBf16);
}
KernelName expert_up_kernel(Format f, Format shared, int64_t rows) {
  return instance("moe", "expert_up", f, shared, rows);
}
KernelName expert_down_kernel(Format f, Format shared, int64_t rows) {
  return instance("moe", "expert_down", f, shared, rows);
}
KernelName packed_up_kernel(Format shared, int64_t rows) {
  return instance("packed", "packed_up", shared, rows);
}
KernelName packed_down_kernel(Format shared, int64_t rows) {
  return instance("packed", "packed_down", shared, rows);
}
KernelName attend_kernel(const ModelShape& s, bool pieces) {
  return instance("mla", pieces ? "attend" : "attend_whole", s.latent, s.rope);
}
KernelName attend_merge_kernel(const ModelShape& s) {
  return instance("mla_merge", "attend_merge", s.latent);
}
KernelName kda_block_kernel(const ModelShape& s) {
  return instance("kda_block", "kda_block", s.head_dim, s.conv_kernel);
}
// Up to the threads of a block, and a past that fits into its registers.
bool has_kda_block(const ModelShape& s) {
  return (s.head_dim == 32 || s.head_dim == 64 || s.head_dim == 128) &&
         (s.conv_kernel == 2 || s.conv_kernel == 4);
}
bool has_resident(const ModelShape& s) {
  return has_kda_block(s) && s.head_dim >= 64 && s.hidden % 512 == 0 &&
         s.hidden <= gpu::kFrontColumns && s.heads * s.head_dim % 512 == 0 &&
         code_bytes(Format::kBf16, 1, s.hidden) <= gpu::kFrontBytes &&
         s.heads * s.head_dim <= gpu::kResidentColumns && s.top_k <= gpu::kResidentSlotsOfChoice &&
         s.experts <= gpu::kResidentThreads;
}
KernelName resident_kernel(const ModelShape& s, Format router, bool timed) {
  return instance("resident", "resident", router, s.head_dim, s.conv_kernel, truth(timed));
}
KernelName plain_kernel(std::string_view header, std::string_view name, int64_t number) {
  return instance(header, name, number);
}

int64_t row_bucket(int64_t n) {
  for (const int64_t rows : kBuckets)
    if (n <= rows) return rows;
  return kBuckets.back();
}

std::vector<KernelSpec> kernels_of_model(const ModelShape& s, std::span<const WeightUse> weights,
                                         Resident resident) {
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
    if (w.rows == 1 || is_conv_taps(w.name)) continue;  // kept as floats
    if (contains(w.name, "embeddings")) {
      add(specs, embed_kernel(w.format));
      continue;
    }
    const bool routed = contains(w.name, ".experts.");
    const bool packed = routed && w.packed && can_pack(w.format, w.rows, w.cols);
    for (const int64_t rows : kBuckets) {
      if (!routed) {
        add(specs, takes_tiles(w.format, w.cols) ? tiles_kernel(w.format, rows)
                                                 : matvec_kernel(w.format, rows));
        continue;
      }
      const bool down = contains(w.name, "down_proj");
      const Format shared = beside(w.format, down ? shared_down : shared_up);
      if (packed) {
        add(specs, down ? packed_down_kernel(shared, rows) : packed_up_kernel(shared, rows));
      } else {
        add(specs, down ? expert_down_kernel(w.format, shared, rows)
                        : expert_up_kernel(w.format, shared, rows));
      }
    }
    if (packed)
      for (const char* name : {"quantise_rows", "few_items_and_rows"})
        add(specs, plain_kernel("packed", name));
    if (contains(w.name, ".mlp.gate.") && has_front(w.format, w.cols, s.experts)) {
      add(specs, front_kernel(w.format, gpu::route_threads(static_cast<int>(s.experts))));
      if (resident != Resident::kOff && has_resident(s))
        add(specs, resident_kernel(s, w.format, resident == Resident::kTimed));
    }
    if (contains(w.name, "kv_b_proj")) {
      add(specs, absorb_kernel(w.format));
      add(specs, latent_query_kernel(w.format));
    }
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
  if (has_kda_block(s)) add(specs, kda_block_kernel(s));
  for (const char* name : {"kda_prepare", "kda_scan"})
    add(specs, plain_kernel("kda_chunk", name, s.head_dim));
  for (const char* name : {"rope_table", "rope", "latent_append"})
    add(specs, plain_kernel("latent", name));
  for (const char* name : {"few_expert_items", "expert_items", "expert_sum", "sum_norm"})
    add(specs, plain_kernel("moe", name));
  for (const char* name : {"route", "route_items"}) add(specs, plain_kernel("route", name));
  for (const char* name : {"best_of_pieces", "choose"}) add(specs, plain_kernel("choose", name));
  return specs;
}

bool has_room_to_stay(std::string_view arch) {  // 227 KiB; the others' blocks have 99 or 163
  return arch.starts_with("sm_90") || arch.starts_with("sm_10");
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
  SPK_SIZE(HeadGateArgs), SPK_SIZE(ProductArgs), SPK_SIZE(ProductsArgs), SPK_SIZE(TilesArgs),
      SPK_SIZE(ConvArgs), SPK_SIZE(KdaGateArgs);
  SPK_SIZE(KdaArgs), SPK_SIZE(KdaBlockArgs), SPK_SIZE(FoldTailArgs), SPK_SIZE(FoldStateArgs),
      SPK_SIZE(KdaChunkArgs);
  SPK_SIZE(RopeTableArgs), SPK_SIZE(RopeArgs), SPK_SIZE(LatentAppendArgs), SPK_SIZE(AbsorbArgs),
      SPK_SIZE(LatentQueryArgs);
  SPK_SIZE(AttendArgs), SPK_SIZE(RouteArgs), SPK_SIZE(ExpertWeights), SPK_SIZE(ItemsArgs);
  SPK_SIZE(ExpertsArgs), SPK_SIZE(ExpertSumArgs), SPK_SIZE(QuantiseArgs), SPK_SIZE(SampleArgs);
  SPK_SIZE(QuantRows), SPK_SIZE(FrontArgs), SPK_SIZE(PackedItemsArgs), SPK_SIZE(RouteItemsArgs),
      SPK_SIZE(SumNormArgs), SPK_SIZE(PackedArgs), SPK_SIZE(LayerArgs), SPK_SIZE(ResidentArgs);
  SPK_SIZE(RejectArgs), SPK_SIZE(SampleRule), SPK_SIZE(ChooseArgs);
  SPK_CONSTANT(kThreads), SPK_CONSTANT(kMaxRowsInvariant), SPK_CONSTANT(kStreamBlocks);
  SPK_CONSTANT(kTileStep), SPK_CONSTANT(kTileGroup), SPK_CONSTANT(tile_blocks(1));
  SPK_CONSTANT(weight_rows(1)), SPK_CONSTANT(weight_rows(8)), SPK_CONSTANT(kMaxProducts);
  SPK_CONSTANT(kAbsorbColumns);
  SPK_CONSTANT(kTileRows), SPK_CONSTANT(kTileCols), SPK_CONSTANT(kTileDepth);
  SPK_CONSTANT(kMaxVerifyRows), SPK_CONSTANT(kKdaChunk), SPK_CONSTANT(kKdaColumns);
  SPK_CONSTANT(kKdaSlices), SPK_CONSTANT(kAttendStep), SPK_CONSTANT(kAttendHeads);
  SPK_CONSTANT(segment_of(100000)), SPK_CONSTANT(attend_floats(576)), SPK_CONSTANT(kMergeColumns);
  SPK_CONSTANT(kMaxExperts), SPK_CONSTANT(kSumNormThreads), SPK_CONSTANT(kSumNormColumns),
      SPK_CONSTANT(kMaxGroups), SPK_CONSTANT(kExpertRows);
  SPK_CONSTANT(kResidentThreads), SPK_CONSTANT(kResidentShared), SPK_CONSTANT(kMostLayers);
  SPK_SIZE(BlockClocks);
  SPK_CONSTANT(kItemInts), SPK_CONSTANT(kQuantGroup), SPK_CONSTANT(kPackedUnits);
  SPK_CONSTANT(kPackedDownRows), SPK_CONSTANT(kSharedTiles), SPK_CONSTANT(kPiece),
      SPK_CONSTANT(kPiecesPerBlock);
#undef SPK_SIZE
#undef SPK_CONSTANT
  return text;
}

}  // namespace spk::cuda
