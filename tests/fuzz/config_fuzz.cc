// Fuzz target: config.json, then everything that is sized by an accepted config.
#include "base/error.h"
#include "formats/checkpoint.h"
#include "model/config.h"
#include "model/model.h"

#include <cmath>
#include <cstdint>
#include <string_view>

namespace spk {
namespace {

void check_config(const ModelConfig& c) {
  const ModelShape& s = c.shape;
  SPK_CHECK(c.layers >= 1 && c.dense_layers >= 0 && c.dense_layers <= c.layers);
  const auto layers = static_cast<size_t>(c.layers);
  SPK_CHECK(c.is_mla.size() == layers && c.routed_limits.size() == layers &&
            c.shared_limits.size() == layers);
  SPK_CHECK(s.experts % s.groups == 0 && s.top_k <= s.keep_groups * (s.experts / s.groups));
  SPK_CHECK(s.rope_freq.size() == static_cast<size_t>(s.rope / 2) && c.context >= 1);
  for (const double f : s.rope_freq) SPK_CHECK(std::isfinite(f) && f >= 0);
  SPK_CHECK(std::isfinite(s.rope_factor));
  for (const int32_t id : c.eos) SPK_CHECK(id >= 0 && id < s.vocab);
}

void try_config(std::string_view text) {
  ModelConfig c = parse_config(text, "fuzz");
  check_config(c);
  for (const char* option : {"yarn:4", "none", "yarn:1"}) {
    apply_rope_scaling(c, option);
    check_config(c);
  }
  if (c.layers * c.shape.experts > 2000) return;  // the walk below is long, not deep
  const auto empty = Checkpoint::from_memory("fuzz", {});
  try {
    bind_tensors(c, *empty);
    SPK_CHECK(false);  // no tensor is there
  } catch (const Error&) {
  }
  keep_layers(c, 1);
  check_config(c);
}

}  // namespace
}  // namespace spk

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    spk::try_config({reinterpret_cast<const char*>(data), size});
  } catch (const spk::Error& error) {
    SPK_CHECK(error.kind() == spk::ErrorKind::kInput && *error.what() != '\0');
  }
  return 0;
}
