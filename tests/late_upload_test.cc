// Weights that go to a device at the end of loading: read around the page cache, cut and joined
// into readings, checked as they come by, and in the end the same bytes as by any other way.
#include "backend/cuda/upload_plan.h"
#include "base/direct_file.h"
#include "base/error.h"
#include "engine/session.h"
#include "model/synthetic.h"
#include "support/checkpoint_writer.h"
#include "support/emulated_device.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace spk {
namespace {

using test::Release;
using test::TempFolder;
using test::WrittenCheckpoint;

testing::AssertionResult holds(const std::string& text, std::string_view part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << text;
}

struct AlignedBuffer {
  explicit AlignedBuffer(size_t bytes)
      : memory(DirectFile::room(bytes) + DirectFile::kAlign, std::byte{0x5a}) {
    const size_t past = reinterpret_cast<uintptr_t>(memory.data()) % DirectFile::kAlign;
    start = memory.data() + (DirectFile::kAlign - past);
  }
  std::vector<std::byte> memory;
  std::byte* start;
};

TEST(DirectFile, ReadsAnyRange) {
  const TempFolder folder;
  std::string bytes(70'001, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 + i / 256);
  test::write_file(folder.file("f"), bytes);
  const DirectFile file(folder.file("f"));
  for (const size_t offset : {size_t{0}, size_t{1}, size_t{4095}, size_t{4096}, size_t{65'000}}) {
    for (const size_t count : {size_t{1}, size_t{4096}, size_t{5001}, bytes.size() - offset}) {
      if (offset + count > bytes.size()) continue;
      AlignedBuffer buffer(count);
      const std::byte* found = file.read(offset, count, buffer.start);
      EXPECT_EQ(std::memcmp(found, bytes.data() + offset, count), 0) << offset << ", " << count;
    }
  }
}

TEST(DirectFile, SaysWhatIsMissing) {
  const TempFolder folder;
  EXPECT_THROW(DirectFile(folder.file("none")), Error);
  test::write_file(folder.file("f"), std::string(10'000, 'x'));
  const DirectFile file(folder.file("f"));
  ASSERT_EQ(::truncate(folder.file("f").c_str(), 6'000), 0);
  AlignedBuffer buffer(10'000);
  try {
    file.read(5'000, 4'000, buffer.start);
    FAIL();
  } catch (const Error& error) {
    EXPECT_TRUE(holds(std::string(error.what()), "expected 4000 bytes at 5000"));
    EXPECT_TRUE(holds(std::string(error.what()), "end of the file at 6000"));
  }
}

// Files as stretches of one memory.
class Stretches : public UploadSource {
 public:
  explicit Stretches(std::vector<std::span<const std::byte>> files) : files_(std::move(files)) {}
  std::span<const std::byte> file_of(const std::byte* data) const override {
    for (const auto& file : files_)
      if (data >= file.data() && data < file.data() + file.size()) return file;
    return {};
  }
  const std::byte* read(const std::byte* data, size_t, std::byte*) override { return data; }
  void arrived(const StoredBytes&, const std::byte*) override {}

 private:
  std::vector<std::span<const std::byte>> files_;
};

cuda::LateUpload upload_of(const std::byte* data, size_t bytes, size_t width, size_t pitch) {
  return {{"t", Format::kF32, ScaleType::kNone, data, bytes}, 1 << 20, width, pitch};
}

TEST(PlanReadings, NeighboursInOneFileAreReadAtOnce) {
  const std::vector<std::byte> memory(1 << 20);
  const std::byte* m = memory.data();
  // Two files side by side in memory, as maps may lie.
  const Stretches source({{m, 500'000}, {m + 500'000, 500'000}});
  const std::vector<cuda::LateUpload> uploads = {
      upload_of(m + 400'000, 1'000, 1'000, 1'000), upload_of(m + 1'000, 3'000, 3'000, 3'000),
      upload_of(m + 4'100, 5'000, 5'000, 5'000),     // 100 bytes on: together with the one before
      upload_of(m + 499'000, 1'000, 1'000, 1'000),   // ends with its file
      upload_of(m + 500'000, 2'000, 2'000, 2'000)};  // the other file's
  const auto readings = cuda::plan_readings(uploads, source, 64 << 10);
  ASSERT_EQ(readings.size(), 4u);
  EXPECT_EQ(readings[0].data, m + 1'000);
  EXPECT_EQ(readings[0].bytes, 8'100u);
  EXPECT_EQ(readings[0].slices.size(), 2u);
  EXPECT_EQ(readings[1].data, m + 400'000);
  EXPECT_EQ(readings[2].bytes, 1'000u);
  EXPECT_EQ(readings[3].data, m + 500'000);
}

TEST(PlanReadings, LargeTensorsAreCutAndPaddedRowsStayWhole) {
  const std::vector<std::byte> memory(1 << 20);
  const Stretches source({memory});
  const size_t most = 10'000;
  const std::vector<cuda::LateUpload> uploads = {
      upload_of(memory.data() + 7, 40'004, 40'004, 40'004),
      upload_of(memory.data() + 100'000, 3'000 * 9, 3'000, 3'008)};
  std::vector<size_t> covered(2);
  for (const cuda::Reading& reading : cuda::plan_readings(uploads, source, most)) {
    EXPECT_LE(reading.bytes, most);
    for (const cuda::Slice& slice : reading.slices) {
      const cuda::LateUpload& u = uploads[slice.upload];
      EXPECT_EQ(slice.offset, covered[slice.upload]);  // in order, without gaps
      covered[slice.upload] += slice.bytes;
      EXPECT_EQ(slice.offset % 8, 0u);  // no element is cut
      const cuda::CopyShape shape = cuda::shape_of(u, slice);
      EXPECT_EQ(shape.width * shape.height, slice.bytes);
      if (slice.upload == 0) continue;
      EXPECT_EQ(slice.bytes % 3'000, 0u);
      EXPECT_EQ(cuda::target_of(u, slice), u.to + slice.offset / 3'000 * 3'008);
    }
  }
  EXPECT_EQ(covered, (std::vector<size_t>{40'004, 27'000}));
}

// A head that is made from the stored one hides what was no number there: MXFP4 has no NaN.
TEST(LateUploads, AHeadIsCheckedBeforeItIsMadeAnew) {
  for (const HeadFormat format : {HeadFormat::kMxfp4, HeadFormat::kFp8, HeadFormat::kStored}) {
    WrittenCheckpoint w(test::small_config(), Release::kBf16, 1);
    w.at("lm_head.weight").bytes.replace(64, 2, "\x80\x7f");  // BF16 infinity
    const auto source = w.open();
    const auto backend = test::make_emulated_backend();
    backend->prepare(w.parsed().shape);
    const TensorSet tensors = bind_tensors(w.parsed(), *source, CheckScales::kLater);
    LoadProgress progress;
    try {
      load_model(w.parsed(), tensors, *backend, {format, {}, 1}, &progress);
      ADD_FAILURE() << static_cast<int>(format);
    } catch (const Error& error) {
      EXPECT_TRUE(holds(error.what(), "lm_head.weight: expected numbers, found NaN or infinity"));
    }
  }
}

TEST(LateUploads, ProgressEndsAtTheStoredBytesWhateverTheHeadBecomes) {
  const ModelConfig config = parse_config(test::small_config(), "config.json");
  const auto source = make_synthetic(config, 5, 1);
  const TensorSet tensors = bind_tensors(config, *source, CheckScales::kLater);
  const std::vector<int32_t> rows = {3, 1, 2};
  const auto backend = test::make_emulated_backend();
  backend->prepare(config.shape);
  LoadProgress progress;
  load_model(config, tensors, *backend, {HeadFormat::kFp8, rows, 1}, &progress);
  EXPECT_EQ(progress.done, model_sizes(config, tensors).weight_bytes);
}

// Logits of a short prompt, which every weight of the model (the draft layer apart) has touched.
std::vector<float> logits_from(const TensorSource& source, const ModelConfig& config,
                               LoadProgress* progress = nullptr) {
  const auto backend = test::make_emulated_backend();
  backend->prepare(config.shape);
  const TensorSet tensors = bind_tensors(config, source, CheckScales::kLater);
  Model model = load_model(config, tensors, *backend, {}, progress);
  if (progress != nullptr) {
    EXPECT_EQ(progress->done, model_sizes(config, tensors).weight_bytes);
  }
  model.plan = backend->plan();
  Session session(model, *backend, 32, 16, false);
  const std::vector<int32_t> prompt = {5, 1, 7, 2};
  session.sync(prompt, [] { return true; });
  const auto logits = session.logits();
  return {logits.begin(), logits.end()};
}

TEST(LateUploads, FromDiskAndFromMemoryAreTheSame) {
  for (const Release release : test::kReleases) {
    WrittenCheckpoint w(test::small_config(), release, 3);
    LoadProgress progress;
    const auto memory = w.open();
    const std::vector<float> expected = logits_from(*memory, w.parsed(), &progress);
    for (const int shards : {0, 3}) {
      const TempFolder folder;
      w.write(folder.path(), shards);
      EXPECT_EQ(logits_from(*Checkpoint::open(folder.path()), w.parsed()), expected)
          << static_cast<int>(release) << ", " << shards << " shards";
    }
  }
}

TEST(LateUploads, SyntheticExpertsAreMadeWhereTheyAreRead) {
  const ModelConfig config = parse_config(test::small_config(), "config.json");
  const auto now = make_synthetic(config, 5, 1);
  const auto later = make_synthetic(config, 5, 1, MakeExperts::kWhenRead);
  EXPECT_EQ(logits_from(*later, config), logits_from(*now, config));
  // What samples them on the way to a back end sees them too.
  const TensorSet sampled =
      bind_tensors(config, *make_synthetic(config, 5, 1, MakeExperts::kWhenRead));
  EXPECT_TRUE(sampled.notes.empty()) << sampled.notes.front();
  // On a back end that reads memory they are recalled.
  const auto backend = make_reference_backend({});
  backend->prepare(config.shape);
  const TensorSet tensors = bind_tensors(config, *later);
  const Model model = load_model(config, tensors, *backend);
  later->for_each([&](const TensorBytes& t) {
    const auto twin = now->find(t.info->name);
    ASSERT_TRUE(twin);
    EXPECT_EQ(std::memcmp(t.data, twin->data, t.info->bytes), 0) << t.info->name;
  });
}

TEST(LateUploads, CodesAndScalesThatAreNoNumbersAreNamed) {
  const std::string expert = "model.layers.1.mlp.experts.1.gate_proj.weight";
  WrittenCheckpoint w(test::small_config(), Release::kFp4, 1);
  const std::string linear = "model.layers.0.attention.q_proj.weight";
  w.at(linear).bytes[5000] = '\xff';                          // FP8 NaN
  w.at("model.norm.weight").bytes.replace(4, 2, "\x80\x7f");  // BF16 infinity, read at once
  w.at(expert + "_scale_inv").bytes[3] = '\xff';              // E8M0 NaN
  const auto source = w.open();
  try {
    logits_from(*source, w.parsed());
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_TRUE(holds(text, "3 problems"));
    EXPECT_TRUE(
        holds(text, linear + ": expected numbers, found NaN or infinity among the FP8 codes"));
    EXPECT_TRUE(holds(text, "model.norm.weight"));
    EXPECT_TRUE(holds(text, expert + ": expected numbers, found NaN or infinity in its scales"));
  }
}

}  // namespace
}  // namespace spk
