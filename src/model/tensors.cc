// bind_tensors: the tensor table against a source. Precision is decided tensor by tensor from its
// own header entry and its companions, never from the config's lists.
#include "base/error.h"
#include "base/types.h"
#include "formats/numbers.h"
#include "formats/untrusted.h"
#include "model/tensor_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <unordered_set>

namespace spk {
namespace {

// VL checkpoints wrap the text model; the wrapper's name moved between releases of the exporting
// library. The body prefix replaces the leading "model.".
constexpr std::string_view kBodies[] = {"model.", "model.language_model.", "language_model.model.",
                                        "model.language_model.model."};
constexpr std::string_view kHeads[] = {"lm_head.", "language_model.lm_head.",
                                       "model.language_model.lm_head.", "model.lm_head."};
constexpr std::string_view kVision[] = {"model.visual.", "visual.", "linear_proj",
                                        "model.linear_proj"};

bool starts_with(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}
bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += cat(i ? ", " : "", shape[i]);
  return text + "]";
}

std::string formats_text(unsigned formats) {
  std::string text;
  for (int i = 0; i < kFormats; ++i) {
    const auto f = static_cast<Format>(i);
    if (formats & format_bit(f)) text += cat(text.empty() ? "" : ", ", format_name(f));
  }
  return text;
}

class Binder {
 public:
  Binder(const ModelConfig& config, const TensorSource& source, CheckScales when)
      : config_(config), source_(source), when_(when) {}

  TensorSet run() {
    if (is_empty())
      fail_input(printable(source_.name()),
                 ": expected weights (model.safetensors, or shards with ",
                 "model.safetensors.index.json), found none");
    find_prefixes();
    set_.source = &source_;
    set_.has_mtp = decide_mtp();
    for_each_expected(config_, set_.has_mtp, [&](const Expected& x) { bind(x); });
    note_unknown();
    complaints_.throw_if_any(cat(printable(source_.name()), ": the tensors do not fit the config"));
    set_.index.reserve(set_.tensors.size());
    for (size_t i = 0; i < set_.tensors.size(); ++i) set_.index.emplace(set_.tensors[i].name, i);
    return std::move(set_);
  }

 private:
  bool is_empty() const {
    bool empty = true;
    source_.for_each([&](const TensorBytes&) { empty = false; });
    return empty;
  }

  void find_prefixes() {
    for (const std::string_view body : kBodies) {
      if (source_.find(std::string(body) + "word_embeddings.weight")) {
        body_ = body;
        break;
      }
    }
    for (const std::string_view head : kHeads) {
      if (source_.find(std::string(head) + "weight")) {
        head_ = head;
        break;
      }
    }
  }
  std::string stored_name(std::string_view logical) const {
    constexpr std::string_view kBody = "model.";
    constexpr std::string_view kHead = "lm_head.";
    if (starts_with(logical, kBody)) return std::string(body_).append(logical.substr(kBody.size()));
    return std::string(head_).append(logical.substr(kHead.size()));
  }

  // Some exports repeat the embedding and the head under the draft layer; those are the main ones'
  // copies.
  static bool is_mtp_copy(std::string_view name) {
    return name.find(".shared_head.head") != std::string_view::npos ||
           name.find(".embed_tokens") != std::string_view::npos;
  }

  // Whether there are drafts is the tensors' word: a config may promise a layer that was never
  // exported, and a partly present layer must not run on memory nobody wrote (it is reported tensor
  // by tensor).
  bool decide_mtp() {
    const std::string prefix = stored_name(cat("model.layers.", config_.layers, "."));
    bool present = false;
    source_.for_each([&](const TensorBytes& t) {
      present = present || (starts_with(t.info->name, prefix) && !is_mtp_copy(t.info->name));
    });
    if (config_.mtp_layers > 0 && !present)
      set_.notes.emplace_back("drafts off: checkpoint has no MTP layer");
    if (config_.mtp_layers == 0 && present)
      set_.notes.emplace_back(
          "drafts off: num_nextn_predict_layers is 0, though the checkpoint has an MTP layer");
    return config_.mtp_layers > 0 && present;
  }

  template <typename... Args>
  void complain(const TensorBytes& t, Args&&... args) {
    complaints_.add(*t.file, ": ", printable(t.info->name), ": ", args...);
  }

  std::optional<TensorBytes> take(const std::string& name) {
    auto found = source_.find(name);
    if (found) used_.insert(found->info->name);
    return found;
  }

  void bind(const Expected& x) {
    std::string name = stored_name(x.name);
    std::optional<TensorBytes> plain = take(name);
    if (!x.alias.empty()) {
      const std::string alias = stored_name(x.alias);
      if (std::optional<TensorBytes> other = take(alias)) {
        if (plain) complain(*other, "present under both of its names");
        plain = other;
        name = alias;
      }
    }
    constexpr std::string_view kWeight = ".weight";
    std::optional<TensorBytes> packed;
    std::string base = name;
    if (ends_with(name, kWeight)) {
      base.resize(name.size() - kWeight.size());
      packed = take(base + ".weight_packed");
    }
    if (plain && packed) {
      complain(*packed, "expected one of .weight and .weight_packed, found both");
      return;
    }
    if (!plain && !packed) {
      complaints_.add(printable(source_.name()), ": ", printable(name), ": expected [", x.rows,
                      ", ", x.cols, "] (", formats_text(x.entry->formats), "), found nothing");
      return;
    }
    HostTensor t;
    t.rows = x.rows;
    t.cols = x.cols;
    const bool good = packed ? bind_int4(x, base, *packed, t) : bind_plain(x, name, *plain, t);
    if (!good) return;
    BoundTensor bound;
    bound.name = x.name;
    bound.component = x.component;
    bound.layer = x.layer;
    bound.expert = x.expert;
    bound.tensor = t;
    set_.tensors.push_back(std::move(bound));
  }

  bool check_shape(const TensorBytes& t, const std::vector<int64_t>& expected) {
    if (t.info->shape == expected) return true;
    complain(t, "expected shape ", shape_text(expected), ", found ", shape_text(t.info->shape));
    return false;
  }

  bool check_format(const Expected& x, const TensorBytes& t, Format format) {
    if (x.entry->formats & format_bit(format)) return true;
    complain(t, "expected ", formats_text(x.entry->formats), ", found ", format_name(format));
    return false;
  }

  bool bind_plain(const Expected& x, const std::string& name, const TensorBytes& found,
                  HostTensor& t) {
    const std::optional<TensorBytes> scales = take(name + "_scale_inv");
    t.name = found.info->name;
    t.data = found.data;
    switch (found.info->type) {
      case StoredType::kF32:
        t.format = Format::kF32;
        break;
      case StoredType::kBf16:
        t.format = Format::kBf16;
        break;
      case StoredType::kF8E4m3:
        t.format = Format::kFp8;
        break;
      case StoredType::kI8:
      case StoredType::kU8:
        t.format = Format::kMxfp4;
        break;
      default:
        complain(found, "expected ", formats_text(x.entry->formats), ", found dtype ",
                 stored_type_name(found.info->type));
        return false;
    }
    if (!check_format(x, found, t.format)) return false;
    if (t.format == Format::kF32 || t.format == Format::kBf16) {
      if (scales) {
        complain(*scales, "expected no scales beside a ", format_name(t.format),
                 " tensor, found some");
        return false;
      }
      return check_plain_shape(x, found);
    }
    if (!scales) {
      complain(found, "expected scales in ", printable(name), "_scale_inv, found none");
      return false;
    }
    if (t.format == Format::kFp8) {
      return check_shape(found, {x.rows, x.cols}) && bind_scales(*scales, t) &&
             check_shape(*scales, {ceil_div(x.rows, kFp8Block), ceil_div(x.cols, kFp8Block)}) &&
             check_scales(*scales, t);
    }
    if (!bind_scales(*scales, t)) return false;
    if (t.scale_type != ScaleType::kE8m0) {
      complain(*scales, "expected U8 or F8_E8M0 scales of an MXFP4 tensor, found ",
               stored_type_name(scales->info->type));
      return false;
    }
    return check_groups(x, found) && check_shape(found, {x.rows, x.cols / 2}) &&
           check_shape(*scales, {x.rows, x.cols / kGroup}) && check_scales(*scales, t);
  }

  bool check_groups(const Expected& x, const TensorBytes& found) {
    if (x.cols % kGroup == 0) return true;
    complain(found, "expected a multiple of 32 columns for 4-bit groups, found ", x.cols);
    return false;
  }

  bool check_plain_shape(const Expected& x, const TensorBytes& found) {
    const std::vector<int64_t>& shape = found.info->shape;
    switch (x.entry->stored) {
      case Stored::kMatrix:
        return check_shape(found, {x.rows, x.cols});
      case Stored::kVector:
        return check_shape(found, {x.cols});
      case Stored::kConv:
        if (shape == std::vector<int64_t>{x.rows, x.cols}) return true;
        return check_shape(found, {x.rows, 1, x.cols});
      case Stored::kFlat: {
        int64_t count = 1;
        for (const int64_t n : shape) count *= n;  // the header's check bounds the product
        if (count == x.cols) return true;
        complain(found, "expected ", x.cols, " elements, found shape ", shape_text(shape));
        return false;
      }
    }
    return false;
  }

  bool bind_int4(const Expected& x, const std::string& base, const TensorBytes& packed,
                 HostTensor& t) {
    const std::optional<TensorBytes> scales = take(base + ".weight_scale");
    const std::optional<TensorBytes> shape = take(base + ".weight_shape");
    constexpr std::string_view kPacked = "_packed";
    t.name =
        std::string_view(packed.info->name).substr(0, packed.info->name.size() - kPacked.size());
    t.data = packed.data;
    t.format = Format::kInt4;
    if (!check_format(x, packed, t.format)) return false;
    if (packed.info->type != StoredType::kI32) {
      complain(packed, "expected I32, found ", stored_type_name(packed.info->type));
      return false;
    }
    if (!scales) {
      complain(packed, "expected scales in ", printable(base), ".weight_scale, found none");
      return false;
    }
    if (shape) {
      int64_t stored[2] = {};
      if (shape->info->type != StoredType::kI64 || shape->info->bytes != sizeof stored) {
        complain(*shape, "expected I64 [2], found ", stored_type_name(shape->info->type), " ",
                 shape_text(shape->info->shape));
        return false;
      }
      std::memcpy(stored, shape->data, sizeof stored);
      if (stored[0] != x.rows || stored[1] != x.cols) {
        complain(*shape, "expected (", x.rows, ", ", x.cols, "), found (", stored[0], ", ",
                 stored[1], ")");
        return false;
      }
    }
    if (scales->info->type != StoredType::kBf16) {
      complain(*scales, "expected BF16 scales of an INT4 tensor, found ",
               stored_type_name(scales->info->type));
      return false;
    }
    return bind_scales(*scales, t) && check_groups(x, packed) &&
           check_shape(packed, {x.rows, x.cols / 8}) &&
           check_shape(*scales, {x.rows, x.cols / kGroup}) && check_scales(*scales, t);
  }

  // U8 means E8M0: exporters without the dtype write the same bytes under that name. Taken as plain
  // numbers the weights would be wrong by some five orders of magnitude.
  bool bind_scales(const TensorBytes& scales, HostTensor& t) {
    t.scales = scales.data;
    switch (scales.info->type) {
      case StoredType::kF32:
        t.scale_type = ScaleType::kF32;
        return true;
      case StoredType::kBf16:
        t.scale_type = ScaleType::kBf16;
        return true;
      case StoredType::kU8:
      case StoredType::kF8E8m0:
        t.scale_type = ScaleType::kE8m0;
        return true;
      default:
        complain(scales, "unknown dtype of scales: expected F32, BF16, U8 or F8_E8M0, found ",
                 stored_type_name(scales.info->type));
        return false;
    }
  }

  bool check_scales(const TensorBytes& scales, const HostTensor& t) {
    if (when_ == CheckScales::kLater) return true;
    const int64_t bad =
        first_bad_scale(t.scale_type, t.scales, scale_count(t.format, t.rows, t.cols));
    if (bad >= 0) {
      complain(scales, "scale ", bad, ": ",
               t.scale_type == ScaleType::kE8m0
                   ? "expected an E8M0 code below 255, found 255 (NaN)"
                   : "expected a finite number, found NaN or infinity");
    }
    source_.drop(scales.data, scales.info->bytes);
    return bad < 0;
  }

  void note_unknown() {
    bool vision = false;
    std::string list;
    size_t unknown = 0;
    const std::string skipped = stored_name("model.mtp");
    const std::string mtp = stored_name(cat("model.layers.", config_.layers, "."));
    std::unordered_set<std::string> bases;
    for (const std::string_view name : used_) bases.emplace(name.substr(0, name.rfind('.')));
    source_.for_each([&](const TensorBytes& t) {
      const std::string& name = t.info->name;
      if (used_.count(name)) return;
      for (const std::string_view start : kVision) {
        if (starts_with(name, start)) {
          vision = true;
          return;
        }
      }
      if (starts_with(name, "model.mtp") || starts_with(name, skipped)) return;
      if (!config_.cut && layer_of(name) > config_.layers) {
        complain(t, "expected layers below num_hidden_layers = ", config_.layers,
                 " (and an MTP layer), found ", layer_of(name));
        return;
      }
      if (starts_with(name, mtp) && (is_mtp_copy(name) || !set_.has_mtp)) return;
      if (ends_with(name, ".rotary_emb.inv_freq")) return;  // recomputed from the config
      // "model.layers.3" is the base of A_log's neighbours; only a projection's own companions
      // change its meaning.
      if (bases.count(name.substr(0, name.rfind('.'))) && is_companion(name)) {
        complain(
            t,
            "unknown companion of a tensor of the model (leaving it out would change the model)");
        return;
      }
      if (++unknown <= 8) list += cat(list.empty() ? "" : ", ", printable(name));
    });
    if (vision || config_.vision_wrapper) set_.notes.emplace_back("pictures are not supported");
    if (unknown)
      set_.notes.push_back(cat("ignored ", unknown, " unknown tensor", unknown > 1 ? "s" : "", ": ",
                               list, unknown > 8 ? ", ..." : ""));
  }
  // The number after "layers.", or -1.
  int64_t layer_of(std::string_view name) const {
    const std::string prefix = stored_name("model.layers.");
    if (!starts_with(name, prefix)) return -1;
    int64_t layer = -1;
    std::from_chars(name.data() + prefix.size(), name.data() + name.size(), layer);
    return layer;
  }
  static bool is_companion(std::string_view name) {
    const std::string_view last = name.substr(name.rfind('.') + 1);
    return last == "bias" || starts_with(last, "weight") || ends_with(last, "scale") ||
           ends_with(last, "zero_point");
  }

  const ModelConfig& config_;
  const TensorSource& source_;
  CheckScales when_;
  std::string_view body_ = kBodies[0];
  std::string_view head_ = kHeads[0];
  TensorSet set_;
  Complaints complaints_;
  std::unordered_set<std::string_view> used_;
};

}  // namespace

std::string_view component_name(Component component) {
  constexpr std::string_view kNames[kComponents] = {"embeddings",    "head",  "norms",  "kda",
                                                    "mla",           "dense", "router", "experts",
                                                    "shared expert", "mtp"};
  return kNames[static_cast<size_t>(component)];
}

const BoundTensor* TensorSet::find(std::string_view name) const {
  const auto it = index.find(name);
  return it == index.end() ? nullptr : &tensors[it->second];
}
const BoundTensor& TensorSet::at(std::string_view name) const {
  const BoundTensor* found = find(name);
  SPK_CHECK(found);
  return *found;
}

TensorSet bind_tensors(const ModelConfig& config, const TensorSource& source, CheckScales when) {
  TensorSet set = Binder(config, source, when).run();
  if (!source.has_values()) return set;
  std::vector<std::string> notes = implausible_experts(config, set);
  set.notes.insert(set.notes.end(), notes.begin(), notes.end());
  return set;
}

}  // namespace spk
