// load_model: bound tensors into a back end.
#include "model/model.h"

#include "base/error.h"
#include "formats/numbers.h"
#include "formats/untrusted.h"
#include "model/tensor_table.h"

#include <map>
#include <mutex>
#include <set>

namespace spk {
namespace {

// What finish_uploads() reads is checked as it comes by, by many readers at once.
class LateUploads final : public UploadSource {
 public:
  LateUploads(const TensorSource& source, LoadProgress* progress)
      : source_(source), progress_(progress) {}

  std::span<const std::byte> file_of(const std::byte* data) const override {
    return source_.file_of(data);
  }
  const std::byte* read(const std::byte* data, size_t bytes, std::byte* buffer) override {
    return source_.read(data, bytes, buffer);
  }
  void arrived(const StoredBytes& part, const std::byte* found) override {
    if (progress_ != nullptr) progress_->done += static_cast<int64_t>(part.bytes);
    if (part.scales == ScaleType::kNone) {
      if (codes_are_numbers(part.format, found, part.bytes)) return;
      const std::lock_guard lock(mutex_);
      bad_codes_.emplace(part.tensor, part.format);  // once, however many pieces
      return;
    }
    const int64_t count = static_cast<int64_t>(part.bytes) / scale_bytes(part.scales);
    if (first_bad_scale(part.scales, found, count) < 0) return;
    const std::lock_guard lock(mutex_);
    bad_scales_.emplace(part.tensor);
  }
  void complain(Complaints& complaints) const {
    for (const auto& [tensor, format] : bad_codes_) complaints.add(not_numbers(tensor, format));
    for (const std::string& tensor : bad_scales_)
      complaints.add(printable(tensor), ": expected numbers, found NaN or infinity in its scales");
  }
  static std::string not_numbers(std::string_view tensor, Format format) {
    return cat(printable(tensor), ": expected numbers, found NaN or infinity among the ",
               format_name(format), " codes");
  }

 private:
  const TensorSource& source_;
  LoadProgress* progress_;
  std::mutex mutex_;
  std::map<std::string, Format> bad_codes_;
  std::set<std::string> bad_scales_;
};

// Tensors of a test may belong to no source: then they lie in memory.
class InMemory final : public TensorSource {
 public:
  std::string_view name() const override { return "memory"; }
  std::optional<TensorBytes> find(std::string_view) const override { return std::nullopt; }
  void for_each(const std::function<void(const TensorBytes&)>&) const override {}
  void drop(const std::byte*, size_t) const override {}
};

void set_layer(const ModelConfig& config, int64_t l, bool is_mla, bool is_moe, Layer& layer) {
  layer.is_mla = is_mla;
  layer.is_moe = is_moe;
  if (!is_moe) return;
  layer.moe.experts.resize(static_cast<size_t>(config.shape.experts));
  layer.moe.index =
      l - config.dense_layers;     // the MTP layer's column is the last: layers - dense_layers
  if (l == config.layers) return;  // the draft layer is not clamped
  layer.moe.routed_limit = config.routed_limits[static_cast<size_t>(l)];
  layer.moe.shared_limit = config.shared_limits[static_cast<size_t>(l)];
}

void load_heads(const HostTensor& stored, const HeadOptions& heads, Backend& backend,
                Model& model) {
  // FP8 as stored has a scale a block: made anew by rows it would only lose.
  const bool kept = heads.format == HeadFormat::kFp8 && stored.format == Format::kFp8;
  model.head =
      LmHead(backend, stored, kept ? HeadFormat::kStored : heads.format, {}, heads.threads);
  if (heads.draft_rows.empty()) return;
  const bool four = stored.cols % kGroup == 0;
  model.draft_head.emplace(backend, stored, four ? HeadFormat::kMxfp4 : HeadFormat::kFp8,
                           heads.draft_rows, heads.threads);
}

}  // namespace

Model load_model(const ModelConfig& config, const TensorSet& tensors, Backend& backend,
                 const HeadOptions& heads, LoadProgress* progress,
                 const std::function<bool(const BoundTensor&)>& wanted) {
  Model model;
  model.config = config;
  model.notes = tensors.notes;
  model.layers.resize(static_cast<size_t>(config.layers));
  for (int64_t l = 0; l < config.layers; ++l) {
    const auto i = static_cast<size_t>(l);
    set_layer(config, l, config.is_mla[i], config.is_moe(l), model.layers[i]);
  }
  if (tensors.has_mtp) {
    model.mtp.emplace();
    set_layer(config, config.layers, true, true, model.mtp->layer);
  }

  const InMemory memory;
  const TensorSource& source = tensors.source ? *tensors.source : memory;
  Complaints complaints;
  int64_t bytes = 0;
  size_t next = 0;
  for_each_expected(config, tensors.has_mtp, [&](const Expected& x) {
    // bind_tensors kept the table's order.
    const BoundTensor& bound = tensors.tensors.at(next++);
    const HostTensor& t = bound.tensor;
    if (wanted && !wanted(bound)) return;
    SPK_CHECK(t.rows == x.rows && t.cols == x.cols);
    const auto codes = static_cast<size_t>(code_bytes(t.format, t.rows, t.cols));
    const size_t scales = static_cast<size_t>(t.bytes()) - codes;
    bytes += t.bytes();
    // A head that is made here is read here: what a back end then moves are other codes, in which a
    // NaN may no longer show.
    const bool is_made = x.entry->component == Component::kHead &&
                         (heads.format != HeadFormat::kStored || !heads.draft_rows.empty());
    if (!backend.uploads_late() || is_made) {
      source.recall(t.data, codes);
      if (scales > 0) source.recall(t.scales, scales);
      if (progress != nullptr && !backend.uploads_late()) progress->done += t.bytes();
      if (!codes_are_numbers(t.format, t.data, codes))
        complaints.add(LateUploads::not_numbers(t.name, t.format));
    }
    if (x.entry->component == Component::kHead) {
      if (complaints.empty()) load_heads(t, heads, backend, model);
      if (heads.format != HeadFormat::kStored) source.drop(t.data, codes);
      return;
    }
    bool kept = false;         // the back end reads the source's own bytes: their pages are wanted
    if (complaints.empty()) {  // otherwise go on looking, but do not fill memory for nothing
      Slot slot;
      slot.model = &model;
      slot.expert = x.expert;
      if (x.layer == config.layers) {
        slot.mtp = &*model.mtp;
        slot.layer = &model.mtp->layer;
      } else if (x.layer >= 0) {
        slot.layer = &model.layers[static_cast<size_t>(x.layer)];
      }
      Weight& weight = x.entry->weight(slot);
      const bool expert = x.expert >= 0 || x.entry->component == Component::kShared;
      weight = expert ? backend.upload_expert(t) : backend.upload(t);
      kept = weight.data.handle == t.data;
      if (weight.packed && !backend.uploads_late()) {
        source.forget(t.data, codes);
        source.forget(t.scales, scales);
        return;
      }
    }
    if (!kept && !backend.uploads_late()) source.drop(t.data, codes);
  });
  complaints.throw_if_any("weights that are not numbers");
  LateUploads late(source, progress);
  backend.finish_uploads(late);
  late.complain(complaints);
  complaints.throw_if_any("weights that are not numbers");
  if (progress != nullptr) progress->done = bytes;  // a head made here was counted as it was made
  return model;
}

int64_t ModelSizes::pass_weight_bytes() const {
  int64_t sum = 0;
  for (int c = 0; c < kComponents; ++c)
    if (static_cast<Component>(c) != Component::kMtp) sum += component_token_bytes[c];
  return sum;
}

ModelSizes model_sizes(const ModelConfig& config, const TensorSet& tensors) {
  const ModelShape& s = config.shape;
  ModelSizes sizes;
  for (const BoundTensor& bound : tensors.tensors) {
    const HostTensor& t = bound.tensor;
    const auto component = static_cast<size_t>(bound.component);
    const int64_t parameters = t.rows * t.cols;
    const bool mtp = bound.component == Component::kMtp;
    // The first top_k experts stand for the chosen ones.
    const bool routed = bound.expert >= 0;
    sizes.total_parameters += parameters;
    sizes.weight_bytes += t.bytes();
    sizes.component_bytes[component] += t.bytes();
    if (!mtp) sizes.main_parameters += parameters;
    if (routed && bound.expert >= s.top_k) continue;
    if (!mtp) sizes.active_parameters += parameters;
    sizes.component_token_bytes[component] +=
        bound.component == Component::kEmbed ? t.bytes() / t.rows : t.bytes();
  }
  int64_t mla = 0;
  for (const bool is_mla : config.is_mla) mla += is_mla ? 1 : 0;
  const int64_t kda = config.layers - mla;
  const int64_t latent = (mla + (tensors.has_mtp ? 1 : 0)) * (s.latent + s.rope);
  sizes.latent_bytes_per_token_exact = latent * 4;
  sizes.latent_bytes_per_token_fast = latent * 2;
  sizes.recurrent_bytes = kda * s.heads * s.head_dim * s.head_dim * 4;
  sizes.conv_bytes = kda * 3 * (s.conv_kernel - 1) * s.heads * s.head_dim * 4;
  sizes.state_bytes = sizes.recurrent_bytes + sizes.conv_bytes;
  return sizes;
}

}  // namespace spk
