// The fuzz targets' corpora as ordinary tests: each file once, without a fuzzer.
//
// All targets define one well-known function, so each is included under a name of its own.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

// clang-format off
// NOLINTBEGIN(bugprone-suspicious-include)
#define LLVMFuzzerTestOneInput fuzz_safetensors
#include "fuzz/safetensors_fuzz.cc"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_config
#include "fuzz/config_fuzz.cc"
#undef LLVMFuzzerTestOneInput
#if __has_include("fuzz/tokenizer_fuzz.cc")
#define LLVMFuzzerTestOneInput fuzz_tokenizer
#include "fuzz/tokenizer_fuzz.cc"
#undef LLVMFuzzerTestOneInput
#define SPK_HAS_TOKENIZER_FUZZ 1
#endif
// NOLINTEND(bugprone-suspicious-include)
// clang-format on

namespace spk {
namespace {

using Target = int (*)(const uint8_t*, size_t);

void replay(const std::string& name, Target target) {
  const std::string folder = std::string(SPARKLING_SOURCE_DIR) + "/tests/fuzz/corpus/" + name;
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path().string());
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    EXPECT_EQ(target(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()), 0);
    ++files;
  }
  EXPECT_GT(files, 0u) << folder;
}

TEST(FuzzCorpus, Safetensors) { replay("safetensors", fuzz_safetensors); }
TEST(FuzzCorpus, Config) { replay("config", fuzz_config); }
#ifdef SPK_HAS_TOKENIZER_FUZZ
TEST(FuzzCorpus, Tokenizer) { replay("tokenizer", fuzz_tokenizer); }
#endif

}  // namespace
}  // namespace spk
