// Reading what a user names: limits, pipes, devices, folders, lines.
#include "base/error.h"
#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace spk {
namespace {

class Input : public testing::Test {
 protected:
  Input() : folder_(testing::TempDir() + "input_" + std::to_string(::getpid())) {
    std::filesystem::create_directory(folder_);
  }
  ~Input() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
  std::string folder_;
};

std::string complaint(const std::string& path, uint64_t limit) {
  try {
    read_input(path, limit);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "read";
}

TEST_F(Input, FilesUpToTheLimit) {
  const std::string text = std::string(100000, 'x') + '\0' + "end";
  const std::string file = write("a", text);
  EXPECT_EQ(read_input(file, text.size()), text);
  EXPECT_EQ(complaint(file, text.size() - 1), file + ": expected at most 100003 bytes, found more");
  EXPECT_EQ(read_input(write("empty", ""), 0), "");
  EXPECT_EQ(read_input("/dev/null", 0), "");
}

TEST_F(Input, WhatNeverEndsOrIsNoFile) {
  EXPECT_EQ(complaint("/dev/zero", 1 << 20),
            "/dev/zero: expected at most 1048576 bytes, found more");
  EXPECT_EQ(complaint("/dev/urandom", 1 << 20),
            "/dev/urandom: expected at most 1048576 bytes, found more");
  EXPECT_EQ(complaint(folder_, 10), folder_ + ": expected a file, found a folder");
  EXPECT_EQ(complaint(path("no"), 10), path("no") + ": cannot open: No such file or directory");
}

TEST_F(Input, APipeIsReadToItsEnd) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  std::thread writer([&] {
    std::ofstream out(path("pipe"));
    for (int i = 0; i < 3; ++i) {
      out << "part " << i << std::endl;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  EXPECT_EQ(read_input(path("pipe"), 100), "part 0\npart 1\npart 2\n");
  writer.join();
}

TEST_F(Input, APipeWithoutAWriterIsAnError) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(complaint(path("pipe"), 100),
            path("pipe") + ": expected a pipe that somebody writes to, found nobody");
}

TEST_F(Input, CheckpointFilesAreRegularFiles) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  for (const auto& [name, found] :
       {std::pair(path("pipe"), "a pipe"), std::pair(std::string("/dev/zero"), "a device"),
        std::pair(folder_, "a folder")}) {
    for (const bool map : {false, true}) {
      try {
        map ? void(MappedFile(name)) : void(read_small_file(name, 10));
        ADD_FAILURE() << name;
      } catch (const Error& error) {
        EXPECT_EQ(error.what(), name + ": expected a regular file, found " + found);
      }
    }
  }
}

TEST_F(Input, Lines) {
  const std::string long_line(200000, 'y');
  const std::string file = write("lines", "a\n\n" + long_line + "\nlast");
  LineReader reader(file, long_line.size());
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);) lines.push_back(line);
  EXPECT_EQ(lines, (std::vector<std::string>{"a", "", long_line, "last"}));

  LineReader narrow(file, long_line.size() - 1);
  std::string line;
  EXPECT_TRUE(narrow.next(line));
  EXPECT_TRUE(narrow.next(line));
  EXPECT_THROW(narrow.next(line), Error);
  LineReader zero("/dev/zero", 1 << 20);
  EXPECT_THROW(zero.next(line), Error);
}

}  // namespace
}  // namespace spk
