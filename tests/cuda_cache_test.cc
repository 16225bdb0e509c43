// Run-time compilation and its cache on disk, without a GPU: keys, what is published and how,
// broken and foreign entries, folders that cannot be written, several processes at once.
#include "backend/cuda/driver.h"
#include "backend/cuda/kernel_cache.h"
#include "backend/cuda/nvrtc.h"
#include "base/error.h"
#include "base/file.h"
#include "support/cuda_support.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace spk::cuda {
namespace {

namespace fs = std::filesystem;

const std::string kArch = "sm_90a";
const KernelSpec kAdd{"kernels/rows.cuh", "spk::gpu::add_rows<0>"};
const KernelSpec kNorm{"kernels/rows.cuh", "spk::gpu::rms_norm<true>"};

class CudaCache : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/spk-kernels-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    SPK_NEED_NVRTC();
  }
  void TearDown() override {
    fs::permissions(folder_, fs::perms::owner_all);
    fs::remove_all(folder_);
  }
  static void write(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }
  // Entries of the cache, and whatever was left lying about.
  std::vector<std::string> names() const { return list_folder(folder_); }

  std::string folder_;
};

// A stand-in for slow compilations: sources of our own.
std::vector<SourceText> own_sources(std::string_view body) {
  return {{"kernels/a.cuh", "#include \"kernels/b.cuh\"\n"},
          {"kernels/b.cuh", body},
          {"kernels/other.cuh", "// not reached"}};
}
constexpr std::string_view kBody =
    "namespace t { template <int N> __global__ void k(int* p) { p[threadIdx.x] = N; } }\n";
const KernelSpec kOwn{"kernels/a.cuh", "t::k<7>"};

TEST_F(CudaCache, KeepsBinarySourceAndLogAndFindsThemAgain) {
  KernelCache cache(folder_);
  const Kernel made = cache.get(kAdd, kArch);
  EXPECT_FALSE(made.cached);
  EXPECT_EQ(made.cubin.substr(0, 4),
            "\x7f"
            "ELF");
  EXPECT_NE(made.lowered.find("add_rows"), std::string::npos);
  EXPECT_GT(made.compile_seconds, 0);
  const Resources r = parse_resources(made.log);
  EXPECT_GT(r.registers, 0);
  EXPECT_EQ(r.stack_bytes + r.spill_loads + r.spill_stores, 0);

  const std::string entry = cache.entry_folder(kAdd, kArch);
  EXPECT_EQ(list_folder(entry),
            (std::vector<std::string>{"kernel.bin", "kernel.cu", "kernel.log"}));
  const std::string source = read_small_file(entry + "/kernel.cu", 1 << 20);
  EXPECT_NE(source.find("add_rows"), std::string::npos);
  EXPECT_NE(source.find("kernels/common.cuh"), std::string::npos);
  EXPECT_EQ(read_small_file(entry + "/kernel.log", 1 << 20), made.log);
  EXPECT_EQ(names().size(), 1u) << "a private folder was left behind";

  KernelCache again(folder_);
  const Kernel found = again.get(kAdd, kArch);
  EXPECT_TRUE(found.cached);
  EXPECT_EQ(found.cubin, made.cubin);
  EXPECT_EQ(found.lowered, made.lowered);
  EXPECT_EQ(found.log, made.log);
  EXPECT_NEAR(found.compile_seconds, made.compile_seconds, 2e-6);
  EXPECT_TRUE(again.warnings().empty());
}

TEST_F(CudaCache, KeyHoldsAllThatDecidesTheResult) {
  const KernelCache cache(folder_, own_sources(kBody));
  const std::string key = cache.key(kOwn, kArch);
  EXPECT_NE(key, cache.key({kOwn.header, "t::k<8>"}, kArch));
  EXPECT_NE(key, cache.key({"kernels/b.cuh", kOwn.expression}, kArch));
  EXPECT_NE(key, cache.key(kOwn, "sm_121a"));
  EXPECT_NE(key.find("NVRTC " + nvrtc_version()), std::string::npos);
  for (const std::string& flag : compile_flags()) EXPECT_NE(key.find(flag), std::string::npos);
  EXPECT_NE(key, KernelCache(folder_, own_sources("// changed")).key(kOwn, kArch));
  EXPECT_NE(key,
            KernelCache(folder_, own_sources(kBody), "static_assert(true);\n").key(kOwn, kArch));
  std::vector<SourceText> sources = own_sources(kBody);
  sources[2].text = "// changed, but not reached";
  EXPECT_EQ(key, KernelCache(folder_, sources).key(kOwn, kArch));
  // Moving text from one file to the next is a change as well.
  sources = {{"kernels/a.cuh", "#include \"kernels/b.cuh\"\nx"}, {"kernels/b.cuh", "y"}};
  const std::string one = KernelCache(folder_, sources).key(kOwn, kArch);
  sources = {{"kernels/a.cuh", "#include \"kernels/b.cuh\"\n"}, {"kernels/b.cuh", "xy"}};
  EXPECT_NE(one, KernelCache(folder_, sources).key(kOwn, kArch));
}

TEST_F(CudaCache, MissingIncludeAndBadSourceAreNamed) {
  KernelCache missing(folder_, {{"kernels/a.cuh", "#include \"kernels/gone.cuh\"\n"}});
  try {
    missing.get(kOwn, kArch);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kResource);
    EXPECT_NE(std::string(e.what()).find("kernels/a.cuh includes kernels/gone.cuh"),
              std::string::npos);
  }
  KernelCache bad(folder_, own_sources("nonsense;\n"));
  try {
    bad.get(kOwn, kArch);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("t::k<7> for sm_90a"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("kernels/b.cuh(1)"), std::string::npos) << e.what();
  }
  EXPECT_TRUE(names().empty());
}

// Each byte of the entry matters: cut, changed, replaced by another kernel's, or not a file at all.
TEST_F(CudaCache, BrokenAndForeignEntriesAreMadeAnew) {
  KernelCache cache(folder_, own_sources(kBody));
  const Kernel made = cache.get(kOwn, kArch);
  const KernelSpec second{kOwn.header, "t::k<8>"};
  const Kernel other = cache.get(second, kArch);
  const std::string path = cache.entry_folder(kOwn, kArch) + "/kernel.bin";
  const std::string foreign_path = cache.entry_folder(second, kArch) + "/kernel.bin";
  const std::string good = read_small_file(path, 1 << 24);
  const std::string foreign = read_small_file(foreign_path, 1 << 24);
  std::vector<std::string> broken = {"", "SPKKERN1", good.substr(0, good.size() / 2), good + "x",
                                     foreign};
  for (size_t at = 0; at < good.size(); at += good.size() / 97 + 1) {
    std::string changed = good;
    changed[at] = static_cast<char>(changed[at] ^ 0x40);
    // The time of compilation is for the eye: nothing is loaded by it.
    if (at < 40 || at >= 48) broken.push_back(changed);
  }
  for (const std::string& bytes : broken) {
    write(path, bytes);
    EXPECT_FALSE(cache.load(kOwn, kArch)) << bytes.size();
  }
  for (size_t i = 0; i < 5; ++i) {
    write(path, broken[i]);
    const Kernel again = cache.get(kOwn, kArch);
    EXPECT_FALSE(again.cached);
    EXPECT_EQ(again.cubin, made.cubin);
    EXPECT_TRUE(cache.load(kOwn, kArch)) << "not repaired";
  }
  fs::remove(path);
  fs::create_directory(path);  // a folder in place of the file
  EXPECT_FALSE(cache.get(kOwn, kArch).cached);
  EXPECT_TRUE(cache.get(kOwn, kArch).cached);
  EXPECT_EQ(cache.get(second, kArch).cubin, other.cubin);
  EXPECT_EQ(names().size(), 2u);
  EXPECT_TRUE(cache.warnings().empty());
}

TEST_F(CudaCache, FolderThatCannotBeWrittenOnlyWarns) {
  const std::string file = folder_ + "/file";
  write(file, "not a folder");
  // Below a file nothing can be made, whoever asks; /dev/full and read-only folders let root
  // through.
  KernelCache cache(file + "/below", own_sources(kBody));
  EXPECT_FALSE(cache.get(kOwn, kArch).cached);
  EXPECT_FALSE(cache.get(kOwn, kArch).cached);
  ASSERT_EQ(cache.warnings().size(), 1u);
  EXPECT_NE(cache.warnings()[0].find(file), std::string::npos);
  EXPECT_EQ(cache.compile_missing(std::vector<KernelSpec>(3, kOwn), kArch, 4, sparkling_path()), 3);
  KernelCache none("", own_sources(kBody));
  EXPECT_FALSE(none.get(kOwn, kArch).cached);
  EXPECT_TRUE(none.warnings().empty());
}

TEST_F(CudaCache, FullDiskOnlyWarns) {
  const std::string limit =
      cat("ulimit -f 0; exec '", sparkling_path(), "' --compile-kernels < '", folder_, "/job'");
  std::string job;
  for (const std::string& field :
       {folder_ + "/cache", kArch, std::string(), kAdd.header, kAdd.expression})
    job += field + '\0';
  write(folder_ + "/job", job);
  // A file size limit of nothing: SIGXFSZ is ignored, so that writes fail as on a full disk.
  const int status = std::system(cat("trap '' XFSZ; ", limit, " 2>/dev/null").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 3) << "a warning becomes the helper's status";
  KernelCache after(folder_ + "/cache");
  EXPECT_FALSE(after.load(kAdd, kArch));
  EXPECT_FALSE(after.get(kAdd, kArch).cached);
  EXPECT_TRUE(after.get(kAdd, kArch).cached);
}

TEST_F(CudaCache, HelpersCompileAndAFailedHelperCostsTimeOnly) {
  const std::vector<KernelSpec> specs = {kAdd,
                                         kNorm,
                                         {"kernels/rows.cuh", "spk::gpu::swiglu<0>"},
                                         {"kernels/rows.cuh", "spk::gpu::head_gate<0>"}};
  KernelCache cache(folder_);
  EXPECT_EQ(cache.compile_missing(specs, kArch, 2, "/no/such/program"), 4);
  EXPECT_FALSE(cache.load(kAdd, kArch));
  EXPECT_EQ(cache.compile_missing(specs, kArch, 2, "/bin/false"), 4);
  EXPECT_EQ(cache.compile_missing(specs, kArch, 2, sparkling_path()), 4);
  for (const KernelSpec& spec : specs) EXPECT_TRUE(cache.load(spec, kArch)) << spec.expression;
  EXPECT_EQ(cache.compile_missing(specs, kArch, 2, sparkling_path()), 0);
  EXPECT_EQ(names().size(), 4u);
}

// Two processes, the same kernels, the same empty folder, at the same time.
TEST_F(CudaCache, TwoProcessesAtOnceDoNoHarm) {
  const std::vector<KernelSpec> specs = {kAdd, kNorm, {"kernels/rows.cuh", "spk::gpu::swiglu<0>"}};
  std::string job;
  for (const std::string& field : {folder_ + "/cache", kArch, std::string()}) job += field + '\0';
  for (const KernelSpec& spec : specs) job += spec.header + '\0' + spec.expression + '\0';
  write(folder_ + "/job", job);
  pid_t children[2];
  for (pid_t& child : children) {
    child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const std::string in = folder_ + "/job", program = sparkling_path();
      if (!std::freopen(in.c_str(), "rb", stdin)) _exit(9);
      execl(program.c_str(), program.c_str(), kHelperArgument.data(), nullptr);
      _exit(8);
    }
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  KernelCache cache(folder_ + "/cache");
  for (const KernelSpec& spec : specs) EXPECT_TRUE(cache.load(spec, kArch)) << spec.expression;
  EXPECT_EQ(list_folder(folder_ + "/cache").size(), specs.size());
}

// A wheel's NVRTC takes its second half from the wheel too: on a machine without a toolkit the
// loader's folders have none, and with one they may have another version's.
TEST_F(CudaCache, AWheelBringsBothHalves) {
  const std::vector<std::string> candidates = nvrtc_candidates();
  const auto wheel =
      std::find_if(candidates.begin(), candidates.end(), [](const std::string& name) {
        return name.find("site-packages") != std::string::npos && fs::exists(name);
      });
  ASSERT_NE(wheel, candidates.end()) << "no wheel of NVRTC: run tools/setup.sh test";
  std::string job;
  for (const std::string& field :
       {folder_ + "/cache", kArch, std::string(), kAdd.header, kAdd.expression})
    job += field + '\0';
  write(folder_ + "/job", job);
  const std::string command = cat("SPARKLING_NVRTC=", *wheel, " LD_DEBUG=files ", sparkling_path(),
                                  " ", kHelperArgument, " <", folder_, "/job 2>", folder_, "/log");
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  const std::string log = read_small_file(folder_ + "/log", 1 << 24);
  const std::string half = fs::path(*wheel).parent_path().string() + "/libnvrtc-builtins.so";
  EXPECT_NE(log.find("calling init: " + half), std::string::npos) << half;
  EXPECT_TRUE(KernelCache(folder_ + "/cache").load(kAdd, kArch));
}

TEST_F(CudaCache, StalePrivateFoldersGo) {
  fs::create_directory(folder_ + "/.private-1-0-old");
  fs::create_directory(folder_ + "/.private-2-0-new");
  fs::last_write_time(folder_ + "/.private-1-0-old",
                      fs::file_time_type::clock::now() - std::chrono::hours(2));
  KernelCache cache(folder_, own_sources(kBody));
  cache.get(kOwn, kArch);
  EXPECT_FALSE(fs::exists(folder_ + "/.private-1-0-old"));
  EXPECT_TRUE(fs::exists(folder_ + "/.private-2-0-new"));
}

TEST(CudaNvrtc, KnowsTheArchitecturesThatWeAreFor) {
  SPK_NEED_NVRTC();
  const std::vector<int> archs = nvrtc_architectures();
  for (int arch : {80, 90, 120, 121})
    EXPECT_NE(std::find(archs.begin(), archs.end(), arch), archs.end()) << arch;
}

// The wheel's folder is found in the active Python environment; a named file excludes all others.
TEST(CudaNvrtc, IsLookedForInWheelsAndWhereNamed) {
  char name[] = "/tmp/spk-venv-XXXXXX";
  ASSERT_NE(mkdtemp(name), nullptr);
  const std::string root = name;
  const std::string file = root + "/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13";
  fs::create_directories(fs::path(file).parent_path());
  std::ofstream(file) << "x";
  const auto with = [](const char* variable, const char* value, auto&& then) {
    const char* before = std::getenv(variable);
    const std::string kept = before ? before : "";
    value ? setenv(variable, value, 1) : unsetenv(variable);
    then();
    before ? setenv(variable, kept.c_str(), 1) : unsetenv(variable);
  };
  with("SPARKLING_NVRTC", nullptr, [&] {
    with("VIRTUAL_ENV", root.c_str(), [&] {
      const std::vector<std::string> names = nvrtc_candidates();
      EXPECT_EQ(names.front(), "libnvrtc.so.13");
      EXPECT_NE(std::find(names.begin(), names.end(), file), names.end());
    });
  });
  with("SPARKLING_NVRTC", "/a/file",
       [] { EXPECT_EQ(nvrtc_candidates(), std::vector<std::string>{"/a/file"}); });
  fs::remove_all(root);
}

TEST(CudaDriver, ArchitectureOfADevice) {
  EXPECT_EQ(architecture(8, 0), "sm_80");
  EXPECT_EQ(architecture(9, 0), "sm_90a");
  EXPECT_EQ(architecture(12, 1), "sm_121a");
  EXPECT_EQ(architecture(7, 5), "");
}

// No driver, or one without a device: one sentence, the same every time, exit status 3.
TEST(CudaDriver, MissingIsOneSentence) {
  std::string first;
  for (int round = 0; round < 2; ++round) {
    try {
      device_info(0);
      return;  // a machine with a GPU
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kResource);
      const std::string text = e.what();
      EXPECT_EQ(text.rfind("back end cuda: ", 0), 0u) << text;
      EXPECT_NE(text.find("--backend cpu"), std::string::npos) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos);
      if (round == 0) first = text;
      EXPECT_EQ(text, first);
    }
  }
}

TEST(CudaLog, ResourcesOfPtxas) {
  const Resources r = parse_resources(
      "ptxas info    : 128 bytes gmem\nptxas info    : Compiling entry function 'x' for 'sm_90a'\n"
      "ptxas         .     8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n"
      "ptxas info    : Used 31 registers, used 1 barriers, 256 bytes smem\n");
  EXPECT_EQ(r.registers, 31);
  EXPECT_EQ(r.shared_bytes, 256);
  EXPECT_EQ(r.stack_bytes, 8);
  EXPECT_EQ(r.spill_stores, 4);
  EXPECT_EQ(r.spill_loads, 12);
  EXPECT_THROW(parse_resources("nothing"), Error);
}

}  // namespace
}  // namespace spk::cuda
