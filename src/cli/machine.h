// What this machine has: processor, instruction sets, cores, memory, as the operating system tells
// it.
//
// Containers count: the lower of the machine's and the control group's memory is reported.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spk::cli {

struct Machine {
  std::string processor;                      // "AMD EPYC 7B13"
  std::string architecture;                   // "x86_64"
  std::vector<std::string> instruction_sets;  // of those that matter here
  int logical_cores = 0;                      // this process may use
  int physical_cores = 0;                     // of those
  uint64_t memory_total = 0;                  // bytes
  uint64_t memory_available = 0;
  std::string system;        // "Linux 6.1.0"
  std::string text() const;  // one line
};
Machine this_machine();

}  // namespace spk::cli
