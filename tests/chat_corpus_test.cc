// The chat fuzz target's corpus as an ordinary test: each file once, without a fuzzer.
#include "fuzz/chat_fuzz.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace {

TEST(FuzzCorpus, Chat) {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(SPARKLING_SOURCE_DIR) +
                                                               "/tests/fuzz/corpus/chat")) {
    SCOPED_TRACE(entry.path().string());
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    spk::fuzz::check_chat(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    ++files;
  }
  EXPECT_GT(files, 0u);
}

}  // namespace
