#include "backend/cpu/cpu.h"

#include "backend/taps.h"
#include "base/bandwidth.h"
#include "base/error.h"
#include "base/file.h"
#include "base/types.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace spk::cpu {
namespace {

constexpr float kFp8ScaleFactor = 256.f;  // see simd.h: FP8 codes are widened times 2^-8

}  // namespace

// Pages of zeros from the system: latents for a whole context cost memory only as they are written.
Block::Block(size_t bytes) : data_(nullptr), bytes_(std::max<size_t>(bytes, 1)) {
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail_resource("out of memory: the system refuses ", bytes, " bytes");
  data_ = memory;
}
Block::Block(Block&& other) noexcept : data_(other.data_), bytes_(other.bytes_) {
  other.data_ = nullptr;
}
Block::~Block() {
  if (data_) munmap(data_, bytes_);
}

Matrix matrix_of(const Weight& w) {
  SPK_CHECK(w.data.handle != nullptr && !w.packed);
  // upload() turned it into floats when it has four bytes a number.
  const bool floats = w.data.bytes == static_cast<size_t>(w.rows * w.cols) * sizeof(float);
  return {floats ? Format::kF32 : w.format,
          w.rows,
          w.cols,
          static_cast<const uint8_t*>(w.data.handle),
          static_cast<const uint8_t*>(w.scales.handle),
          static_cast<const uint8_t*>(w.tiles.handle)};
}

const float* floats_of(const Weight& w) {
  SPK_CHECK(w.data.handle != nullptr && w.data.bytes == static_cast<size_t>(w.rows * w.cols) * 4);
  return static_cast<const float*>(w.data.handle);
}

CpuBackend::CpuBackend(const BackendOptions& options)
    : options_(options),
      kernels_(select_kernels(options.isa)),
      packed_(select_packed(kernels_.isa)),
      bf16_(options.precision == PrecisionMode::kFast ? select_bf16(kernels_.isa) : nullptr),
      team_(options.threads, options.pin) {}

std::string CpuBackend::description() const {
  return cat("cpu: ", kernels_.isa, ", ", team_.size(), team_.size() == 1 ? " thread" : " threads",
             "; F32, BF16, FP8, MXFP4, INT4 weights by ", kernels_.isa, " loops",
             bf16_ ? ", FP8 as BF16 pairs" : "");
}

void CpuBackend::prepare(const ModelShape& shape) {
  shape_ = shape;
  for (const auto& [key, found] :
       {std::pair("head_dim", shape.head_dim), std::pair("kv_lora_rank", shape.latent)}) {
    if (found % kLanes != 0)
      fail_input(key, ": the cpu back end expected a multiple of ", kLanes, ", found ", found,
                 " (`--backend reference` takes any)");
  }
}

void CpuBackend::account(size_t bytes, std::string_view label) {
  if (options_.memory != 0 && counters_.allocated_bytes + bytes > options_.memory)
    fail_resource("memory limit: ", label, " needs ", bytes, " bytes, ", counters_.allocated_bytes,
                  " are in use and the limit is ", options_.memory);
  counters_.allocated_bytes += bytes;
}

Buffer CpuBackend::alloc(size_t bytes, std::string_view label) {
  account(bytes, label);
  ++counters_.allocations;
  blocks_.emplace_back(bytes);
  return {blocks_.back().data(), bytes};
}

const float* CpuBackend::keep_floats(const HostTensor& tensor, bool transpose) {
  const size_t count = static_cast<size_t>(tensor.rows * tensor.cols);
  account(count * sizeof(float), tensor.name);
  floats_.emplace_back(count * sizeof(float));
  float* to = floats_.back().floats();
  std::vector<float> row(static_cast<size_t>(tensor.cols));
  for (int64_t r = 0; r < tensor.rows; ++r) {
    dequantise_row(tensor, r, row.data());
    for (int64_t c = 0; c < tensor.cols; ++c)
      to[transpose ? c * tensor.rows + r : r * tensor.cols + c] = row[static_cast<size_t>(c)];
  }
  return to;
}

Weight CpuBackend::upload(const HostTensor& tensor) {
  Weight w;
  w.format = tensor.format;
  w.rows = tensor.rows;
  w.cols = tensor.cols;
  w.bytes = tensor.bytes();
  w.name = tensor.name;
  // Vectors and convolution taps become floats, the taps one row per tap (conv runs along the
  // channels).
  const bool taps = is_conv_taps(tensor.name);
  if (tensor.rows == 1 || taps) {
    const float* floats = keep_floats(tensor, taps);
    w.data = {const_cast<float*>(floats), static_cast<size_t>(w.rows * w.cols) * sizeof(float)};
    return w;
  }
  const auto codes = static_cast<size_t>(code_bytes(w.format, w.rows, w.cols));
  account(codes, tensor.name);
  weight_bytes_ += static_cast<int64_t>(codes);
  w.data = {const_cast<std::byte*>(tensor.data), codes};
  const int64_t scales = scale_count(w.format, w.rows, w.cols);
  if (scales == 0) return w;
  if (w.format == Format::kFp8 || w.format == Format::kFp8Row) {
    const size_t bytes = static_cast<size_t>(scales) * sizeof(float);
    account(bytes, tensor.name);
    floats_.emplace_back(bytes);
    float* to = floats_.back().floats();
    for (int64_t i = 0; i < scales; ++i) to[i] = scale_at(tensor, i) * kFp8ScaleFactor;
    w.scales = {to, bytes};
    add_tiles(w);
    return w;
  }
  SPK_CHECK(tensor.scale_type ==
            (w.format == Format::kMxfp4 ? ScaleType::kE8m0 : ScaleType::kBf16));
  const auto bytes = static_cast<size_t>(scales * scale_bytes(tensor.scale_type));
  account(bytes, tensor.name);
  w.scales = {const_cast<std::byte*>(tensor.scales), bytes};
  return w;
}

// Packed matrices lie one behind the other in large pages: a matrix of its own pages would cost a
// mapping each (42 layers x 512 experts x 3 are as many as the system allows a process), and small
// pages stop the processor's read-ahead every 4 KiB.
uint8_t* CpuBackend::slab_bytes(size_t bytes, std::string_view label) {
  constexpr size_t kSlab = size_t{64} << 20;
  account(bytes, label);
  bytes = (bytes + 63) / 64 * 64;
  if (slabs_.empty() || slabs_.back().bytes() - slab_used_ < bytes) {
    slabs_.emplace_back(std::max(kSlab, bytes));
    prefer_large_pages(slabs_.back().data(), slabs_.back().bytes());
    slab_used_ = 0;
  }
  uint8_t* at = static_cast<uint8_t*>(slabs_.back().data()) + slab_used_;
  slab_used_ += bytes;
  return at;
}

// Short rows are multiplied twice as fast in tiles. Prompts and others read the stored form, so
// tiles are a second copy, which only small models afford.
void CpuBackend::add_tiles(Weight& w) {
  constexpr int64_t kMostColumns = 1024;
  // Where a verb cuts a matrix by heads it cuts whole tiles.
  const bool whole = shape_.nope % kLanes == 0 && shape_.v_dim % kLanes == 0 &&
                     (shape_.nope + shape_.rope) % kLanes == 0;
  if (!bf16_ || !whole || w.cols > kMostColumns || !can_tile(w.rows, w.cols)) return;
  const auto bytes = static_cast<size_t>(w.rows * w.cols);
  if (tiles_bytes_ + bytes > options_.tiles || options_.memory != 0) return;
  tiles_bytes_ += bytes;
  uint8_t* to = slab_bytes(bytes, w.name);
  tile_codes(static_cast<const uint8_t*>(w.data.handle), w.rows, w.cols, to);
  w.tiles = {to, bytes};
}

Weight CpuBackend::upload_expert(const HostTensor& tensor) {
  if (options_.moe != MoeKernel::kPacked || !can_pack(tensor.format, tensor.rows, tensor.cols))
    return upload(tensor);
  SPK_CHECK(tensor.scale_type == ScaleType::kE8m0);
  Weight w;
  w.format = tensor.format;
  w.rows = tensor.rows;
  w.cols = tensor.cols;
  w.bytes = tensor.bytes();
  w.name = tensor.name;
  w.packed = true;
  const auto codes = static_cast<size_t>(code_bytes(w.format, w.rows, w.cols));
  const auto scales = static_cast<size_t>(scale_count(w.format, w.rows, w.cols));
  uint8_t* to = slab_bytes(codes, tensor.name);
  uint8_t* to_scales = slab_bytes(scales, tensor.name);
  run_tasks(w.rows / kTileRows, w.rows * w.cols,
            [&](int64_t tile, int) { pack_tiles(tensor, tile, tile + 1, to, to_scales); });
  w.data = {to, codes};
  w.scales = {to_scales, scales};
  return w;
}

PackedMatrix packed_of(const Weight& w) {
  SPK_CHECK(w.packed);
  return {static_cast<const uint8_t*>(w.data.handle), static_cast<const uint8_t*>(w.scales.handle),
          w.rows, w.cols};
}

std::string CpuBackend::expert_kernel(const Weight& weight) const {
  if (!weight.packed) return cat("plain ", kernels_.isa);
  return cat("packed ", packed_.isa, " ", packed_kernel(packed_, weight.cols, weight.rows).name,
             ", groups of ", kGroup);
}

// A fused block gives each head to one worker: with more workers than heads the verbs, which also
// cut a head into columns and a context into segments, are quicker.
FusionPlan CpuBackend::plan() const {
  FusionPlan plan;
  if (shape_.heads < team_.size()) return plan;
  plan.fused[static_cast<int>(spk::Block::kKda)] = true;
  plan.fused[static_cast<int>(spk::Block::kMla)] = true;
  plan.text =
      "KDA by heads from convolution to gated norm, MLA by heads from queries to gated values; at "
      "most 6 joins a layer";
  return plan;
}

void CpuBackend::fused(spk::Block block, const Layer& layer, const LayerState& state,
                       const Scratch& t) {
  SPK_CHECK(block == spk::Block::kKda || block == spk::Block::kMla);
  block == spk::Block::kKda ? fused_kda(layer.kda, state, t) : fused_mla(layer.mla, state, t);
}

double CpuBackend::read_bandwidth() {
  // The buffer counts like everything else: against the limit, and as a part of the 15 % + 64 MiB
  // that a model may take beside its weights and caches.
  if (bandwidth_ != 0) return bandwidth_;
  int64_t most = weight_bytes_ / 8 + (int64_t{24} << 20);
  if (options_.memory != 0)
    most = std::min(most, static_cast<int64_t>(options_.memory - counters_.allocated_bytes));
  bandwidth_ = measure_read_bandwidth(team_.size(), most);
  return bandwidth_;
}

void CpuBackend::read(const Rows& from, double* to) {
  for (int64_t i = 0; i < from.rows; ++i)
    std::copy_n(row_of(from, i), from.cols, to + i * from.cols);
}
void CpuBackend::read(const Rows& from, float* to) {
  for (int64_t i = 0; i < from.rows; ++i)
    std::copy_n(row_of(from, i), from.cols, to + i * from.cols);
}
void CpuBackend::write(const double* from, const Rows& to) {
  for (int64_t i = 0; i < to.rows; ++i)
    for (int64_t c = 0; c < to.cols; ++c)
      row_of(to, i)[c] = static_cast<float>(from[i * to.cols + c]);
}
void CpuBackend::read(const Ints& from, int32_t* to) {
  for (int64_t i = 0; i < from.rows; ++i)
    std::copy_n(row_of(from, i), from.cols, to + i * from.cols);
}
void CpuBackend::write(const int32_t* from, const Ints& to) {
  for (int64_t i = 0; i < to.rows; ++i) std::copy_n(from + i * to.cols, to.cols, row_of(to, i));
}
void CpuBackend::zero(const Rows& rows) {
  for (int64_t i = 0; i < rows.rows; ++i) std::fill_n(row_of(rows, i), rows.cols, 0.f);
}
void CpuBackend::copy(const Rows& from, const Rows& to) {
  for (int64_t i = 0; i < from.rows; ++i) std::copy_n(row_of(from, i), from.cols, row_of(to, i));
}

void CpuBackend::begin(const Step& step) {
  SPK_CHECK(step.kind != StepKind::kVerify || step.rows <= kMaxVerify);
  SPK_CHECK(step.fold <= kMaxVerify);
  step_ = step;
}

// Scratch grows when a step is larger than all before it and is never given back: no step after
// that allocates.
float* CpuBackend::grow(std::vector<Block>& at, size_t& held, int64_t floats,
                        std::string_view label) {
  const size_t bytes = static_cast<size_t>(floats) * sizeof(float);
  if (bytes > held) {
    account(bytes - held, label);
    at.clear();
    at.emplace_back(bytes);
    held = bytes;
  }
  return at.empty() ? nullptr : at.front().floats();
}
float* CpuBackend::shared_floats(int64_t floats) {
  return grow(shared_, shared_bytes_, floats, "work space");
}
void CpuBackend::reserve_workers(int64_t floats) {
  if (floats <= worker_stride_) return;
  worker_stride_ = round_up(floats, 16);
  grow(workers_, workers_bytes_, worker_stride_ * team_.size(), "work space of the workers");
}
float* CpuBackend::worker_floats(int worker, int64_t floats) {
  SPK_DCHECK(floats <= worker_stride_);
  static_cast<void>(floats);
  return workers_.front().floats() + worker * worker_stride_;
}

}  // namespace spk::cpu

namespace spk {

std::unique_ptr<Backend> make_cpu_backend(const BackendOptions& options) {
  return std::make_unique<cpu::CpuBackend>(options);
}

}  // namespace spk
