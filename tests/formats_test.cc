// Files, block formats, safetensors headers and checkpoint folders.
#include "base/error.h"
#include "base/file.h"
#include "base/types.h"
#include "formats/checkpoint.h"
#include "formats/quant.h"
#include "formats/safetensors.h"
#include "formats/untrusted.h"
#include "support/checkpoint_writer.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace spk {
namespace {

using test::safetensors_file;
using test::TempFolder;
using test::write_file;
using test::WrittenTensor;

template <typename Function>
std::string error_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "no error";
}
bool holds(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}
#define EXPECT_HOLDS(text, part) EXPECT_TRUE(holds(text, part)) << (text)

// ---- files ----

TEST(File, PublishReplacesWhole) {
  const TempFolder folder;
  const std::string path = folder.file("a");
  publish_file(path, "one");
  const MappedFile old(path);
  publish_file(path, std::string(100000, 'x'));
  EXPECT_EQ(old.bytes(), "one");  // the old file lives on behind its map
  EXPECT_EQ(read_small_file(path, 100000).size(), 100000u);
  EXPECT_EQ(list_folder(folder.path()), std::vector<std::string>{"a"});
}

TEST(File, ErrorsNameFileAndReason) {
  const TempFolder folder;
  const std::string gone = folder.file("gone");
  EXPECT_HOLDS(error_of([&] { MappedFile map(gone); }), gone);
  EXPECT_HOLDS(error_of([&] { MappedFile map(gone); }), "No such file");
  write_file(folder.file("big"), "12345");
  EXPECT_HOLDS(error_of([&] { read_small_file(folder.file("big"), 4); }), "at most 4");
  EXPECT_HOLDS(error_of([&] { MappedFile map(folder.path()); }), "regular file");
  // A pipe without a writer must not hang the program.
  ASSERT_EQ(::mkfifo(folder.file("pipe").c_str(), 0600), 0);
  EXPECT_HOLDS(error_of([&] { MappedFile map(folder.file("pipe")); }), "regular file");
  EXPECT_THROW(publish_file(folder.file("no/such"), "x"), Error);
}

TEST(File, DroppedPagesComeBack) {
  const TempFolder folder;
  std::string bytes(1 << 20, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 13);
  write_file(folder.file("a"), bytes);
  const MappedFile map(folder.file("a"));
  const auto* data = reinterpret_cast<const std::byte*>(map.bytes().data());
  map.read_ahead(0, bytes.size());
  map.drop(data + 5000, 600000);
  map.drop(data, bytes.size());
  map.drop(data + bytes.size() - 1, 1);
  EXPECT_EQ(map.bytes(), bytes);
  write_file(folder.file("empty"), "");
  EXPECT_EQ(MappedFile(folder.file("empty")).bytes().size(), 0u);
}

// ---- block formats ----

TEST(Quant, Fp8PartialBlocks) {
  const int64_t rows = 130;
  const int64_t cols = 140;
  std::vector<uint8_t> codes(static_cast<size_t>(rows * cols), 0x38);  // 1.0
  const std::vector<float> scales = {1.f, 2.f, 4.f, 8.f};
  HostTensor t;
  t.format = Format::kFp8;
  t.scale_type = ScaleType::kF32;
  t.rows = rows;
  t.cols = cols;
  t.data = reinterpret_cast<const std::byte*>(codes.data());
  t.scales = reinterpret_cast<const std::byte*>(scales.data());
  ASSERT_EQ(scale_count(t.format, rows, cols), 4);
  std::vector<float> row(static_cast<size_t>(cols));
  dequantise_row(t, 127, row.data());
  EXPECT_EQ(row[127], 1.f);
  EXPECT_EQ(row[128], 2.f);
  dequantise_row(t, 128, row.data());
  EXPECT_EQ(row[0], 4.f);
  EXPECT_EQ(row[139], 8.f);
}

TEST(Quant, Mxfp4LowNibbleFirstAndExponentScale) {
  std::vector<uint8_t> codes(16, 0);
  codes[0] = 0xf2;                                // 1.0 low, -6.0 high
  codes[15] = 0x1a;                               // -1.0 low, 0.5 high
  const std::vector<uint8_t> scales = {127 + 3};  // 8
  HostTensor t;
  t.format = Format::kMxfp4;
  t.scale_type = ScaleType::kE8m0;
  t.rows = 1;
  t.cols = 32;
  t.data = reinterpret_cast<const std::byte*>(codes.data());
  t.scales = reinterpret_cast<const std::byte*>(scales.data());
  std::vector<double> row(32);
  dequantise_row(t, 0, row.data());
  EXPECT_EQ(row[0], 8.0);
  EXPECT_EQ(row[1], -48.0);
  EXPECT_EQ(row[30], -8.0);
  EXPECT_EQ(row[31], 4.0);
}

TEST(Quant, Int4LowestNibbleFirst) {
  std::vector<uint32_t> words(4, 0x88888888u);  // zeros
  words[0] = 0x8888888fu;                       // element 0: 15 - 8 = 7
  words[3] = 0x08888888u;                       // element 31: -8
  const std::vector<uint16_t> scales = {float_to_bf16(.5f)};
  HostTensor t;
  t.format = Format::kInt4;
  t.scale_type = ScaleType::kBf16;
  t.rows = 1;
  t.cols = 32;
  t.data = reinterpret_cast<const std::byte*>(words.data());
  t.scales = reinterpret_cast<const std::byte*>(scales.data());
  std::vector<float> row(32);
  dequantise_row(t, 0, row.data());
  EXPECT_EQ(row[0], 3.5f);
  EXPECT_EQ(row[1], 0.f);
  EXPECT_EQ(row[31], -4.f);
}

TEST(Quant, CodesSurviveTheirOwnRounding) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;
    EXPECT_EQ(float_to_e4m3(e4m3_to_float(static_cast<uint8_t>(code))), code);
  }
  for (int code = 0; code < 16; ++code) EXPECT_EQ(float_to_e2m1(kE2m1[code]), code);
  EXPECT_EQ(float_to_e4m3(1e9f), 0x7e);
  EXPECT_EQ(float_to_e4m3(std::numeric_limits<float>::quiet_NaN()), 0x7f);
}

std::vector<float> random_matrix(int64_t count, uint32_t seed, int spread) {
  std::mt19937 engine(seed);
  std::vector<float> x(static_cast<size_t>(count));
  for (float& v : x) {
    const double u = static_cast<double>(engine()) * 0x1p-31 - 1.0;
    const int exponent =
        static_cast<int>(engine() % static_cast<uint32_t>(2 * spread + 1)) - spread;
    v = static_cast<float>(std::ldexp(u, exponent));
  }
  return x;
}

TEST(Quant, RoundTripFp8) {
  rc::check([] {
    const int64_t rows = *rc::gen::inRange<int64_t>(1, 140);
    const int64_t cols = *rc::gen::inRange<int64_t>(1, 300);
    const bool pow2 = *rc::gen::arbitrary<bool>();
    const std::vector<float> x =
        random_matrix(rows * cols, *rc::gen::arbitrary<uint32_t>(), *rc::gen::inRange(0, 20));
    std::vector<uint8_t> codes(x.size());
    std::vector<float> scales(static_cast<size_t>(scale_count(Format::kFp8, rows, cols)));
    quantise_fp8(x.data(), rows, cols, pow2, codes.data(), scales.data());
    HostTensor t;
    t.format = Format::kFp8;
    t.scale_type = ScaleType::kF32;
    t.rows = rows;
    t.cols = cols;
    t.data = reinterpret_cast<const std::byte*>(codes.data());
    t.scales = reinterpret_cast<const std::byte*>(scales.data());
    std::vector<float> y(static_cast<size_t>(cols));
    std::vector<double> z(static_cast<size_t>(cols));
    const int64_t blocks = ceil_div(cols, kFp8Block);
    for (int64_t r = 0; r < rows; ++r) {
      dequantise_row(t, r, y.data());
      dequantise_row(t, r, z.data());
      for (int64_t c = 0; c < cols; ++c) {
        const auto i = static_cast<size_t>(c);
        const double v = static_cast<double>(x[static_cast<size_t>(r * cols + c)]);
        const double scale = static_cast<double>(
            scales[static_cast<size_t>(r / kFp8Block * blocks + c / kFp8Block)]);
        // Half a step: 2^-4 relative among normal codes, 2^-10 of the scale among subnormal ones.
        // The last digits are for the division x / scale, which is rounded to float.
        RC_ASSERT(std::fabs(z[i] - v) <= 1.00001 * std::max(std::fabs(v) / 16, scale * 0x1p-10));
        RC_ASSERT(y[i] == static_cast<float>(z[i]));
        if (pow2) RC_ASSERT(std::exp2(std::round(std::log2(scale))) == scale);
      }
    }
  });
}

TEST(Quant, RoundTripMxfp4) {
  rc::check([] {
    const int64_t rows = *rc::gen::inRange<int64_t>(1, 6);
    const int64_t cols = 32 * *rc::gen::inRange<int64_t>(1, 5);
    const std::vector<float> x =
        random_matrix(rows * cols, *rc::gen::arbitrary<uint32_t>(), *rc::gen::inRange(0, 60));
    std::vector<uint8_t> codes(x.size() / 2);
    std::vector<uint8_t> scales(x.size() / 32);
    quantise_mxfp4(x.data(), rows, cols, codes.data(), scales.data());
    HostTensor t;
    t.format = Format::kMxfp4;
    t.scale_type = ScaleType::kE8m0;
    t.rows = rows;
    t.cols = cols;
    t.data = reinterpret_cast<const std::byte*>(codes.data());
    t.scales = reinterpret_cast<const std::byte*>(scales.data());
    std::vector<double> y(x.size());
    for (int64_t r = 0; r < rows; ++r) dequantise_row(t, r, y.data() + r * cols);
    for (size_t i = 0; i < x.size(); ++i) {
      const double v = static_cast<double>(x[i]);
      const double scale = static_cast<double>(e8m0_to_float(scales[i / 32]));
      // Steps of the code are 0.5, 1 and 2 (times the scale); between 6 and 8 the code saturates.
      RC_ASSERT(std::fabs(y[i] - v) <= std::max(std::fabs(v) / 4, scale / 4));
    }
    // Quantising what was quantised changes nothing, as long as the group's largest kept its
    // binade.
    std::vector<float> again(y.begin(), y.end());
    std::vector<uint8_t> codes2(codes.size());
    std::vector<uint8_t> scales2(scales.size());
    quantise_mxfp4(again.data(), rows, cols, codes2.data(), scales2.data());
    std::vector<double> z(x.size());
    t.data = reinterpret_cast<const std::byte*>(codes2.data());
    t.scales = reinterpret_cast<const std::byte*>(scales2.data());
    for (int64_t r = 0; r < rows; ++r) dequantise_row(t, r, z.data() + r * cols);
    RC_ASSERT(z == y);
  });
}

TEST(Quant, ExtremesStayFinite) {
  const std::vector<float> x(32, std::numeric_limits<float>::denorm_min());
  std::vector<uint8_t> codes(32);
  float scale = 0;
  for (const bool pow2 : {false, true}) {
    quantise_fp8(x.data(), 1, 32, pow2, codes.data(), &scale);
    EXPECT_TRUE(std::isfinite(scale) && scale > 0);
    EXPECT_NE(codes[0] & 0x7f, 0x7f);
  }
  std::vector<uint8_t> packed(16);
  uint8_t code = 0;
  const std::vector<float> zeros(32, 0.f);
  quantise_mxfp4(zeros.data(), 1, 32, packed.data(), &code);
  EXPECT_EQ(code, 0);
  const std::vector<float> large(32, std::numeric_limits<float>::max());
  quantise_mxfp4(large.data(), 1, 32, packed.data(), &code);
  EXPECT_EQ(code, 127 + 125);
}

// ---- safetensors headers ----

std::string file_of(const std::string& header, size_t data_bytes) {
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> (8 * i));
  return file + header + std::string(data_bytes, '\1');
}
std::vector<StoredTensor> parse(const std::string& file) {
  return parse_safetensors_header(file, file.size(), "f.safetensors");
}
std::string refusal(const std::string& header, size_t data_bytes) {
  return error_of([&] { parse(file_of(header, data_bytes)); });
}

TEST(Safetensors, OrderOfOffsetsAndKinds) {
  const auto tensors = parse(file_of(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,1],"data_offsets":[6,14]},)"
      R"("a":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]},)"
      R"("s":{"dtype":"I64","shape":[],"data_offsets":[14,22]},)"
      R"("z":{"dtype":"U8","shape":[0],"data_offsets":[6,6]}}   )",
      22));
  ASSERT_EQ(tensors.size(), 4u);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].type, StoredType::kBf16);
  EXPECT_EQ(tensors[1].name, "z");
  EXPECT_EQ(tensors[2].shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(tensors[3].bytes, 8u);
  EXPECT_EQ(parse(file_of("{}", 0)).size(), 0u);
}

TEST(Safetensors, OffsetsMustAgree) {
  const auto one = [](const std::string& offsets, const std::string& shape = "[4]") {
    return R"({"w":{"dtype":"U8","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  EXPECT_HOLDS(refusal(one("[4,0]"), 4), "w: data_offsets are reversed");
  EXPECT_HOLDS(refusal(one("[0,3]"), 3), "w: expected 4 bytes");
  EXPECT_HOLDS(refusal(one("[0,5]"), 5), "found 5");
  EXPECT_HOLDS(refusal(one("[1,5]"), 5), "a hole of 1 bytes");
  EXPECT_HOLDS(refusal(one("[0,4]"), 3), "outside the file");
  // Offsets whose sum with the header's length wraps around to a place inside the file.
  EXPECT_HOLDS(refusal(one("[18446744073709551608,18446744073709551612]"), 64), "outside");
  EXPECT_HOLDS(refusal(one("[18446744073709551615,3]"), 64), "reversed");
  EXPECT_HOLDS(refusal(one("[0,4]", "[4611686018427387904,4]"), 4), "overflows");
  EXPECT_HOLDS(refusal(one("[0,4]", "[18446744073709551615]"), 4), "overflows");
  EXPECT_HOLDS(refusal(one("[0,4,8]"), 8), "two data_offsets");
  EXPECT_HOLDS(refusal(one("[0]"), 4), "two data_offsets");
  const std::string overlap = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                              R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})";
  EXPECT_HOLDS(refusal(overlap, 6), "b: overlaps");
}

TEST(Safetensors, TrailingBytesAreRefused) {
  const std::string header = R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  EXPECT_EQ(parse(file_of(header, 4)).size(), 1u);
  EXPECT_HOLDS(refusal(header, 5), "1 bytes after the last tensor");
  EXPECT_HOLDS(refusal(header, 4 + 4096), "4096 bytes after the last tensor");
  // The same bytes by the other path, from memory.
  const std::string file = file_of(header, 5);
  const std::string text = error_of([&] {
    Checkpoint::from_memory("m", {{"model.safetensors", file}});
  });
  EXPECT_HOLDS(text, "1 bytes after the last tensor");
}

TEST(Safetensors, ShortFilesAreRefused) {
  const std::string good =
      file_of(R"({"w":{"dtype":"U8","shape":[9000],"data_offsets":[0,9000]}})", 9000);
  for (const size_t cut : {size_t{1}, size_t{4096}, good.size() - 20, good.size() - 3}) {
    const std::string text = error_of([&] { parse(good.substr(0, good.size() - cut)); });
    EXPECT_HOLDS(text, "f.safetensors");
    EXPECT_HOLDS(text, "found");
  }
}

TEST(Safetensors, LengthAndJson) {
  std::string huge = file_of("{}", 0);
  huge[7] = '\x7f';
  EXPECT_HOLDS(error_of([&] { parse(huge); }), "at most 100000000");
  EXPECT_HOLDS(error_of([&] { parse("abc"); }), "at least 8 bytes");
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n";
  EXPECT_HOLDS(error_of([&] { parse(pointer); }), "`git lfs pull`");
  EXPECT_HOLDS(refusal("", 0), "does not begin");
  EXPECT_HOLDS(refusal("[]", 0), "does not begin");
  EXPECT_HOLDS(refusal("{", 0), "not valid JSON");
  EXPECT_HOLDS(refusal("{} x", 0), "not valid JSON");
  EXPECT_HOLDS(refusal("{\"\xff\":{}}", 0), "not valid JSON");
  EXPECT_HOLDS(refusal(R"({"a":1})", 0), "unexpected value");
  EXPECT_HOLDS(refusal(R"({"a":[]})", 0), "unexpected array");
  EXPECT_HOLDS(refusal(R"({"a":{"dtype":{}}})", 0), "unexpected object");
  EXPECT_HOLDS(refusal(R"({"__metadata__":{"a":{}}})", 0), "unexpected object");
  EXPECT_HOLDS(refusal(R"({"a":{"shape":[[1]]}})", 0), "unexpected array");
  EXPECT_HOLDS(refusal(R"({"a":{"shape":[-1]}})", 0), "negative");
  EXPECT_HOLDS(refusal(R"({"a":{"shape":[1.5]}})", 0), "fraction");
  EXPECT_HOLDS(refusal(R"({"a":{"shape":[1e3]}})", 0), "fraction");
  EXPECT_HOLDS(refusal(R"({"a":{"shape":[99999999999999999999]}})", 0), "fraction");
  EXPECT_HOLDS(refusal(R"({"a":{"shape":[1,1,1,1,1,1,1,1,1]}})", 0), "8 dimensions");
  EXPECT_HOLDS(refusal(R"({"a":{"shape":[],"shape":[]}})", 0), "twice");
  EXPECT_HOLDS(refusal(R"({"a":{"color":"red"}})", 0), "unknown key");
  EXPECT_HOLDS(refusal(R"({"a":{"dtype":"F32"}})", 0), "found less");
  EXPECT_HOLDS(refusal(R"({"a":{"dtype":"F7","shape":[],"data_offsets":[0,0]}})", 0), "'F7'");
  const std::string a = R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_HOLDS(refusal("{" + a + "," + a + "}", 0), "a: named twice");
  // Deep nesting must neither overflow the stack nor build a tree.
  EXPECT_HOLDS(refusal("{\"a\":" + std::string(3000000, '['), 0), "unexpected array");
  EXPECT_HOLDS(refusal("{\"a\":{\"dtype\":" + std::string(3000000, '['), 0), "unexpected array");
}

TEST(Safetensors, AllComplaintsInOneBoundedMessage) {
  std::string header = "{";
  for (int i = 0; i < 50; ++i)
    header += cat(i ? "," : "", "\"t", i, R"(":{"dtype":"U8","shape":[2],"data_offsets":[0,1]})");
  const std::string text = refusal(header + "}", 1);
  EXPECT_HOLDS(text, "50 problems");
  EXPECT_HOLDS(text, "t0: ");
  EXPECT_HOLDS(text, "t19: ");
  EXPECT_HOLDS(text, "30 more");
  // Control characters of a hostile name do not reach the terminal.
  EXPECT_HOLDS(
      refusal("{\"\\u001b[2J\":{\"dtype\":\"F7\",\"shape\":[],\"data_offsets\":[0,0]}}", 0),
      "\\x1b[2J");
}

// ---- checkpoint folders ----

WrittenTensor bytes_tensor(const std::string& name, size_t n) {
  return {name, "U8", {static_cast<int64_t>(n)}, std::string(n, 'w')};
}

// Two shards and an index, to be broken in many ways.
class Shards : public testing::Test {
 protected:
  void SetUp() override {
    write_file(folder_.file("config.json"), "{}");
    write_file(folder_.file(kOne),
               safetensors_file({bytes_tensor("a", 3), bytes_tensor("b", 5000)}));
    write_file(folder_.file(kTwo), safetensors_file({bytes_tensor("c", 7)}));
    index(R"("a":"one.safetensors","b":"one.safetensors","c":"two.safetensors")");
  }
  void index(const std::string& map) {
    write_file(folder_.file(kIndex),
               "{\"metadata\":{\"total_size\":1},\"weight_map\":{" + map + "}}");
  }
  std::string open() {
    return error_of([&] { Checkpoint::open(folder_.path()); });
  }
  void remove(const char* file) { std::filesystem::remove(folder_.file(file)); }

  static constexpr const char* kOne = "one.safetensors";
  static constexpr const char* kTwo = "two.safetensors";
  static constexpr const char* kIndex = "model.safetensors.index.json";
  TempFolder folder_;
};

TEST_F(Shards, OpensAndResolves) {
  const auto checkpoint = Checkpoint::open(folder_.path());
  const auto b = checkpoint->find("b");
  ASSERT_TRUE(b);
  EXPECT_EQ(b->info->bytes, 5000u);
  EXPECT_EQ(static_cast<char>(*b->data), 'w');
  EXPECT_HOLDS(*b->file, kOne);
  checkpoint->drop(b->data, b->info->bytes);
  EXPECT_EQ(static_cast<char>(b->data[4999]), 'w');
  EXPECT_FALSE(checkpoint->find("d"));
  size_t count = 0;
  checkpoint->for_each([&](const TensorBytes&) { ++count; });
  EXPECT_EQ(count, 3u);
  EXPECT_EQ(*checkpoint->text("config.json"), "{}");
  EXPECT_FALSE(checkpoint->text("tokenizer.json"));
  EXPECT_GT(checkpoint->file_bytes(), 5010u);
}

TEST_F(Shards, CutShard) {
  for (const uintmax_t cut : {1u, 4096u}) {
    const auto size = std::filesystem::file_size(folder_.file(kOne));
    std::filesystem::resize_file(folder_.file(kOne), size - cut);
    const std::string text = open();
    EXPECT_HOLDS(text, kOne);
    EXPECT_HOLDS(text, "outside the file");
    EXPECT_HOLDS(text, cat("found ", size - cut));
    SetUp();
  }
}

TEST_F(Shards, MissingShard) {
  remove(kTwo);
  EXPECT_HOLDS(open(), "two.safetensors: named by the index, but missing");
}
TEST_F(Shards, MissingIndex) {
  remove(kIndex);
  const std::string text = open();
  EXPECT_HOLDS(text, "one.safetensors: a shard, but model.safetensors.index.json is missing");
  EXPECT_HOLDS(text, "two.safetensors");
}
TEST_F(Shards, ForeignShard) {
  write_file(folder_.file("three.safetensors"), safetensors_file({bytes_tensor("d", 1)}));
  EXPECT_HOLDS(open(), "three.safetensors: a foreign shard");
}
TEST_F(Shards, TensorTwiceInIndex) {
  index(
      R"("a":"one.safetensors","a":"two.safetensors","b":"one.safetensors","c":"two.safetensors")");
  EXPECT_HOLDS(open(), "names a twice");
}
TEST_F(Shards, TensorInTwoShards) {
  write_file(folder_.file(kTwo), safetensors_file({bytes_tensor("c", 7), bytes_tensor("a", 7)}));
  EXPECT_HOLDS(open(), "a: also in");
}
TEST_F(Shards, WrongShardAndUnnamedTensor) {
  index(R"("a":"one.safetensors","c":"one.safetensors","x":"two.safetensors")");
  const std::string text = open();
  EXPECT_HOLDS(text, "c: named by the index, but in another shard");
  EXPECT_HOLDS(text, "x: named by the index, but in no shard");
  EXPECT_HOLDS(text, "b: not named by the index");
}
TEST_F(Shards, DownloadStub) {
  write_file(folder_.file("two.safetensors.incomplete"), "x");
  EXPECT_HOLDS(open(), "leftover of a download");
}
TEST_F(Shards, SingleFileBesideIndex) {
  write_file(folder_.file("model.safetensors"), safetensors_file({bytes_tensor("d", 1)}));
  EXPECT_HOLDS(open(), "model.safetensors: beside an index");
}
TEST_F(Shards, IndexAlone) {
  remove(kOne);
  remove(kTwo);
  const std::string text = open();
  EXPECT_HOLDS(text, "one.safetensors: named by the index, but missing");
  EXPECT_HOLDS(text, "2 problems");
}
TEST_F(Shards, BrokenIndex) {
  index(R"("a":1)");
  EXPECT_HOLDS(open(), "expected a file name");
  index(R"("a":["one.safetensors"])");
  EXPECT_HOLDS(open(), "found an array");
  write_file(folder_.file(kIndex), "{}");
  EXPECT_HOLDS(open(), "expected a weight_map");
  write_file(folder_.file(kIndex), R"({"weight_map":{},"weight_map":{}})");
  EXPECT_HOLDS(open(), "weight_map twice");
  write_file(folder_.file(kIndex), std::string(R"({"weight_map":{}})") + '\0');
  EXPECT_HOLDS(open(), "bad index");
  write_file(folder_.file(kIndex), std::string(1000000, '['));
  EXPECT_HOLDS(open(), "nested deeper");
  // A path is a name that no file of the folder has.
  index(R"("a":"../one.safetensors","b":"one.safetensors","c":"two.safetensors")");
  EXPECT_HOLDS(open(), "../one.safetensors: named by the index, but missing");
}
TEST_F(Shards, AllComplaintsAtOnce) {
  std::filesystem::resize_file(folder_.file(kOne), 100);
  remove(kTwo);
  write_file(folder_.file("x.incomplete"), "");
  const std::string text = open();
  EXPECT_HOLDS(text, kOne);
  EXPECT_HOLDS(text, kTwo);
  EXPECT_HOLDS(text, "x.incomplete");
}

TEST(CheckpointFolder, FewFilesAreEnough) {
  const TempFolder folder;
  EXPECT_HOLDS(error_of([&] { Checkpoint::open(folder.file("none")); }), "found nothing");
  write_file(folder.file("tokenizer.json"), "{}");
  EXPECT_HOLDS(error_of([&] { Checkpoint::open(folder.file("tokenizer.json")); }), "found a file");
  // The verbs that take text only need no weights.
  const auto checkpoint = Checkpoint::open(folder.path());
  EXPECT_EQ(*checkpoint->text("tokenizer.json"), "{}");
  EXPECT_EQ(checkpoint->file_bytes(), 0u);
  write_file(folder.file("model.safetensors"), safetensors_file({bytes_tensor("a", 1)}));
  EXPECT_TRUE(Checkpoint::open(folder.path())->find("a"));
}

TEST(Untrusted, DepthIgnoresStrings) {
  EXPECT_EQ(json_depth(R"({"a[[[":[{"b":"\"[["}]})"), 3u);
  EXPECT_EQ(json_depth("]]]"), 0u);
  EXPECT_EQ(json_depth("\"abc\\"), 0u);
}

}  // namespace
}  // namespace spk
