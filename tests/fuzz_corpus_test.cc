// The fuzz targets' corpora as ordinary tests: each file once, without a fuzzer.
//
// cmake/fuzz.cmake compiles tests/fuzz/NAME_fuzz.cc into this program under the name replay_NAME,
// and lists the names in SPARKLING_FUZZ_TARGETS as SPK_TARGET(NAME) ...
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#define SPK_TARGET(name) extern "C" int replay_##name(const uint8_t* data, size_t size);
SPARKLING_FUZZ_TARGETS
#undef SPK_TARGET

namespace spk {
namespace {

using Function = int (*)(const uint8_t*, size_t);

void replay(const std::string& name, Function target) {
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

#define SPK_TARGET(name) \
  TEST(FuzzCorpus, name) { replay(#name, replay_##name); }
SPARKLING_FUZZ_TARGETS
#undef SPK_TARGET

}  // namespace
}  // namespace spk
