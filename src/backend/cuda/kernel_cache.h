// Compiled kernels on disk: found again by everything that decides what they are.
//
// One folder an entry: kernel.bin (what is loaded), kernel.cu (the source, for the eye), kernel.log
// (what the compiler said). An entry is written in a private folder and renamed into place, so that
// a reader sees none or a whole one, and of two writers one is discarded. What does not carry its
// own key and checksum is not used but made anew. A folder that cannot be written costs
// compilations, never correctness: it is said in warnings().
//
// kernel.bin: "SPKKERN1", then little-endian u64 each: bytes of key, lowered name, log, cubin;
// microseconds of compilation; FNV-1a of all that follows; then the four, one after the other.
#pragma once

#include "backend/cuda/sources.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace spk::cuda {

struct Kernel {
  std::string cubin;
  std::string lowered;
  std::string log;
  double compile_seconds = 0;
  bool cached = false;  // found on disk
};

// What ptxas said about a kernel.
struct Resources {
  int registers = 0;
  int shared_bytes = 0;
  int stack_bytes = 0;  // local memory
  int spill_stores = 0;
  int spill_loads = 0;
};
Resources parse_resources(std::string_view log);  // Error(kResource) when the log does not say

class KernelCache {
 public:
  // `folder` empty: nothing is kept. `sources`: what kernels may include; the embedded ones.
  // `prologue`: text in front of every program (checks that host and device agree).
  explicit KernelCache(std::string folder, std::vector<SourceText> sources = kernel_sources(),
                       std::string prologue = "");

  // XDG_CACHE_HOME or HOME/.cache, then sparkling/kernels; SPARKLING_KERNEL_CACHE overrides. Empty
  // when the environment names no home.
  static std::string default_folder();

  const std::string& folder() const { return folder_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

  // From disk, else compiled and kept.
  Kernel get(const KernelSpec& spec, const std::string& arch);
  std::optional<Kernel> load(const KernelSpec& spec, const std::string& arch) const;

  // Compiles what is not on disk by up to `processes` copies of `helper` (the program `sparkling`),
  // since NVRTC works one at a time inside a process. What they do not deliver is compiled by
  // get() later, so a helper that fails costs time only. Returns how many were missing.
  int compile_missing(std::span<const KernelSpec> specs, const std::string& arch, int processes,
                      const std::string& helper);

  // Everything that decides the result, as text.
  std::string key(const KernelSpec& spec, const std::string& arch) const;
  std::string entry_folder(const KernelSpec& spec, const std::string& arch) const;

 private:
  std::string program(const KernelSpec& spec) const;
  void keep(const KernelSpec& spec, const std::string& arch, const Kernel& kernel);
  void warn(const std::string& text);

  std::string folder_;
  std::vector<SourceText> sources_;
  std::string prologue_;
  std::vector<std::string> warnings_;
};

// What a helper process does: reads the job (folder, architecture, prologue, kernels) from standard
// input and compiles into the folder. Returns the exit status.
int run_compile_helper();

// This program, when it is `sparkling` itself and so can be a helper; else empty.
std::string own_program();

// The first argument that makes `sparkling` a helper.
inline constexpr std::string_view kHelperArgument = "--compile-kernels";

}  // namespace spk::cuda
