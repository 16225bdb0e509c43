#include "cli/machine.h"

#include <sched.h>
#include <sys/utsname.h>
#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "base/error.h"
#include "cli/values.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <set>
#include <sstream>

namespace spk::cli {
namespace {

// "MemTotal:       24584096 kB"
uint64_t meminfo(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind(key + ":", 0) != 0) continue;
    std::istringstream words(line.substr(key.size() + 1));
    uint64_t kib = 0;
    words >> kib;
    return kib * 1024;
  }
  return 0;
}

// A number in a control group's file; 0 when absent or "max".
uint64_t cgroup(const std::string& file) {
  std::ifstream stream("/sys/fs/cgroup/" + file);
  uint64_t value = 0;
  return stream >> value ? value : 0;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("model name", 0) == 0 || line.rfind("Model", 0) == 0) {
      const size_t colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  }
  return "unknown processor";
}

std::vector<std::string> instruction_sets() {
  std::vector<std::string> found;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2")) found.emplace_back("avx2");
  if (__builtin_cpu_supports("fma")) found.emplace_back("fma");
  if (__builtin_cpu_supports("avx512f")) found.emplace_back("avx512f");
  if (__builtin_cpu_supports("avx512bw")) found.emplace_back("avx512bw");
  if (__builtin_cpu_supports("avx512vnni")) found.emplace_back("avx512vnni");
#elif defined(__aarch64__)
  found.emplace_back("neon");
  const unsigned long features = getauxval(AT_HWCAP);
  if ((features & HWCAP_ASIMDDP) != 0) found.emplace_back("dotprod");
  if ((features & HWCAP_SVE) != 0) found.emplace_back("sve");
#endif
  return found;
}

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

Machine this_machine() {
  Machine m;
  m.processor = processor_name();
  m.instruction_sets = instruction_sets();
  utsname name{};
  if (uname(&name) == 0) {
    m.architecture = name.machine;
    m.system = cat(name.sysname, " ", name.release);
  }
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::set<std::string> cores;  // hardware threads of one core share their sibling list
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &mask)) continue;
      ++m.logical_cores;
      const std::string siblings =
          read_line(cat("/sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list"));
      cores.insert(siblings.empty() ? cat("cpu", cpu) : siblings);
    }
  }
  m.logical_cores = std::max(m.logical_cores, 1);
  m.physical_cores = std::max(static_cast<int>(cores.size()), 1);
  m.memory_total = meminfo("MemTotal");
  m.memory_available = meminfo("MemAvailable");
  if (const uint64_t limit = cgroup("memory.max"); limit > 0 && limit < m.memory_total) {
    const uint64_t used = cgroup("memory.current");
    m.memory_total = limit;
    m.memory_available = std::min(m.memory_available, limit > used ? limit - used : 0);
  }
  return m;
}

std::string Machine::text() const {
  return cat(processor, ", ", physical_cores, " cores (", logical_cores, " threads), ",
             show_bytes(static_cast<double>(memory_total)), " memory, ", system, " ", architecture);
}

}  // namespace spk::cli
