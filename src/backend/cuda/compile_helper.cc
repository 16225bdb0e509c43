// Compiling by several processes: the parent hands out jobs through a file on standard input, a
// helper compiles into the cache folder and says nothing; what it delivered is seen on disk.
#include "backend/cuda/kernel_cache.h"
#include "base/error.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <system_error>

extern char** environ;

namespace spk::cuda {
namespace {

// Fields end with a zero byte, which no name or path has.
std::string job_text(const std::string& folder, const std::string& arch,
                     const std::string& prologue, const std::vector<KernelSpec>& specs) {
  std::string text;
  const auto field = [&](const std::string& value) {
    text += value;
    text.push_back('\0');
  };
  field(folder);
  field(arch);
  field(prologue);
  for (const KernelSpec& spec : specs) {
    field(spec.header);
    field(spec.expression);
  }
  return text;
}

// Process id, or -1 when it cannot be started.
pid_t start_helper(const std::string& helper, const std::string& job) {
  const auto close_file = [](std::FILE* f) { std::fclose(f); };
  const std::unique_ptr<std::FILE, decltype(close_file)> file(std::tmpfile(), close_file);
  if (!file || std::fwrite(job.data(), 1, job.size(), file.get()) != job.size() ||
      std::fflush(file.get()) != 0 || std::fseek(file.get(), 0, SEEK_SET) != 0)
    return -1;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fileno(file.get()), STDIN_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::string name = helper, argument(kHelperArgument);
  char* arguments[] = {name.data(), argument.data(), nullptr};
  pid_t child = -1;
  const int error = posix_spawn(&child, helper.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? child : -1;
}

}  // namespace

std::string own_program() {
  std::array<char, 4096> path{};
  const ssize_t n = readlink("/proc/self/exe", path.data(), path.size() - 1);
  std::string file(path.data(), n > 0 ? static_cast<size_t>(n) : 0);
  // Only the program itself knows what --compile-kernels means.
  return file.substr(file.rfind('/') + 1) == "sparkling" ? file : "";
}

int KernelCache::compile_missing(std::span<const KernelSpec> specs, const std::string& arch,
                                 int processes, const std::string& helper) {
  std::vector<KernelSpec> missing;
  for (const KernelSpec& spec : specs)
    if (!load(spec, arch)) missing.push_back(spec);
  const auto count = static_cast<int>(missing.size());
  // One or two are quicker here than a new process with a compiler of its own.
  if (count <= 2 || processes <= 1 || helper.empty()) return count;
  if (folder_.empty()) return count;
  std::error_code failed;
  std::filesystem::create_directories(folder_, failed);
  if (failed || access(folder_.c_str(), W_OK) != 0) return count;
  std::vector<std::vector<KernelSpec>> shares(
      static_cast<size_t>(std::min(processes, (count + 1) / 2)));
  for (size_t i = 0; i < missing.size(); ++i) shares[i % shares.size()].push_back(missing[i]);
  std::vector<pid_t> children;
  for (const std::vector<KernelSpec>& share : shares) {
    const pid_t child = start_helper(helper, job_text(folder_, arch, prologue_, share));
    if (child > 0) children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
  }
  return count;
}

int run_compile_helper() {
  const std::string job(std::istreambuf_iterator<char>(std::cin), {});
  std::vector<std::string> fields;
  for (size_t at = 0; at < job.size();) {
    const size_t end = job.find('\0', at);
    if (end == std::string::npos) break;
    fields.push_back(job.substr(at, end - at));
    at = end + 1;
  }
  constexpr size_t kFirstKernel = 3;
  if (fields.size() < kFirstKernel || (fields.size() - kFirstKernel) % 2 != 0)
    fail_usage(kHelperArgument, ": expected a job on standard input, found ", fields.size(),
               " fields");
  KernelCache cache(fields[0], kernel_sources(), fields[2]);
  for (size_t i = kFirstKernel; i < fields.size(); i += 2)
    cache.get({fields[i], fields[i + 1]}, fields[1]);
  return cache.warnings().empty() ? 0 : static_cast<int>(ErrorKind::kResource);
}

}  // namespace spk::cuda
