#include "backend/cuda/nvrtc.h"

#include "backend/cuda/library.h"
#include "base/error.h"

#include <glob.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>

namespace spk::cuda {
namespace {

struct ProgramObject;
using Program = ProgramObject*;

struct Nvrtc {
  int (*version)(int* major, int* minor);
  const char* (*error_string)(int result);
  int (*create)(Program* program, const char* text, const char* name, int headers,
                const char* const* header_texts, const char* const* header_names);
  int (*destroy)(Program* program);
  int (*compile)(Program program, int options, const char* const* option);
  int (*cubin_size)(Program program, size_t* bytes);
  int (*cubin)(Program program, char* bytes);
  int (*log_size)(Program program, size_t* bytes);
  int (*log)(Program program, char* text);
  int (*add_name)(Program program, const char* expression);
  int (*lowered_name)(Program program, const char* expression, const char** name);
  int (*arch_count)(int* count);
  int (*archs)(int* archs);
  std::string library;
  std::string version_text;
};

void add_matches(const std::string& pattern, std::vector<std::string>& names) {
  glob_t found{};
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
    for (size_t i = 0; i < found.gl_pathc; ++i) names.emplace_back(found.gl_pathv[i]);
  globfree(&found);
}

// The compiler opens a second library by its bare name, which the loader finds for a toolkit that
// the system knows and for no other, such as a Python wheel. One that is open is found by its name.
void open_companion(const std::string& library) {
  const size_t slash = library.rfind('/');
  if (slash == std::string::npos) return;
  std::vector<std::string> names;
  add_matches(library.substr(0, slash) + "/libnvrtc-builtins.so.1[23].*", names);
  std::string opened, why;
  open_library(names, opened, why);  // without it the compiler says what it misses
}

Nvrtc load_nvrtc() {
  Nvrtc n{};
  std::string why;
  void* const library = open_library(nvrtc_candidates(), n.library, why);
  if (!library)
    fail_resource(
        "back end cuda: expected the run-time compiler libnvrtc.so.13 or .12, found none; "
        "install the CUDA toolkit or the Python package nvidia-cuda-nvrtc, or name the file "
        "by SPARKLING_NVRTC");
  open_companion(n.library);
  const auto get = [&](const char* name, auto& function) {
    load_function(library, n.library, name, function);
  };
  get("nvrtcVersion", n.version);
  get("nvrtcGetErrorString", n.error_string);
  get("nvrtcCreateProgram", n.create);
  get("nvrtcDestroyProgram", n.destroy);
  get("nvrtcCompileProgram", n.compile);
  get("nvrtcGetCUBINSize", n.cubin_size);
  get("nvrtcGetCUBIN", n.cubin);
  get("nvrtcGetProgramLogSize", n.log_size);
  get("nvrtcGetProgramLog", n.log);
  get("nvrtcAddNameExpression", n.add_name);
  get("nvrtcGetLoweredName", n.lowered_name);
  get("nvrtcGetNumSupportedArchs", n.arch_count);
  get("nvrtcGetSupportedArchs", n.archs);
  int major = 0, minor = 0;
  n.version(&major, &minor);
  n.version_text = cat(major, ".", minor);
  return n;
}

const Nvrtc& nvrtc() {
  struct Outcome {
    Nvrtc nvrtc{};
    std::optional<Error> error;
  };
  static const Outcome outcome = [] {
    Outcome o;
    try {
      o.nvrtc = load_nvrtc();
    } catch (const Error& e) {
      o.error = e;
    }
    return o;
  }();
  if (outcome.error) throw Error(*outcome.error);
  return outcome.nvrtc;
}

void require(int result, const char* call) {
  if (result != 0) fail_resource("NVRTC: ", call, " failed: ", nvrtc().error_string(result));
}

// The wheel's folders inside a Python prefix: .../nvidia/cu13/lib of the current packages,
// .../nvidia/cuda_nvrtc/lib of those for CUDA 12.
void add_wheels(const std::string& prefix, std::vector<std::string>& names) {
  for (const char* packages :
       {"/lib/python3*/site-packages", "/lib/python3*/dist-packages", "/lib/python3/dist-packages"})
    for (const char* folder : {"/nvidia/cu13/lib", "/nvidia/cuda_nvrtc/lib"})
      add_matches(cat(prefix, packages, folder, "/libnvrtc.so.1[23]"), names);
}

std::string program_folder() {
  std::array<char, 4096> path{};
  const ssize_t n = readlink("/proc/self/exe", path.data(), path.size() - 1);
  if (n <= 0) return "";
  const std::string file(path.data(), static_cast<size_t>(n));
  return file.substr(0, file.rfind('/'));
}

}  // namespace

std::vector<std::string> nvrtc_candidates() {
  std::vector<std::string> names;
  // A file that was named is meant: nothing else is tried.
  if (const char* set = std::getenv("SPARKLING_NVRTC"); set && *set) return {set};
  names = {"libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so.13",
           "/usr/local/cuda/lib64/libnvrtc.so.12"};
  if (const char* environment = std::getenv("VIRTUAL_ENV"); environment && *environment)
    add_wheels(environment, names);
  if (const std::string folder = program_folder(); !folder.empty())
    add_wheels(folder + "/../.venv", names);  // of `tools/setup.sh test`, beside build/
  if (const char* home = std::getenv("HOME"); home && *home)
    add_wheels(std::string(home) + "/.local", names);
  add_wheels("/usr/local", names);
  add_wheels("/usr", names);
  return names;
}

std::string nvrtc_version() { return nvrtc().version_text; }
std::string nvrtc_library() { return nvrtc().library; }

bool nvrtc_available() {
  try {
    nvrtc();
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::vector<int> nvrtc_architectures() {
  int count = 0;
  require(nvrtc().arch_count(&count), "nvrtcGetNumSupportedArchs");
  std::vector<int> archs(static_cast<size_t>(count));
  require(nvrtc().archs(archs.data()), "nvrtcGetSupportedArchs");
  return archs;
}

const std::vector<std::string>& compile_flags() {
  static const std::vector<std::string> flags = {"--std=c++17",
                                                 "--fmad=false",
                                                 "--prec-div=true",
                                                 "--prec-sqrt=true",
                                                 "--ftz=false",
                                                 "--ptxas-options=-v",
                                                 "--device-as-default-execution-space"};
  return flags;
}

CompileOutput compile(const std::string& program, const std::vector<SourceText>& headers,
                      const std::string& expression, const std::string& arch) {
  static std::mutex mutex;  // the library has one too; ours keeps the pieces of a program together
  const std::lock_guard lock(mutex);
  const Nvrtc& n = nvrtc();
  std::vector<std::string> texts;
  std::vector<const char*> text_pointers, names;
  texts.reserve(headers.size());
  for (const SourceText& h : headers) {
    texts.emplace_back(h.text);
    text_pointers.push_back(texts.back().c_str());
    names.push_back(h.name.c_str());
  }
  Program made = nullptr;
  require(n.create(&made, program.c_str(), "kernel.cu", static_cast<int>(headers.size()),
                   text_pointers.data(), names.data()),
          "nvrtcCreateProgram");
  const auto destroy = [&](ProgramObject* p) { n.destroy(&p); };
  const std::unique_ptr<ProgramObject, decltype(destroy)> owner(made, destroy);
  require(n.add_name(made, expression.c_str()), "nvrtcAddNameExpression");

  const std::string target = "--gpu-architecture=" + arch;
  std::vector<const char*> options = {target.c_str()};
  for (const std::string& flag : compile_flags()) options.push_back(flag.c_str());
  const int result = n.compile(made, static_cast<int>(options.size()), options.data());
  CompileOutput out;
  size_t bytes = 0;
  if (n.log_size(made, &bytes) == 0 && bytes > 1) {
    out.log.resize(bytes);
    n.log(made, out.log.data());
    out.log.resize(bytes - 1);  // it ends with a zero
  }
  if (result != 0)
    fail_resource("NVRTC ", n.version_text, " cannot compile ", expression, " for ", arch, ": ",
                  n.error_string(result), "\n", out.log);
  const char* lowered = nullptr;
  require(n.lowered_name(made, expression.c_str(), &lowered), "nvrtcGetLoweredName");
  out.lowered = lowered;
  require(n.cubin_size(made, &bytes), "nvrtcGetCUBINSize");
  out.cubin.resize(bytes);
  require(n.cubin(made, out.cubin.data()), "nvrtcGetCUBIN");
  return out;
}

}  // namespace spk::cuda
