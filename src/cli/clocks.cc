#include "cli/clocks.h"

#include "base/error.h"
#include "base/file.h"
#include "measure/show.h"

#include <sched.h>

#include <algorithm>
#include <fstream>

namespace spk::cli {
namespace {

// "cpu MHz : 3449.998" of each processor that this process may use; Arm kernels tell it in
// kilohertz under /sys.
void read_frequencies(Clocks& c) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return;
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  int processor = -1, count = 0;
  const auto take = [&](double mhz) {
    c.mhz_low = count == 0 ? mhz : std::min(c.mhz_low, mhz);
    c.mhz_mean += mhz;
    ++count;
  };
  while (std::getline(file, line)) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    if (line.rfind("processor", 0) == 0) processor = std::atoi(line.c_str() + colon + 1);
    const bool mine = processor >= 0 && processor < CPU_SETSIZE && CPU_ISSET(processor, &mask);
    if (mine && line.rfind("cpu MHz", 0) == 0) take(std::atof(line.c_str() + colon + 1));
  }
  for (int cpu = 0; count == 0 && cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &mask)) continue;
    std::ifstream khz(cat("/sys/devices/system/cpu/cpu", cpu, "/cpufreq/scaling_cur_freq"));
    double value = 0;
    if (khz >> value) take(value / 1000);
  }
  if (count > 0) c.mhz_mean /= count;
}

}  // namespace

Clocks clocks_now() {
  Clocks c;
  read_frequencies(c);
  for (int zone = 0; zone < 64; ++zone) {
    std::ifstream file(cat("/sys/class/thermal/thermal_zone", zone, "/temp"));
    double milli = 0;
    if (!(file >> milli)) break;
    c.celsius = std::max(c.celsius, milli / 1000);
  }
  std::ifstream load("/proc/loadavg");
  load >> c.load;
  return c;
}

std::string Clocks::text() const {
  const std::string speed = mhz_mean > 0
                                ? cat(fixed(mhz_mean, 0), " MHz (lowest ", fixed(mhz_low, 0), ")")
                                : "clock not told";
  return cat(speed, celsius > 0 ? cat(", ", fixed(celsius, 0), " C") : "", ", load ",
             fixed(load, 1));
}

}  // namespace spk::cli
