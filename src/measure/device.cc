#include "measure/device.h"

#include "base/error.h"
#include "base/file.h"
#include "formats/untrusted.h"
#include "measure/json_row.h"

#include <nlohmann/json.hpp>

#include <cmath>

namespace spk {
namespace {

using Json = nlohmann::json;

// DGX Spark: 273 GB/s LPDDR5X, 128 GB and 125 TFLOP/s are the datasheet's; 230 GB/s is what users
// measured. Shares: published decoding there, 36.09 tok/s before and 39.45 after kernels for the
// experts' shapes, is 64 and 70 % of the limit; prefill of 3.85K tok/s is 31 % of the BF16 peak.
//
// H200 SXM: 4.8 TB/s, 141 GB and 989 TFLOP/s dense BF16 are the datasheet's; 4.66 TB/s is what a
// kernel that only reads reached. No published engine runs this model well there: the shares are
// those of the Spark.
struct Known {
  const char* key;
  Device device;
};
const Known kKnown[] = {
    {"gb10",
     {"DGX Spark (GB10)", 273e9, 230e9, 125e12, 128e9, 5e9, 0.70, 0.64, 0.31,
      "datasheet; practical bandwidth and shares as published; disk assumed"}},
    {"h200",
     {"H200", 4800e9, 4660e9, 989e12, 141e9, 6e9, 0.70, 0.64, 0.31,
      "datasheet; practical bandwidth measured; shares as on the Spark; disk assumed"}},
};

// A number of a device that can be, times `unit`; `otherwise` where it is absent.
double number(const Json& json, const char* key, double unit, double high, double otherwise,
              const std::string& file) {
  constexpr double kLeast = 0.001;  // a megabyte a second; what is less makes numbers of 60 digits
  const auto at = json.find(key);
  if (at == json.end()) return otherwise;
  if (!at->is_number() || at->get<double>() < kLeast || at->get<double>() > high)
    fail_input(file, ": ", key, ": expected a number from ", kLeast, " to ", high, ", found ",
               at->dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60));
  return at->get<double>() * unit;
}

}  // namespace

Device parse_device(std::string_view text, const std::string& file) {
  const Json json = Json::parse(json_row(text, file), nullptr, false);
  if (!json.is_object())
    fail_input(file, ": expected one JSON object that describes a device, found something else");
  static constexpr const char* kKeys[] = {"name",    "bandwidth_gb_s", "practical_gb_s",
                                          "tflops",  "memory_gb",      "disk_gb_s",
                                          "reached", "reached_plain",  "reached_prefill"};
  for (const auto& [key, value] : json.items()) {
    bool known = false;
    for (const char* k : kKeys) known = known || key == k;
    if (known) continue;
    std::string names;
    for (const char* k : kKeys) names += cat(names.empty() ? "" : ", ", k);
    fail_input(file, ": expected the keys ", names, ", found '", printable(key), "'");
  }
  const auto get = [&](const char* key, double unit, double high, double otherwise) {
    return number(json, key, unit, high, otherwise, file);
  };
  Device d;
  d.name = file;
  if (const auto name = json.find("name"); name != json.end()) {
    if (!name->is_string()) fail_input(file, ": name: expected a text, found ", name->type_name());
    d.name = printable(name->get_ref<const std::string&>());
  }
  d.bandwidth = get("bandwidth_gb_s", 1e9, 1e6, 0);
  if (d.bandwidth == 0) fail_input(file, ": expected bandwidth_gb_s, found no such key");
  d.practical = get("practical_gb_s", 1e9, 1e6, 0);
  if (d.practical > d.bandwidth)
    fail_input(file, ": practical_gb_s: expected at most bandwidth_gb_s, ", d.bandwidth / 1e9,
               ", found ", d.practical / 1e9);
  d.compute = get("tflops", 1e12, 1e6, 0);
  d.memory = get("memory_gb", 1e9, 1e6, 0);
  d.disk = get("disk_gb_s", 1e9, 1e6, 0);
  d.reached = get("reached", 1, 1, d.reached);
  d.reached_plain = get("reached_plain", 1, 1, d.reached_plain);
  d.reached_prefill = get("reached_prefill", 1, 1, d.reached_prefill);
  d.source = file;
  return d;
}

Device find_device(const std::string& name) {
  for (const Known& known : kKnown)
    if (name == known.key) return known.device;
  if (name.find('/') == std::string::npos && name.find('.') == std::string::npos)
    fail_usage("--device: expected gb10, h200 or a JSON file, found '", name, "'");
  return parse_device(read_input(name, 1 << 20), name);
}

}  // namespace spk
