// How fast and how warm the processor is now: what explains a measurement that differs from the
// last one.
#pragma once

#include <string>

namespace spk::cli {

struct Clocks {
  double mhz_low = 0, mhz_mean = 0;  // of the processors that this process may use; 0: not told
  double celsius = 0;                // the warmest sensor; 0: none
  double load = 0;                   // of the whole machine, one minute
  std::string text() const;          // "3450 MHz (lowest 2900), 61 C, load 1.2"
};
Clocks clocks_now();

}  // namespace spk::cli
