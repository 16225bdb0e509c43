// The tensor table: one declarative row per kind of tensor of the family.
//
// Binding, uploading, counting, synthetic weights and the tests' checkpoint writer all read this
// one table; a new member of the family adds rows or aliases here. Private to model/ (and its
// tests).
#pragma once

#include "model/config.h"
#include "model/model.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace spk {

// Which layers hold the tensor.
enum class Where : uint8_t {
  kGlobal,  // name as written
  kMtp,     // under the MTP layer's prefix
  kEveryLayer,
  kKda,
  kMla,
  kMlaQ,      // MLA with one q_proj
  kMlaQLora,  // MLA with the q_a / q_b pair
  kDense,
  kMoe,
  kExpert,  // "{e}" in the name
};

// What a stored shape may look like.
enum class Stored : uint8_t {
  kMatrix,  // [rows, cols]
  kVector,  // [cols]
  kFlat,    // any shape with cols elements (A_log is [H] or [1, 1, H, 1])
  kConv,    // [rows, cols] or [rows, 1, cols]
};

inline constexpr unsigned format_bit(Format f) { return 1u << static_cast<unsigned>(f); }
inline constexpr unsigned kPlain = format_bit(Format::kF32) | format_bit(Format::kBf16);
inline constexpr unsigned kPlainFp8 = kPlain | format_bit(Format::kFp8);
inline constexpr unsigned kAny = kPlainFp8 | format_bit(Format::kMxfp4) | format_bit(Format::kInt4);

// Where an uploaded weight goes.
struct Slot {
  Model* model = nullptr;
  MtpLayer* mtp = nullptr;
  Layer* layer = nullptr;
  int64_t expert = -1;
};

struct TensorEntry {
  std::string_view pattern;  // after the layer's prefix; "{e}" is the expert's number
  std::string_view alias;    // another pattern of the same tensor, or empty
  Where where;
  Component component;
  Stored stored;
  unsigned formats;                    // what may be stored, format_bit()s
  Format fp4;                          // what the fp4 release stores
  int64_t (*rows)(const ModelShape&);  // 1 for vectors
  int64_t (*cols)(const ModelShape&);
  Weight& (*weight)(const Slot&);
};
std::span<const TensorEntry> tensor_table();

// One tensor that a config asks for.
struct Expected {
  const TensorEntry* entry = nullptr;
  std::string name;     // logical name, ends in .weight unless the checkpoint's does not
  std::string alias;    // or empty
  Component component;  // the entry's; kMtp for all of the MTP layer
  int64_t layer = -1;   // -1: global; config.layers: MTP
  int64_t expert = -1;
  int64_t rows = 0;
  int64_t cols = 0;
};
void for_each_expected(const ModelConfig& config, bool with_mtp,
                       const std::function<void(const Expected&)>& visit);

// A warning when the routed experts' gain is out of all proportion to the shared expert's (wrong
// scale bias), else none.
std::vector<std::string> implausible_experts(const ModelConfig& config, const TensorSet& set);

}  // namespace spk
