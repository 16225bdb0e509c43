#include "model/synthetic.h"

#include "base/error.h"
#include "base/types.h"
#include "model/tensor_table.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <thread>
#include <unordered_map>

namespace spk {
namespace {

// splitmix64: one multiply-xor chain per 8 bytes, and any position can be reached without the ones
// before it.
uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;

// How the bytes of one stored tensor are made from random words.
enum class Fill : uint8_t { kBf16, kBf16Norm, kF32, kFp8, kMxfp4, kE8m0 };

struct Recipe {
  Fill fill = Fill::kBf16;
  uint8_t exponent = 0;     // kBf16: the largest biased exponent; kE8m0: the code
  float low = 0, high = 0;  // kF32: uniform range
};

// Each kind maps 8 random bytes to 8 stored ones by masks and one addition, without carries between
// the lanes.
uint64_t shape_word(uint64_t r, const Recipe& recipe) {
  constexpr uint64_t kLanes16 = 0x0001000100010001u;
  constexpr uint64_t kLanes8 = 0x0101010101010101u;
  switch (recipe.fill) {
    case Fill::kMxfp4:
      return r;  // every nibble is a number
    case Fill::kFp8:
      return r & (kLanes8 * 0xbf);  // exponent field below 8: magnitudes below 2, never a NaN code
    case Fill::kE8m0:               // the code or the one below
      return (r & kLanes8) + kLanes8 * (recipe.exponent - 1u);
    case Fill::kBf16Norm:
      return (r & (kLanes16 * 0x1f)) | kLanes16 * 0x3f80;  // 1 to 1.24
    case Fill::kBf16: {  // sign and mantissa as they come, the exponent one of the last four
      const uint64_t exponent =
          ((r & (kLanes16 * 0x0300)) >> 1) + kLanes16 * ((recipe.exponent - 3u) << 7);
      // Bits 8 and 9 were used as the exponent; the mantissa is bits 0 to 6 and the sign bit 15.
      return (r & (kLanes16 * 0x807f)) | exponent;
    }
    case Fill::kF32: {
      uint64_t word = 0;
      for (int i = 0; i < 2; ++i) {
        const auto bits = static_cast<uint32_t>(r >> (32 * i));
        const float u = static_cast<float>(bits >> 8) * 0x1p-24f;
        const float value = recipe.low + (recipe.high - recipe.low) * u;
        word |= static_cast<uint64_t>(std::bit_cast<uint32_t>(value)) << (32 * i);
      }
      return word;
    }
  }
  return r;
}

// Root mean squares of the code distributions above, so that a scale can set the size of the
// weights.
double rms_of(Fill fill) {
  double sum = 0;
  int count = 0;
  if (fill == Fill::kMxfp4) {
    for (const float v : kE2m1) sum += static_cast<double>(v) * static_cast<double>(v), ++count;
  } else if (fill == Fill::kFp8) {
    for (int code = 0; code < 64; ++code, ++count) {
      const double v = static_cast<double>(e4m3_to_float(static_cast<uint8_t>(code)));
      sum += v * v;
    }
  } else {  // kBf16 relative to 2^(exponent - 127): mantissa in [1, 2), 0 to 3 binades below
    for (int binade = 0; binade < 4; ++binade) sum += 7.0 / 3.0 * std::exp2(-2.0 * binade);
    count = 4;
  }
  return std::sqrt(sum / count);
}

// A row of cols weights of this size maps inputs of order one to outputs of order `gain`.
int power_for(double gain, int64_t cols, Fill fill) {
  const double wanted = gain / std::sqrt(static_cast<double>(cols)) / rms_of(fill);
  return static_cast<int>(std::lround(std::log2(wanted)));
}

struct Made {
  StoredTensor info;
  Recipe recipe;
  bool expert = false;  // of a routed one
};

class Synthetic : public TensorSource {
 public:
  Synthetic(const ModelConfig& config, uint64_t seed) : seed_(seed) {
    for_each_expected(config, config.mtp_layers > 0, [&](const Expected& x) { plan(x); });
    for (const Made& made : tensors_) index_.emplace(made.info.name, &made);
    present_.resize(tensors_.size(), true);
    map();
  }
  Synthetic(const Synthetic&) = delete;
  Synthetic& operator=(const Synthetic&) = delete;
  ~Synthetic() override { ::munmap(data_, bytes_); }
  bool has_values() const override { return filled_; }

  // Pieces of 1 MiB, taken from a counter; each word depends on (seed, tensor, position) only,
  // never on the thread.
  void fill(int threads, MakeExperts experts) {
    filled_ = true;
    constexpr uint64_t kPiece = 1 << 20;
    std::vector<uint64_t> first;  // first piece of each tensor
    uint64_t pieces = 0;
    for (size_t t = 0; t < tensors_.size(); ++t) {
      first.push_back(pieces);
      present_[t] = experts == MakeExperts::kNow || !tensors_[t].expert;
      if (present_[t]) pieces += (tensors_[t].info.bytes + kPiece - 1) / kPiece;
    }
    std::atomic<uint64_t> next{0};
    const auto work = [&] {
      for (uint64_t p = next++; p < pieces; p = next++) {
        const auto t = static_cast<size_t>(std::upper_bound(first.begin(), first.end(), p) -
                                           first.begin() - 1);
        const uint64_t begin = (p - first[t]) * kPiece;
        make(t, begin, std::min(tensors_[t].info.bytes, begin + kPiece),
             data_ + tensors_[t].info.offset + begin);
      }
    };
    std::vector<std::thread> team;
    for (int i = 1; i < threads; ++i) team.emplace_back(work);
    work();
    for (std::thread& thread : team) thread.join();
  }

  std::string_view name() const override { return name_; }
  std::optional<TensorBytes> find(std::string_view tensor) const override {
    const auto it = index_.find(tensor);
    if (it == index_.end()) return std::nullopt;
    return view(*it->second);
  }
  void for_each(const std::function<void(const TensorBytes&)>& visit) const override {
    for (const Made& made : tensors_) visit(view(made));
  }
  // These bytes exist nowhere else, and a back end may have kept a pointer to them: nothing is
  // given back.
  void drop(const std::byte*, size_t) const override {}
  void forget(const std::byte* data, size_t bytes) const override {
    constexpr uint64_t kPage = 4096;  // inside the tensor only: its neighbours are not forgotten
    const auto first = static_cast<uint64_t>(round_up(data - data_, kPage));
    const auto last = (static_cast<uint64_t>(data - data_) + bytes) / kPage * kPage;
    if (first < last) ::madvise(data_ + first, last - first, MADV_DONTNEED);
    present_[tensor_at(data)] = false;
  }
  void recall(const std::byte* data, size_t) const override {
    const size_t tensor = tensor_at(data);
    if (!present_[tensor])
      make(tensor, 0, tensors_[tensor].info.bytes, data_ + tensors_[tensor].info.offset);
    present_[tensor] = true;
  }
  const std::byte* read(const std::byte* data, size_t bytes, std::byte* buffer) const override {
    const size_t tensor = tensor_at(data);
    if (present_[tensor]) return data;
    const auto begin = static_cast<uint64_t>(data - data_) - tensors_[tensor].info.offset;
    SPK_CHECK(begin % 8 == 0);
    make(tensor, begin, begin + bytes, buffer);
    return buffer;
  }

 private:
  size_t tensor_at(const std::byte* data) const {
    const auto offset = static_cast<uint64_t>(data - data_);
    const auto it =
        std::upper_bound(tensors_.begin(), tensors_.end(), offset,
                         [](uint64_t at, const Made& made) { return at < made.info.offset; });
    SPK_CHECK(it != tensors_.begin());
    return static_cast<size_t>(it - tensors_.begin()) - 1;
  }

  TensorBytes view(const Made& made) const {
    return {&made.info, data_ + made.info.offset, &name_};
  }

  void add(std::string name, StoredType type, std::vector<int64_t> shape, const Recipe& recipe,
           bool expert = false) {
    Made made;
    made.expert = expert;
    made.info.name = std::move(name);
    made.info.type = type;
    made.info.bytes = static_cast<uint64_t>(stored_type_bytes(type));
    for (const int64_t n : shape) made.info.bytes *= static_cast<uint64_t>(n);
    made.info.shape = std::move(shape);
    made.info.offset = bytes_;
    made.recipe = recipe;
    // Vector loads of the back ends start at 64; 8 more than that is the room for the last whole
    // word.
    bytes_ = static_cast<size_t>(round_up(static_cast<int64_t>(bytes_ + made.info.bytes + 8), 64));
    tensors_.push_back(std::move(made));
  }

  void plan(const Expected& x) {
    const TensorEntry& entry = *x.entry;
    std::vector<int64_t> shape = {x.rows, x.cols};
    if (entry.stored == Stored::kVector || entry.stored == Stored::kFlat) shape = {x.cols};
    if (entry.stored == Stored::kConv) shape = {x.rows, 1, x.cols};
    const Format format =
        entry.fp4 == Format::kMxfp4 && x.cols % kGroup != 0 ? Format::kFp8 : entry.fp4;
    // The head is larger, so that the distribution over the vocabulary is not flat; embeddings are
    // of order one.
    const double gain = entry.component == Component::kHead ? 3.0 : 1.0;
    const int64_t fan_in = entry.component == Component::kEmbed ? 1 : x.cols;
    Recipe codes;
    Recipe scales;
    scales.fill = Fill::kE8m0;
    switch (format) {
      case Format::kF32:
        codes.fill = Fill::kF32;
        range_of(entry, codes);
        add(x.name, StoredType::kF32, shape, codes);
        return;
      case Format::kFp8:
      case Format::kMxfp4: {
        const bool four = format == Format::kMxfp4;
        codes.fill = four ? Fill::kMxfp4 : Fill::kFp8;
        scales.exponent =
            static_cast<uint8_t>(std::clamp(127 + power_for(gain, fan_in, codes.fill), 2, 250));
        add(x.name, four ? StoredType::kI8 : StoredType::kF8E4m3,
            four ? std::vector<int64_t>{x.rows, x.cols / 2} : shape, codes, x.expert >= 0);
        add(x.name + "_scale_inv", four ? StoredType::kU8 : StoredType::kF8E8m0,
            four ? std::vector<int64_t>{x.rows, x.cols / kGroup}
                 : std::vector<int64_t>{ceil_div(x.rows, kFp8Block), ceil_div(x.cols, kFp8Block)},
            scales, x.expert >= 0);
        return;
      }
      case Format::kBf16:
        codes.fill = entry.stored == Stored::kVector ? Fill::kBf16Norm : Fill::kBf16;
        codes.exponent =
            static_cast<uint8_t>(std::clamp(127 + power_for(gain, fan_in, codes.fill), 8, 250));
        add(x.name, StoredType::kBf16, shape, codes);
        return;
      case Format::kInt4:
      case Format::kFp8Row:
        SPK_CHECK(false);
    }
  }

  // Ranges as trained models have them: decays of very different speed, a small routing bias.
  static void range_of(const TensorEntry& entry, Recipe& recipe) {
    if (entry.pattern == "attention.A_log") {
      recipe.low = 0.f;
      recipe.high = 2.f;
    } else if (entry.pattern == "attention.dt_bias") {
      recipe.low = -2.f;
      recipe.high = 0.f;
    } else {
      recipe.low = -.05f;
      recipe.high = .05f;
    }
  }

  // Not reserved: a size beyond the machine must fail as a sentence or in the memory plan, not in
  // the kernel's count.
  void map() {
    void* data = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
      const int code = errno;
      fail_resource("synthetic weights: cannot get ", bytes_, " bytes: ", std::strerror(code));
    }
    ::madvise(data, bytes_, MADV_HUGEPAGE);  // a hint: fewer page faults while filling and reading
    data_ = static_cast<std::byte*>(data);
  }

  // Bytes [begin, end) of a tensor, from a multiple of 8 on; up to 7 more are written behind them.
  void make(size_t tensor, uint64_t begin, uint64_t end, std::byte* out) const {
    const Made& made = tensors_[tensor];
    const uint64_t stream = mix(seed_ + kGolden * (tensor + 1));
    for (uint64_t i = begin; i < end; i += 8) {
      const uint64_t word = shape_word(mix(stream + kGolden * (i / 8 + 1)), made.recipe);
      std::memcpy(out + (i - begin), &word, 8);
    }
  }

  const std::string name_ = "synthetic weights";
  const uint64_t seed_;
  std::vector<Made> tensors_;
  std::unordered_map<std::string_view, const Made*> index_;
  // By tensor: its bytes are in memory. One writer: whoever loads.
  mutable std::vector<char> present_;
  bool filled_ = false;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<TensorSource> make_synthetic(const ModelConfig& config, uint64_t seed, int threads,
                                             MakeExperts experts) {
  auto made = std::make_unique<Synthetic>(config, seed);
  made->fill(std::max(1, threads), experts);
  return made;
}

std::unique_ptr<TensorSource> make_synthetic_sizes(const ModelConfig& config) {
  return std::make_unique<Synthetic>(config, 0);
}

}  // namespace spk
