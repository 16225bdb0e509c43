// NVRTC, the run-time compiler: our own declarations, loaded when first asked for; from the system,
// a toolkit, or the folder of the Python wheel nvidia-cuda-nvrtc.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spk::cuda {

// Name of a source as #include spells it, and its text.
struct SourceText {
  std::string name;
  std::string_view text;
};

struct CompileOutput {
  std::string cubin;
  std::string lowered;  // the kernel's name inside the cubin
  std::string log;      // warnings, and what ptxas says about registers
};

// Where NVRTC is looked for, in this order; the first that can be opened is used.
// SPARKLING_NVRTC=FILE comes first.
std::vector<std::string> nvrtc_candidates();

// "13.0" and the file; Error(kResource) with one sentence when there is no NVRTC.
std::string nvrtc_version();
std::string nvrtc_library();
bool nvrtc_available();
std::vector<int> nvrtc_architectures();  // 80, 90, 120, 121 ...

// Flags that every kernel is compiled with, without the architecture. No fast-math and no
// contraction: a multiply and an add are one rounding only where the source says fma, as on the
// host.
const std::vector<std::string>& compile_flags();

// Compiles one kernel: `program` is the text that names it, `headers` all that it includes.
// NVRTC does one compilation at a time in a process. Error(kResource) with the compiler's log.
CompileOutput compile(const std::string& program, const std::vector<SourceText>& headers,
                      const std::string& expression, const std::string& arch);

}  // namespace spk::cuda
