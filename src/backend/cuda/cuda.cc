#include "backend/cuda/cuda.h"

#include "backend/taps.h"
#include "base/error.h"
#include "base/types.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

namespace spk::cuda {
namespace {

constexpr size_t kAlign = 256;
// 130,000 tensors of flash by one driver allocation each would take minutes.
constexpr size_t kChunk = size_t{256} << 20;

size_t round_to(size_t bytes, size_t align) { return (bytes + align - 1) / align * align; }

void require(bool good, const char* key, int64_t found, const char* expected) {
  if (!good) fail_input(key, " ", found, ": the cuda back end has kernels for ", expected);
}

class MemorySource final : public UploadSource {
 public:
  std::span<const std::byte> file_of(const std::byte*) const override { return {}; }
  const std::byte* read(const std::byte* data, size_t, std::byte*) override { return data; }
  void arrived(const StoredBytes&, const std::byte*) override {}
};

}  // namespace

int64_t row_bytes(Format format, int64_t cols) {
  const int64_t bytes = code_bytes(format, 1, cols);
  return round_up(bytes, format == Format::kF32 ? 32 : 16);
}

gpu::Matrix matrix_of(const Weight& w) {
  SPK_CHECK(w.data.handle != nullptr);
  // upload() made a single row floats.
  const Format format = w.rows == 1 ? Format::kF32 : w.format;
  return {static_cast<const unsigned char*>(w.data.handle),
          static_cast<const unsigned char*>(w.scales.handle), row_bytes(format, w.cols),
          static_cast<int>(w.rows), static_cast<int>(w.cols)};
}
const float* floats_of(const Weight& w) {
  SPK_CHECK(w.data.handle != nullptr);
  return static_cast<const float*>(w.data.handle);
}

CudaBackend::CudaBackend(std::unique_ptr<Device> device, const BackendOptions& options)
    : device_(std::move(device)), options_(options) {}
CudaBackend::~CudaBackend() = default;

std::string CudaBackend::description() const {
  std::string text = "cuda: " + device_->description();
  for (const std::string& note : device_->notes()) text += "; " + note;
  return text;
}

void CudaBackend::prepare(const ModelShape& shape) {
  shape_ = shape;
  const ModelShape& s = shape_;
  require(s.head_dim % 32 == 0 && s.head_dim <= 256, "head_dim", s.head_dim,
          "multiples of 32 up to 256");
  require(s.conv_kernel >= 2 && s.conv_kernel <= 8, "short_conv_kernel_size", s.conv_kernel,
          "2 to 8");
  const int64_t attend_bytes = 4 * gpu::attend_floats(static_cast<int>(s.latent + s.rope));
  require(attend_bytes <= static_cast<int64_t>(device_->info().shared), "kv_lora_rank", s.latent,
          "as much as the shared memory of a block has room for");
  require(s.experts <= gpu::kMaxExperts, "num_experts", s.experts, "up to 1024");
  require(s.groups <= gpu::kMaxGroups, "n_group", s.groups, "up to 64");
  require(s.top_k <= gpu::kMaxTopK, "num_experts_per_tok", s.top_k, "up to 32");
  info_ = take(sizeof(gpu::StepInfo), "step");
  expert_totals_ = take(4 * sizeof(uint64_t), "counters");
  rows_routed_ = take((1 + gpu::kMaxRowsInvariant) * sizeof(int), "counters");
  rule_ = take(sizeof(gpu::SampleRule), "sampler");
  std::vector<double> turns;
  for (const double f : s.rope_freq) turns.push_back(f / M_PI);
  rope_turns_ = take(std::max<size_t>(turns.size(), 1) * sizeof(double), "rope");
  upload_bytes(rope_turns_, turns.data(), turns.size() * sizeof(double));
}

// ---- memory ----

// What the driver is asked for counts, used or not: so the limit holds for the device.
void CudaBackend::check_limit(size_t bytes, std::string_view label) const {
  if (options_.memory != 0 && counters_.allocated_bytes + bytes > options_.memory)
    fail_resource("memory limit: ", label, " needs ", bytes, " bytes, ", counters_.allocated_bytes,
                  " are in use and the limit is ", options_.memory);
}

DevicePointer CudaBackend::take(size_t bytes, std::string_view label) {
  const size_t wanted = round_to(std::max<size_t>(bytes, 1), kAlign);
  auto piece = std::find_if(pieces_.rbegin(), pieces_.rend(),
                            [&](const Piece& p) { return p.bytes >= wanted; });
  if (piece == pieces_.rend()) {
    check_limit(wanted, label);
    // The nearer the limit, or the end of the device, the smaller: what is left must do for the
    // work space too.
    size_t room = device_->free_memory();
    if (options_.memory != 0)
      room = std::min(room, static_cast<size_t>(options_.memory - counters_.allocated_bytes));
    const size_t chunk = std::max(wanted, std::min(kChunk, round_to(room / 8, kAlign)));
    ++counters_.allocations;
    pieces_.push_back({device_->alloc(chunk, label), chunk});
    counters_.allocated_bytes += chunk;
    piece = pieces_.rbegin();
  }
  const DevicePointer at = piece->at;
  piece->at += wanted;
  piece->bytes -= wanted;
  return at;
}

Buffer CudaBackend::alloc(size_t bytes, std::string_view label) {
  return {pointer_to(take(bytes, label)), bytes};
}

DevicePointer CudaBackend::work_space(size_t bytes) {
  if (bytes > work_bytes_) {
    flush_sum();  // it reads what is given back here
    check_limit(bytes - work_bytes_, "work space");
    if (work_) device_->free(std::exchange(work_, 0));
    counters_.allocated_bytes -= std::exchange(work_bytes_, 0);
    ++counters_.allocations;
    work_ = device_->alloc(bytes, "work space");
    work_bytes_ = bytes;
    counters_.allocated_bytes += bytes;
  }
  return work_;
}

void CudaBackend::upload_bytes(DevicePointer to, const void* from, size_t bytes) {
  if (bytes > 0) device_->upload(to, from, {bytes, 1, bytes, bytes});
}

Weight CudaBackend::upload(const HostTensor& t) {
  Weight w;
  w.format = t.format;
  w.rows = t.rows;
  w.cols = t.cols;
  w.bytes = t.bytes();
  w.name = t.name;
  names_.emplace_back(t.name);
  uses_.push_back({names_.back(), t.format, t.rows, t.cols});
  if (t.name.find(".mlp.gate.") != std::string_view::npos && t.rows > 1)
    resident_router_ = t.format;
  // Vectors and convolution taps become floats.
  if (t.rows == 1 || is_conv_taps(t.name)) {
    std::vector<float> values(static_cast<size_t>(t.rows * t.cols));
    for (int64_t r = 0; r < t.rows; ++r) dequantise_row(t, r, values.data() + r * t.cols);
    const size_t bytes = values.size() * sizeof(float);
    const DevicePointer at = take(round_to(bytes, 32), t.name);
    upload_bytes(at, values.data(), bytes);
    w.data = {pointer_to(at), bytes};
    const auto codes = static_cast<size_t>(code_bytes(t.format, t.rows, t.cols));
    at_once_.push_back({names_.back(), t.format, ScaleType::kNone, t.data, codes});
    return w;
  }
  const auto rows = static_cast<size_t>(t.rows);
  const auto stored = static_cast<size_t>(code_bytes(t.format, 1, t.cols));
  const auto pitch = static_cast<size_t>(row_bytes(t.format, t.cols));
  const DevicePointer codes = take(rows * pitch, t.name);
  late(t, ScaleType::kNone, t.data, stored * rows, codes, stored, pitch);
  w.data = {pointer_to(codes), rows * pitch};
  const int64_t count = scale_count(t.format, t.rows, t.cols);
  if (count == 0) return w;
  const auto bytes = static_cast<size_t>(count * scale_bytes(t.scale_type));
  if (t.format == Format::kFp8 || t.format == Format::kFp8Row) {
    std::vector<float> floats(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) floats[static_cast<size_t>(i)] = scale_at(t, i);
    w.scales.bytes = floats.size() * sizeof(float);
    const DevicePointer at = take(w.scales.bytes, t.name);
    upload_bytes(at, floats.data(), w.scales.bytes);
    w.scales.handle = pointer_to(at);
    at_once_.push_back({names_.back(), t.format, t.scale_type, t.scales, bytes});
    return w;
  }
  SPK_CHECK(t.scale_type == (t.format == Format::kMxfp4 ? ScaleType::kE8m0 : ScaleType::kBf16));
  const DevicePointer at = take(bytes, t.name);
  late(t, t.scale_type, t.scales, bytes, at, bytes, bytes);
  w.scales = {pointer_to(at), bytes};
  return w;
}

// The stored order is the one that the packed kernels read: nothing is moved.
Weight CudaBackend::upload_expert(const HostTensor& tensor) {
  Weight w = upload(tensor);
  w.packed = options_.moe == MoeKernel::kPacked && can_pack(w.format, w.rows, w.cols);
  uses_.back().packed = w.packed;
  return w;
}

std::string CudaBackend::expert_kernel(const Weight& weight) const {
  if (!weight.packed) return cat("plain ", device_->info().arch);
  return cat("packed ", device_->info().arch, " ", weight.cols, "x", weight.rows, ", groups of ",
             gpu::kQuantGroup);
}

void CudaBackend::late(const HostTensor& t, ScaleType scales, const std::byte* data, size_t bytes,
                       DevicePointer to, size_t width, size_t pitch) {
  late_.push_back({{names_.back(), t.format, scales, data, bytes}, to, width, pitch});
}

void CudaBackend::finish_uploads(UploadSource& source) {
  for (const StoredBytes& part : at_once_) source.arrived(part, part.data);
  device_->upload_late(late_, source);
  at_once_ = {};
  late_ = {};
}

const Counters& CudaBackend::counters() const {
  // Distinct experts are known on the device only. Its sums are fetched when somebody asks.
  if (expert_totals_) {
    uint64_t totals[4] = {};
    device_->download(totals, expert_totals_, {sizeof totals, 1, sizeof totals, sizeof totals});
    counters_.plain_experts += totals[0];
    counters_.packed_experts += totals[2];
    counters_.weight_bytes += totals[1] + totals[3];
    if (totals[0] + totals[2] > 0) device_->zero(expert_totals_, sizeof totals);
  }
  return counters_;
}

double CudaBackend::read_bandwidth() {
  if (bandwidth_ > 0) return bandwidth_;
  // Far larger than the L2, so that memory is what is read; where it does not fit there is no
  // figure.
  const size_t bytes = round_to(std::max<size_t>(device_->info().l2 * 16, 1 << 16), 1 << 16);
  if (options_.memory != 0 && counters_.allocated_bytes + bytes > options_.memory) return 0;
  if (bytes > device_->free_memory() / 2) return 0;
  const DevicePointer memory = device_->alloc(bytes, "bandwidth test");
  const gpu::ReadArgs args{pointer_to<const unsigned char>(memory), static_cast<int64_t>(bytes),
                           pointer_to<unsigned>(work_space(kAlign))};
  const KernelId id = kernel_id(plain_kernel("rows", "read_all"));
  const int blocks = std::max(1, device_->info().multiprocessors * 2);
  double best = 0;
  constexpr int kRounds = 5;  // the first meets a cold clock; the best of the others counts
  for (int round = 0; round < kRounds; ++round) {
    device_->synchronize();
    const auto start = std::chrono::steady_clock::now();
    device_->launch(id, {blocks}, gpu::kReadThreads, &args, sizeof args);
    device_->synchronize();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (round > 0) best = std::max(best, static_cast<double>(bytes) / seconds);
  }
  device_->free(memory);
  return bandwidth_ = best;
}

void CudaBackend::read(const Rows& from, float* to) {
  flush_sum();
  const size_t width = static_cast<size_t>(from.cols) * sizeof(float);
  device_->download(to, address(from.buffer) + static_cast<size_t>(from.offset) * sizeof(float),
                    {width, static_cast<size_t>(from.rows), width,
                     static_cast<size_t>(from.stride) * sizeof(float)});
}
void CudaBackend::read(const Rows& from, double* to) {
  floats_.resize(static_cast<size_t>(from.rows * from.cols));
  read(from, floats_.data());
  std::copy(floats_.begin(), floats_.end(), to);
}
void CudaBackend::write(const double* from, const Rows& to) {
  flush_sum();
  floats_.resize(static_cast<size_t>(to.rows * to.cols));
  std::transform(from, from + floats_.size(), floats_.begin(),
                 [](double x) { return static_cast<float>(x); });
  const size_t width = static_cast<size_t>(to.cols) * sizeof(float);
  device_->upload(
      address(to.buffer) + static_cast<size_t>(to.offset) * sizeof(float), floats_.data(),
      {width, static_cast<size_t>(to.rows), static_cast<size_t>(to.stride) * sizeof(float), width});
}
void CudaBackend::read(const Ints& from, int32_t* to) {
  flush_sum();
  const size_t width = static_cast<size_t>(from.cols) * sizeof(int32_t);
  device_->download(to, address(from.buffer) + static_cast<size_t>(from.offset) * sizeof(int32_t),
                    {width, static_cast<size_t>(from.rows), width,
                     static_cast<size_t>(from.stride) * sizeof(int32_t)});
}
void CudaBackend::write(const int32_t* from, const Ints& to) {
  flush_sum();
  const size_t width = static_cast<size_t>(to.cols) * sizeof(int32_t);
  device_->upload(address(to.buffer) + static_cast<size_t>(to.offset) * sizeof(int32_t), from,
                  {width, static_cast<size_t>(to.rows),
                   static_cast<size_t>(to.stride) * sizeof(int32_t), width});
}
void CudaBackend::zero(const Rows& rows) {
  flush_sum();
  const DevicePointer at = address(rows.buffer) + static_cast<size_t>(rows.offset) * sizeof(float);
  const size_t width = static_cast<size_t>(rows.cols) * sizeof(float);
  if (rows.cols == rows.stride || rows.rows == 1) {
    device_->zero(at, width * static_cast<size_t>(rows.rows));
    return;
  }
  for (int64_t r = 0; r < rows.rows; ++r)
    device_->zero(at + static_cast<size_t>(r * rows.stride) * sizeof(float), width);
}
void CudaBackend::copy(const Rows& from, const Rows& to) {
  flush_sum();
  if (from.rows == 0 || from.cols == 0) return;
  device_->copy(address(to.buffer) + static_cast<size_t>(to.offset) * sizeof(float),
                address(from.buffer) + static_cast<size_t>(from.offset) * sizeof(float),
                {static_cast<size_t>(from.cols) * sizeof(float), static_cast<size_t>(from.rows),
                 static_cast<size_t>(to.stride) * sizeof(float),
                 static_cast<size_t>(from.stride) * sizeof(float)});
}

// ---- steps ----

KernelId CudaBackend::kernel_id(const KernelName& name) {
  const auto found = kernel_ids_.find(name);
  if (found != kernel_ids_.end()) return found->second;
  const KernelId id = device_->kernel(spec_of(name));
  kernel_ids_.emplace(name, id);
  return id;
}

void CudaBackend::begin(const Step& step) {
  flush_sum();
  SPK_CHECK(step.kind != StepKind::kVerify || step.rows <= kMaxVerify);
  SPK_CHECK(step.fold <= kMaxVerify);
  if (!late_.empty()) {  // tensors of a test, which nobody loads
    MemorySource memory;
    finish_uploads(memory);
  }
  if (!kernels_ready_) {
    kernels_ready_ = true;
    if (!uses_.empty())
      device_->prepare_kernels(
          kernels_of_model(shape_, uses_, stays() ? options_.resident : Resident::kOff));
  }
  step_ = step;
  rope_ready_ = false;
  const gpu::StepInfo info{step.first_position, static_cast<int>(step.rows),
                           static_cast<int>(step.fold), step.kind == StepKind::kVerify ? 1 : 0};
  upload_bytes(info_, &info, sizeof info);
}

const gpu::StepInfo* CudaBackend::step_info() const {
  return pointer_to<const gpu::StepInfo>(info_);
}

}  // namespace spk::cuda
