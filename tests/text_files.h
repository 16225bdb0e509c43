// Files of the source tree for the tests of src/text.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace spk {

inline std::string read_source_file(const std::string& path) {
  std::ifstream in(std::string(SPARKLING_SOURCE_DIR) + "/" + path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

}  // namespace spk
