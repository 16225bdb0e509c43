// What the build itself promises: the version says which code this is, the embedded files are
// whole, the allocation counter counts.
#include "cli/embedded.h"
#include "cli/version.h"
#include "support/malloc_count.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace spk {
namespace {

TEST(Build, VersionNamesTheCode) {
  EXPECT_FALSE(version().number.empty());
  EXPECT_FALSE(version().commit.empty());
  EXPECT_FALSE(version().build.empty());
  EXPECT_NE(version().compiler.find(' '), std::string_view::npos);
}

TEST(Build, EmbeddedFilesEqualTheFolder) {
  std::string previous;
  for (const MemoryFile& file : embedded_model()) {
    const std::string name(file.name);
    EXPECT_LT(previous, name);
    previous = name;
    std::ifstream stream(std::string(SPARKLING_SOURCE_DIR "/models/ling-nano/") + name,
                         std::ios::binary);
    ASSERT_TRUE(stream) << name;
    const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
    EXPECT_TRUE(bytes == file.bytes) << name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(file.bytes.data()) % 4096, 0u) << name;
  }
}

TEST(Build, MallocCountSeesEveryThread) {
  if (!malloc_count_works()) return;  // under a sanitizer
  const MallocCount before;
  const uint64_t nothing = before.calls();
  EXPECT_EQ(nothing, 0u);
  void* volatile kept = std::malloc(100);
  std::free(kept);
  EXPECT_EQ(before.calls(), 1u);
  EXPECT_EQ(before.bytes(), 100u);
  std::thread([] {
    const std::unique_ptr<int[]> array(new int[1000]);
    static_cast<volatile int*>(array.get())[0] = 1;
  }).join();
  EXPECT_GE(before.bytes(), 4100u);
}

}  // namespace
}  // namespace spk
