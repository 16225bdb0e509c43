// One verb on many back ends: the reference first, then one family: the cpu back end with every
// instruction set that this processor has, or the cuda back end on emulated devices that run
// threads and blocks in opposite orders (emulated_device.h). All get the same inputs;
// expect_close() wants the family's results near the reference, and equal bit for bit among
// themselves.
#pragma once

#include "backend/backend.h"
#include "support/emulated_device.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace spk::test {

// What int8 activations may cost: packed_verbs_test.cc derives it.
inline constexpr double kInt8 = 3.6e-2;

// A small member of the family with odd sizes; the tests change what they are about.
ModelShape small_shape();
// The same with experts of these sizes.
ModelShape expert_shape(int64_t hidden, int64_t width, int64_t shared);

enum class Family { kCpu, kCuda };
inline std::string name_of_family(const testing::TestParamInfo<Family>& family) {
  return family.param == Family::kCpu ? "cpu" : "cuda";
}

class Verbs {
 public:
  using Weights = std::vector<Weight>;  // one a back end, as Rows and Ints below
  using Values = std::function<double(int64_t row, int64_t col)>;

  explicit Verbs(const ModelShape& shape, int threads = 2, MoeKernel moe = MoeKernel::kPlain,
                 PrecisionMode precision = PrecisionMode::kExact);
  // `multiprocessors`: of emulated devices.
  Verbs(const ModelShape& shape, Family family, MoeKernel moe = MoeKernel::kPlain,
        int multiprocessors = 1, Resident resident = Resident::kOn);

  size_t size() const { return backends_.size(); }
  Backend& backend(size_t i) { return *backends_[i]; }
  const ModelShape& shape() const { return shape_; }

  // A random matrix in a format, elements of about `size` (FP8 scales differ by block, MXFP4 ones
  // by group).
  Weights weight(int64_t rows, int64_t cols, Format format, double size = 0.05);
  Weights vector(int64_t cols, const Values& values);
  Weights matrix(int64_t rows, int64_t cols, const Values& values);  // F32
  // Any stored tensor; its bytes are kept.
  Weights upload(Format format, ScaleType type, int64_t rows, int64_t cols,
                 const std::vector<uint8_t>& codes, const std::vector<uint8_t>& scales);
  // The following weights go to upload_expert instead of upload.
  void uploading_experts(bool yes) { experts_ = yes; }
  // The following weights have this name: convolution taps are known by theirs (backend/taps.h).
  void uploading(std::string_view name) { name_ = name; }

  // Rounded to float. `gap`: numbers between the rows, which must not matter; rows that are read by
  // loads of 16 bytes (a cache's) keep to whole ones.
  std::vector<Rows> rows(int64_t count, int64_t cols, const Values& values, int64_t gap = 5);
  std::vector<Rows> random(int64_t count, int64_t cols, double size = 1.0);
  std::vector<Ints> ints(const std::vector<int32_t>& values, int64_t cols);

  void begin(StepKind kind, int64_t rows, int64_t first_position);
  template <typename F>
  void each(F&& verb) {
    for (size_t i = 0; i < backends_.size(); ++i) verb(*backends_[i], i);
  }

  // Largest ||x - reference|| / ||reference|| over the rows (absolute where the reference row is
  // zero).
  double error(const std::vector<Rows>& rows);
  // Largest ||x - reference|| of a row over the root mean square of the rows' norms.
  double error_overall(const std::vector<Rows>& rows);
  void expect_close(const std::vector<Rows>& rows, double tolerance, const std::string& what);
  void expect_close_overall(const std::vector<Rows>& rows, double tolerance,
                            const std::string& what);
  void expect_same_bits(const std::vector<Rows>& rows, const std::string& what);
  std::vector<float> read(const std::vector<Rows>& rows, size_t backend);

  double normal() { return normal_(random_); }
  std::mt19937_64& generator() { return random_; }

 private:
  void open(std::vector<std::unique_ptr<Backend>> tested);
  std::vector<std::pair<double, double>> row_norms(const std::vector<Rows>& rows);

  ModelShape shape_;
  std::string_view name_ = "test";
  std::vector<std::unique_ptr<Backend>> backends_;
  std::deque<std::vector<uint8_t>> memory_;
  bool experts_ = false;
  std::mt19937_64 random_{20261129};
  std::normal_distribution<double> normal_;
};

// One layer's router, experts and shared expert, a copy for each back end. The limits are the
// SwiGLU clamps; the shared expert is left out when shared_dim is 0.
std::vector<Moe> random_moe(Verbs& v, Format routed, Format shared, double routed_limit,
                            double shared_limit);

// The instruction sets that this processor runs, by name.
std::vector<std::string> available_isas();

// |got - truth| / |truth|
double relative_error(const std::vector<float>& got, const std::vector<float>& truth);

// Tests that run for each family: TEST_P, with Verbs v(shape, GetParam()).
class EachFamily : public testing::TestWithParam<Family> {
 protected:
  static bool on_cpu() { return GetParam() == Family::kCpu; }
  static bool emulated() { return !on_cpu() && !std::getenv("SPARKLING_TEST_GPU"); }
  static bool brief() { return !on_cpu() && emulates_briefly(); }
};

}  // namespace spk::test

// Instantiates a suite of EachFamily.
#define SPK_EACH_FAMILY(suite)                                                                 \
  class suite : public spk::test::EachFamily {};                                               \
  INSTANTIATE_TEST_SUITE_P(Each, suite,                                                        \
                           testing::Values(spk::test::Family::kCpu, spk::test::Family::kCuda), \
                           spk::test::name_of_family)
