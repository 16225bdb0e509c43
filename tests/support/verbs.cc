#include "support/verbs.h"

#include "base/error.h"
#include "base/types.h"
#include "support/emulated_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace spk::test {

ModelShape small_shape() {
  ModelShape s;
  s.hidden = 256;
  s.vocab = 512;
  s.heads = 3;
  s.head_dim = 64;
  s.latent = 64;
  s.nope = 64;
  s.rope = 32;
  s.v_dim = 64;
  s.dense = 320;
  s.experts = 32;
  s.top_k = 4;
  s.groups = 8;
  s.keep_groups = 4;
  s.expert_dim = 96;
  s.shared_dim = 96;
  s.routed_scale = 2.5;
  for (int64_t i = 0; i < s.rope / 2; ++i)
    s.rope_freq.push_back(
        std::pow(6e6, -2.0 * static_cast<double>(i) / static_cast<double>(s.rope)));
  return s;
}

ModelShape expert_shape(int64_t hidden, int64_t width, int64_t shared) {
  ModelShape s = small_shape();
  s.hidden = hidden;
  s.expert_dim = width;
  s.shared_dim = shared;
  s.experts = hidden > 1000 ? 8 : 16;
  s.groups = 4;
  s.keep_groups = 2;
  return s;
}

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const char* isa : {"generic", "avx2", "avx512", "neon"}) {
    try {
      make_cpu_backend({1, 0, isa, false});
      names.emplace_back(isa);
    } catch (const Error&) {
      continue;  // not on this processor
    }
  }
  return names;
}

Verbs::Verbs(const ModelShape& shape, int threads, MoeKernel moe, PrecisionMode precision)
    : shape_(shape) {
  std::vector<std::unique_ptr<Backend>> tested;
  for (const std::string& isa : available_isas())
    tested.push_back(make_cpu_backend({threads, 0, isa, false, moe, precision}));
  open(std::move(tested));
}

Verbs::Verbs(const ModelShape& shape, Family family, MoeKernel moe, int multiprocessors,
             Resident resident)
    : shape_(shape) {
  std::vector<std::unique_ptr<Backend>> tested;
  if (family == Family::kCuda) {
    BackendOptions options;
    options.moe = moe;
    options.resident = resident;
    tested = make_tested_cuda_backends(options, multiprocessors);
  } else {
    for (const std::string& isa : available_isas())
      tested.push_back(make_cpu_backend({2, 0, isa, false, moe}));
  }
  open(std::move(tested));
}

void Verbs::open(std::vector<std::unique_ptr<Backend>> tested) {
  backends_.push_back(make_reference_backend({}));
  for (auto& backend : tested) backends_.push_back(std::move(backend));
  each([&](Backend& b, size_t) { b.prepare(shape_); });
}

Verbs::Weights Verbs::upload(Format format, ScaleType type, int64_t rows, int64_t cols,
                             const std::vector<uint8_t>& codes,
                             const std::vector<uint8_t>& scales) {
  // One byte off any alignment, as in a file; and not a byte more than the tensor, so that a
  // sanitizer sees overreads.
  const auto keep = [&](const std::vector<uint8_t>& bytes) {
    std::vector<uint8_t>& kept = memory_.emplace_back(bytes.size() + 1);
    std::copy(bytes.begin(), bytes.end(), kept.begin() + 1);
    return reinterpret_cast<const std::byte*>(kept.data() + 1);
  };
  HostTensor t;
  t.name = name_;
  t.format = format;
  t.scale_type = type;
  t.rows = rows;
  t.cols = cols;
  SPK_CHECK(static_cast<int64_t>(codes.size()) == code_bytes(format, rows, cols));
  SPK_CHECK(static_cast<int64_t>(scales.size()) ==
            scale_count(format, rows, cols) * scale_bytes(type));
  t.data = keep(codes);
  t.scales = scales.empty() ? nullptr : keep(scales);
  Weights w;
  each([&](Backend& b, size_t) { w.push_back(experts_ ? b.upload_expert(t) : b.upload(t)); });
  return w;
}

namespace {

template <typename T>
std::vector<uint8_t> bytes_of(const std::vector<T>& values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace

Verbs::Weights Verbs::weight(int64_t rows, int64_t cols, Format format, double size) {
  std::vector<float> x(static_cast<size_t>(rows * cols));
  for (float& v : x) v = static_cast<float>(size * normal());
  std::vector<uint8_t> codes(static_cast<size_t>(code_bytes(format, rows, cols)));
  const auto count = static_cast<size_t>(scale_count(format, rows, cols));
  switch (format) {
    case Format::kF32:
      return upload(format, ScaleType::kNone, rows, cols, bytes_of(x), {});
    case Format::kBf16: {
      std::vector<uint16_t> bits(x.size());
      std::transform(x.begin(), x.end(), bits.begin(), float_to_bf16);
      return upload(format, ScaleType::kNone, rows, cols, bytes_of(bits), {});
    }
    case Format::kFp8: {
      std::vector<float> scales(count);
      quantise_fp8(x.data(), rows, cols, false, codes.data(), scales.data());
      return upload(format, ScaleType::kF32, rows, cols, codes, bytes_of(scales));
    }
    case Format::kFp8Row: {
      std::vector<float> scales(count);
      for (size_t r = 0; r < count; ++r)
        quantise_fp8_row(x.data() + r * static_cast<size_t>(cols), cols,
                         codes.data() + r * static_cast<size_t>(cols), scales[r]);
      return upload(format, ScaleType::kF32, rows, cols, codes, bytes_of(scales));
    }
    case Format::kMxfp4: {
      std::vector<uint8_t> scales(count);
      quantise_mxfp4(x.data(), rows, cols, codes.data(), scales.data());
      return upload(format, ScaleType::kE8m0, rows, cols, codes, scales);
    }
    case Format::kInt4: {
      for (uint8_t& c : codes) c = static_cast<uint8_t>(random_());
      std::vector<uint16_t> scales(count);
      for (uint16_t& s : scales)
        s = float_to_bf16(static_cast<float>(size / 4 * std::exp2(normal() / 2)));
      return upload(format, ScaleType::kBf16, rows, cols, codes, bytes_of(scales));
    }
  }
  return {};
}

Verbs::Weights Verbs::matrix(int64_t rows, int64_t cols, const Values& values) {
  std::vector<float> x;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) x.push_back(static_cast<float>(values(r, c)));
  return upload(Format::kF32, ScaleType::kNone, rows, cols, bytes_of(x), {});
}
Verbs::Weights Verbs::vector(int64_t cols, const Values& values) { return matrix(1, cols, values); }

std::vector<Rows> Verbs::rows(int64_t count, int64_t cols, const Values& values, int64_t gap) {
  std::vector<double> x;
  for (int64_t r = 0; r < count; ++r)
    for (int64_t c = 0; c < cols; ++c)
      x.push_back(static_cast<double>(static_cast<float>(values(r, c))));
  const int64_t stride = cols + gap;
  std::vector<Rows> made;
  each([&](Backend& b, size_t) {
    const Buffer buffer = b.alloc(static_cast<size_t>(count * stride) * b.real_bytes(), "test");
    const Rows all{buffer, 0, count, stride, stride};
    std::vector<double> nan(static_cast<size_t>(count * stride), std::nan(""));
    b.write(nan.data(), all);
    made.push_back(all.slice_cols(0, cols));
    b.write(x.data(), made.back());
  });
  return made;
}
std::vector<Rows> Verbs::random(int64_t count, int64_t cols, double size) {
  return rows(count, cols, [&](int64_t, int64_t) { return size * normal(); });
}
std::vector<Ints> Verbs::ints(const std::vector<int32_t>& values, int64_t cols) {
  std::vector<Ints> made;
  const auto count = static_cast<int64_t>(values.size());
  each([&](Backend& b, size_t) {
    const Buffer buffer = b.alloc(values.size() * sizeof(int32_t), "test");
    made.push_back({buffer, 0, count / cols, cols, cols});
    b.write(values.data(), made.back());
  });
  return made;
}

void Verbs::begin(StepKind kind, int64_t rows, int64_t first_position) {
  Step step;
  step.kind = kind;
  step.rows = rows;
  step.first_position = first_position;
  each([&](Backend& b, size_t) { b.begin(step); });
}

std::vector<float> Verbs::read(const std::vector<Rows>& rows, size_t backend) {
  std::vector<float> x(static_cast<size_t>(rows[backend].rows * rows[backend].cols));
  backends_[backend]->read(rows[backend], x.data());
  return x;
}

// Per row: norm of the difference and of the truth.
std::vector<std::pair<double, double>> Verbs::row_norms(const std::vector<Rows>& rows) {
  const auto cols = static_cast<size_t>(rows[0].cols), count = static_cast<size_t>(rows[0].rows);
  std::vector<double> truth(count * cols), other(count * cols);
  backends_[0]->read(rows[0], truth.data());
  backends_[1]->read(rows[1], other.data());
  std::vector<std::pair<double, double>> norms(count);
  for (size_t r = 0; r < count; ++r) {
    double difference = 0, norm = 0;
    for (size_t c = r * cols; c < (r + 1) * cols; ++c) {
      difference += (truth[c] - other[c]) * (truth[c] - other[c]);
      norm += truth[c] * truth[c];
    }
    // A NaN must not hide behind a comparison.
    norms[r] = {std::isnan(difference) ? INFINITY : std::sqrt(difference), std::sqrt(norm)};
  }
  return norms;
}

double Verbs::error(const std::vector<Rows>& rows) {
  double worst = 0;
  for (auto [difference, norm] : row_norms(rows))
    worst = std::max(worst, norm > 0 ? difference / norm : difference);
  return worst;
}

double Verbs::error_overall(const std::vector<Rows>& rows) {
  double worst = 0, squares = 0;
  for (auto [difference, norm] : row_norms(rows)) {
    worst = std::max(worst, difference);
    squares += norm * norm;
  }
  return worst / std::sqrt(squares / static_cast<double>(rows[0].rows));
}

void Verbs::expect_close_overall(const std::vector<Rows>& rows, double tolerance,
                                 const std::string& what) {
  EXPECT_LE(error_overall(rows), tolerance) << what;
  expect_same_bits(rows, what);
}

void Verbs::expect_same_bits(const std::vector<Rows>& rows, const std::string& what) {
  const std::vector<float> first = read(rows, 1);
  for (size_t i = 2; i < size(); ++i) {
    const std::vector<float> other = read(rows, i);
    size_t differ = 0;
    for (size_t k = 0; k < first.size(); ++k)
      differ += std::bit_cast<uint32_t>(first[k]) != std::bit_cast<uint32_t>(other[k]);
    EXPECT_EQ(differ, 0u) << what << ": " << backends_[1]->description() << " and "
                          << backends_[i]->description() << " differ in " << differ << " of "
                          << first.size();
  }
}

void Verbs::expect_close(const std::vector<Rows>& rows, double tolerance, const std::string& what) {
  EXPECT_LE(error(rows), tolerance) << what;
  expect_same_bits(rows, what);
}

std::vector<Moe> random_moe(Verbs& v, Format routed, Format shared, double routed_limit,
                            double shared_limit) {
  const ModelShape& s = v.shape();
  std::vector<Moe> moe(v.size());
  const auto set = [&](auto&& field, const Verbs::Weights& w) {
    for (size_t i = 0; i < v.size(); ++i) field(moe[i]) = w[i];
  };
  set([](Moe& m) -> Weight& { return m.router; }, v.weight(s.experts, s.hidden, Format::kBf16));
  set([](Moe& m) -> Weight& { return m.bias; },
      v.vector(s.experts, [&](int64_t, int64_t) { return 0.1 * v.normal() - 0.2; }));
  for (Moe& m : moe) {
    m.experts.resize(static_cast<size_t>(s.experts));
    m.routed_limit = routed_limit;
    m.shared_limit = shared_limit;
  }
  const auto ffn = [&](auto&& field, int64_t width, Format format) {
    set([&](Moe& m) -> Weight& { return field(m).gate; }, v.weight(width, s.hidden, format, 0.2));
    set([&](Moe& m) -> Weight& { return field(m).up; }, v.weight(width, s.hidden, format, 0.2));
    set([&](Moe& m) -> Weight& { return field(m).down; }, v.weight(s.hidden, width, format, 0.2));
  };
  v.uploading_experts(true);
  for (size_t e = 0; e < static_cast<size_t>(s.experts); ++e)
    ffn([e](Moe& m) -> Ffn& { return m.experts[e]; }, s.expert_dim, routed);
  ffn([](Moe& m) -> Ffn& { return m.shared; }, s.shared_dim, shared);
  v.uploading_experts(false);
  return moe;
}

double relative_error(const std::vector<float>& got, const std::vector<float>& truth) {
  double difference = 0, norm = 0;
  for (size_t k = 0; k < got.size(); ++k) {
    difference += std::pow(static_cast<double>(got[k]) - static_cast<double>(truth[k]), 2);
    norm += std::pow(static_cast<double>(truth[k]), 2);
  }
  return std::sqrt(difference / norm);
}

}  // namespace spk::test
