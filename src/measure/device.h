// What a machine can do, as numbers: the built-in descriptions and those of JSON files.
//
// Every figure of the built-in ones has its source in device.cc. A projection multiplies a limit by
// the share that engines reached on such a machine; both shares are part of the description.
#pragma once

#include <string>
#include <string_view>

namespace spk {

struct Device {
  std::string name;
  double bandwidth = 0;  // bytes/s, as the maker states it (or as measured, for this machine)
  double practical = 0;  // bytes/s that somebody measured; 0: unknown
  double compute = 0;    // dense BF16 FLOP/s; 0: unknown, then nothing is said about prefill
  double memory = 0;     // bytes; 0: unknown
  double disk = 0;       // bytes/s of sequential reads; 0: unknown
  double reached = 0.7;  // share of the limit that decoding reaches
  double reached_plain = 0.64;  // with kernels that are not made for the experts' shapes
  double reached_prefill = 0.4;
  std::string source;  // where the figures are from
};

// "gb10", "h200", or the path of a JSON file {name, bandwidth_gb_s, practical_gb_s?, tflops?,
// memory_gb?, disk_gb_s?, reached?, reached_plain?, reached_prefill?}. Error(kUsage) for an
// unknown name, Error(kInput) for a bad file.
Device find_device(const std::string& name);
Device parse_device(std::string_view json, const std::string& file);

}  // namespace spk
