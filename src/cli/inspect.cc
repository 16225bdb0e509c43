#include "cli/inspect.h"

#include "base/error.h"
#include "base/log.h"
#include "cli/machine.h"
#include "cli/output.h"
#include "cli/values.h"
#include "cli/verbs.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace spk::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string pad(const std::string& text, size_t width) {
  return text + std::string(width > text.size() ? width - text.size() : 1, ' ');
}
std::string right(const std::string& text, size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}
std::string bytes(int64_t n) { return show_bytes(static_cast<double>(n)); }

// Letters of the layers, a blank after each group.
template <typename Letter>
std::string draw(const ModelConfig& config, Letter letter) {
  std::string line;
  for (int64_t i = 0; i < config.layers; ++i) {
    if (config.group > 0 && i > 0 && i % config.group == 0) line += ' ';
    line += letter(i);
  }
  return line;
}

struct Fit {
  int64_t need = 0;       // weights + caches for the config's context
  int64_t available = 0;  // MemAvailable
  bool fits = false;
  int64_t context = 0;  // the longest that fits
};

Fit fit(const Inspection& model, const Machine& machine) {
  Fit f;
  f.need = model.sizes.weight_bytes + model.cache_bytes(model.config.context);
  f.available = static_cast<int64_t>(machine.memory_available);
  f.fits = f.need <= f.available;
  const int64_t room = f.available - model.sizes.weight_bytes - model.sizes.state_bytes;
  const int64_t per_token = std::max<int64_t>(model.sizes.latent_bytes_per_token_exact, 1);
  f.context = std::clamp<int64_t>(room / per_token, 0, model.config.context);
  return f;
}

Json config_json(const Inspection& m) {
  const ModelShape& s = m.config.shape;
  Json c;
  c["architecture"] = m.config.architecture;
  c["layers"] = m.config.layers;
  c["mtp_layers"] = m.has_mtp ? 1 : 0;
  c["layer_group_size"] = m.config.group;
  c["hidden_size"] = s.hidden;
  c["vocab_size"] = s.vocab;
  c["heads"] = s.heads;
  c["head_dim"] = s.head_dim;
  c["q_lora_rank"] = s.q_lora;
  c["kv_lora_rank"] = s.latent;
  c["qk_nope_head_dim"] = s.nope;
  c["qk_rope_head_dim"] = s.rope;
  c["v_head_dim"] = s.v_dim;
  c["intermediate_size"] = s.dense;
  c["experts"] = s.experts;
  c["experts_per_token"] = s.top_k;
  c["groups"] = s.groups;
  c["groups_kept"] = s.keep_groups;
  c["moe_intermediate_size"] = s.expert_dim;
  c["shared_width"] = s.shared_dim;
  c["routed_scaling_factor"] = s.routed_scale;
  c["context"] = m.config.context;
  c["rope_theta"] = m.config.rope_theta;
  c["rope_scaling_factor"] = m.config.rope_scaling.factor;
  c["routed_limits"] = m.config.routed_limits;
  c["shared_limits"] = m.config.shared_limits;
  c["eos_token_id"] = m.config.eos;
  return c;
}

std::string report_json(const Inspection& m, const Machine& machine) {
  Json root;
  root["model"] = m.name;
  root["config"] = config_json(m);
  root["schedule"] = {{"mixer", m.mixer_line()}, {"ffn", m.ffn_line()}};
  root["parameters"] = {{"total", m.sizes.total_parameters},
                        {"main", m.sizes.main_parameters},
                        {"active", m.sizes.active_parameters}};
  Json components = Json::array();
  for (int i = 0; i < kComponents; ++i) {
    const auto component = static_cast<Component>(i);
    Json formats = Json::object();
    for (const auto& [key, share] : m.stored) {
      if (key.first != component) continue;
      formats[std::string(format_name(key.second))] = {{"tensors", share.tensors},
                                                       {"bytes", share.bytes}};
    }
    if (formats.empty()) continue;
    components.push_back({{"name", component_name(component)},
                          {"bytes", m.sizes.component_bytes[i]},
                          {"bytes_per_token", m.token_bytes(component)},
                          {"formats", formats}});
  }
  root["components"] = components;
  root["weight_bytes"] = m.sizes.weight_bytes;
  root["bytes_per_token"] = m.token_bytes();
  root["cache_bytes_per_token"] = {{"exact", m.sizes.latent_bytes_per_token_exact},
                                   {"fast", m.sizes.latent_bytes_per_token_fast}};
  root["state_bytes"] = m.sizes.state_bytes;
  const Fit f = fit(m, machine);
  root["fits"] = {{"fits", f.fits},
                  {"needed_bytes", f.need},
                  {"available_bytes", f.available},
                  {"context_that_fits", f.context}};
  root["notes"] = m.notes;
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string config_text(const Inspection& m) {
  const ModelConfig& c = m.config;
  const ModelShape& s = c.shape;
  std::string out = cat("config    ", c.architecture, ": ", c.layers, " layers",
                        m.has_mtp ? " + 1 MTP" : "", ", hidden ", s.hidden, ", ", s.heads,
                        " heads of ", s.head_dim, ", vocabulary ", s.vocab, "\n");
  out += cat("          MLA latent ", s.latent, ", nope ", s.nope, ", rope ", s.rope, ", value ",
             s.v_dim, s.q_lora > 0 ? cat(", query rank ", s.q_lora) : "", "\n");
  out += cat("          ", s.experts, " experts of ", s.expert_dim, ", ", s.top_k, " used, ",
             s.keep_groups, " of ", s.groups, " groups, shared ", s.shared_dim, ", dense ", s.dense,
             "\n");
  out += cat("          context ", c.context, " tokens, rope theta ", c.rope_theta,
             c.rope_scaling.factor > 1 ? cat(", YaRN factor ", c.rope_scaling.factor) : "", "\n");
  const auto clamped = [](const std::vector<double>& limits) {
    return std::count_if(limits.begin(), limits.end(), [](double x) { return x > 0; });
  };
  out += cat("          SwiGLU clamps: routed in ", clamped(c.routed_limits), " layers, shared in ",
             clamped(c.shared_limits), "\n");
  out += cat("layers    ", m.mixer_line(), "   K: KDA, M: MLA\n");
  out += cat("          ", m.ffn_line(), "   d: dense, e: experts\n");
  return out;
}

std::string tensors_text(const Inspection& m) {
  std::string out = "\ncomponent     format   tensors        bytes    read per token\n";
  for (int i = 0; i < kComponents; ++i) {
    const auto component = static_cast<Component>(i);
    bool first = true;
    for (const auto& [key, share] : m.stored) {
      if (key.first != component) continue;
      out += pad(first ? std::string(component_name(component)) : "", 14);
      out += pad(std::string(format_name(key.second)), 9);
      out += right(std::to_string(share.tensors), 7) + right(bytes(share.bytes), 13);
      if (first && component != Component::kMtp) out += right(bytes(m.token_bytes(component)), 18);
      if (first && component == Component::kMtp) out += right("with drafts only", 18);
      out += "\n";
      first = false;
    }
  }
  return out + pad("total", 23) + right("", 7) + right(bytes(m.sizes.weight_bytes), 13) +
         right(bytes(m.token_bytes()), 18) + "\n";
}

std::string report_text(const Inspection& m, const Machine& machine) {
  std::string out = cat("model     ", m.name, "\n", config_text(m));
  out += cat("params    total ", show_count(static_cast<double>(m.sizes.total_parameters)),
             ", main ", show_count(static_cast<double>(m.sizes.main_parameters)), ", active ",
             show_count(static_cast<double>(m.sizes.active_parameters)), "\n");
  out += tensors_text(m);
  out +=
      cat("\ncache     ", bytes(m.sizes.latent_bytes_per_token_exact), " a token exact, ",
          bytes(m.sizes.latent_bytes_per_token_fast),
          " fast, if kept in BF16, which no back end does yet; ",
          bytes(m.cache_bytes(m.config.context)), " for ", m.config.context, " tokens (exact)\n");
  out += cat("state     ", bytes(m.sizes.state_bytes), " recurrent\n");
  const Fit f = fit(m, machine);
  out += cat("memory    needs ", bytes(f.need), ", available ", bytes(f.available), ": ");
  if (f.fits) {
    out += "fits\n";
  } else if (f.context > 0) {
    out += cat("fits with a context of ", f.context, " tokens\n");
  } else {
    out += "does not fit\n";
  }
  for (const std::string& note : m.notes) out += cat("note      ", note, "\n");
  return out;
}

}  // namespace

int64_t Inspection::token_bytes(Component component) const {
  // Decoding without drafts leaves the MTP layer alone.
  return component == Component::kMtp ? 0
                                      : sizes.component_token_bytes[static_cast<int>(component)];
}

int64_t Inspection::token_bytes() const {
  int64_t sum = 0;
  for (int i = 0; i < kComponents; ++i) sum += token_bytes(static_cast<Component>(i));
  return sum;
}

int64_t Inspection::cache_bytes(int64_t context) const {
  return sizes.state_bytes + context * sizes.latent_bytes_per_token_exact;
}

std::string Inspection::mixer_line() const {
  return draw(config,
              [&](int64_t i) { return config.is_mla[static_cast<size_t>(i)] ? 'M' : 'K'; }) +
         (has_mtp ? " + M" : "");
}
std::string Inspection::ffn_line() const {
  return draw(config, [&](int64_t i) { return config.is_moe(i) ? 'e' : 'd'; }) +
         (has_mtp ? " + e" : "");
}

Inspection inspect_model(const OpenedModel& model) {
  Inspection m;
  m.name = model.name;
  m.config = model.config;
  const TensorSet set = bind_tensors(m.config, *model.source);
  m.sizes = model_sizes(m.config, set);
  m.has_mtp = set.has_mtp;
  for (const BoundTensor& bound : set.tensors) {
    FormatShare& share = m.stored[{bound.component, bound.tensor.format}];
    ++share.tensors;
    share.bytes += bound.tensor.bytes();
  }
  m.notes = m.config.warnings;
  m.notes.insert(m.notes.end(), set.notes.begin(), set.notes.end());
  return m;
}

int verb_inspect(const Options& options) {
  const OpenedModel model = open_model(options.model, Contents::kSizes);
  const Inspection inspection = inspect_model(model);
  const Machine machine = this_machine();
  out(options.json ? report_json(inspection, machine) : report_text(inspection, machine));
  return 0;
}

}  // namespace spk::cli
