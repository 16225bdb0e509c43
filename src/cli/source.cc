#include "cli/source.h"

#include "backend/device_tools.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/draft_ids.h"
#include "cli/embedded.h"
#include "cli/machine.h"
#include "cli/values.h"
#include "model/synthetic.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

namespace spk::cli {
namespace {

constexpr const char* kEmbedded = "ling-nano (embedded)";
constexpr uint64_t kMaxConfig = 4u << 20;

// "" means the embedded model.
std::string folder_of(const ModelOptions& options) {
  if (!options.model.empty()) return options.model;
  const char* set = std::getenv("SPARKLING_MODEL");
  return set == nullptr ? "" : set;
}

// "owner/name" or an address, as on a model hub.
bool looks_remote(const std::string& folder) {
  if (folder.find("://") != std::string::npos) return true;
  const size_t slash = folder.find('/');
  return slash != std::string::npos && slash > 0 && slash + 1 < folder.size() &&
         folder.find('/', slash + 1) == std::string::npos && folder[0] != '.' && folder[0] != '~' &&
         !file_exists(folder.substr(0, slash));
}

void check_folder(const ModelOptions& options, const std::string& folder) {
  const char* from = options.model.empty() ? " (from SPARKLING_MODEL)" : "";
  if (!file_exists(folder)) {
    fail_input("expected a checkpoint folder, found nothing at ", folder, from,
               looks_remote(folder) ? "; models are not fetched by name: download the files, then "
                                      "give their folder"
                                    : "");
  }
  if (!is_folder(folder)) {
    const std::string kind = std::filesystem::path(folder).extension().string();
    fail_input("expected a checkpoint folder, found a file: ", folder, from,
               kind == ".safetensors" || kind == ".json" ? "; the folder that it is in is the model"
               : kind == ".gguf" ? "; GGUF files are not read by this version"
                                 : "");
  }
}

std::vector<MemoryFile> embedded_files() {
  std::vector<MemoryFile> files = embedded_model();
  if (files.empty())
    fail_input("expected a MODEL folder, found none, and this build has no embedded model");
  return files;
}

// Experts and embeddings alone, which are nearly all of it.
uint64_t synthetic_bytes_at_least(const ModelConfig& config, MakeExperts when) {
  const ModelShape& s = config.shape;
  const int64_t experts =
      when == MakeExperts::kWhenRead ? 0 : (config.moe_layers() + config.mtp_layers) * s.experts;
  const int64_t expert_weights = 3 * s.hidden * s.expert_dim;
  const int64_t mxfp4_bytes = expert_weights / 2 + expert_weights / kGroup;
  return static_cast<uint64_t>(experts * mxfp4_bytes + 2 * s.vocab * s.hidden * 2);
}

// Random bytes are made page by page: without this a too large model would end by the kernel's
// hand, without a word.
void check_synthetic_fits(const ModelOptions& options, const ModelConfig& config,
                          MakeExperts experts) {
  const Machine machine = this_machine();
  const uint64_t limit = parse_size(options.memory, machine.memory_total);
  const uint64_t room =
      limit == 0 ? machine.memory_available : std::min(limit, machine.memory_available);
  const uint64_t need = synthetic_bytes_at_least(config, experts);
  if (need > room) {
    fail_resource("synthetic weights need more than ", show_bytes(static_cast<double>(need)),
                  ", found ", show_bytes(static_cast<double>(room)),
                  "; --layers N keeps the first N layers");
  }
}

OpenedModel open_synthetic(const ModelOptions& options, Contents contents) {
  OpenedModel model;
  const bool is_file = options.synthetic.find('/') != std::string::npos ||
                       options.synthetic.rfind(".json") != std::string::npos ||
                       file_exists(options.synthetic);
  const std::string text = is_file ? read_input(options.synthetic, kMaxConfig)
                                   : std::string(known_config(options.synthetic));
  model.config =
      parse_config(text, is_file ? options.synthetic : options.synthetic + " (built in)");
  if (options.layers > 0) keep_layers(model.config, options.layers);
  apply_rope_scaling(model.config, options.rope_scaling);
  model.name = cat(options.synthetic, " (synthetic, seed ", options.weights_seed,
                   options.layers > 0 ? cat(", ", model.config.layers, " layers") : "", ")");
  model.synthetic = true;
  if (contents == Contents::kSizes) {
    model.source = make_synthetic_sizes(model.config);
    return model;
  }
  // A back end that reads them once, from many threads, needs no copy of them here.
  const MakeExperts experts =
      options.backend == "cuda" ? MakeExperts::kWhenRead : MakeExperts::kNow;
  check_synthetic_fits(options, model.config, experts);
  model.source = make_synthetic(
      model.config, static_cast<uint64_t>(options.weights_seed),
      options.threads > 0 ? options.threads : this_machine().physical_cores, experts);
  return model;
}

std::optional<std::string> text_of(const Checkpoint& checkpoint, std::string_view file) {
  const std::optional<std::string_view> text = checkpoint.text(file);
  return text ? std::optional<std::string>(*text) : std::nullopt;
}

}  // namespace

std::string model_name(const ModelOptions& options) {
  if (!options.synthetic.empty()) return options.synthetic;
  const std::string folder = folder_of(options);
  return folder.empty() ? kEmbedded : folder;
}

OpenedModel open_model(const ModelOptions& options, Contents contents) {
  if (!options.synthetic.empty()) return open_synthetic(options, contents);
  OpenedModel model;
  model.name = model_name(options);
  const std::string folder = folder_of(options);
  if (!folder.empty()) check_folder(options, folder);
  std::unique_ptr<Checkpoint> checkpoint =
      folder.empty() ? Checkpoint::from_memory(kEmbedded, embedded_files())
                     : Checkpoint::open(folder);
  const std::string config_file = folder.empty() ? "config.json" : folder + "/config.json";
  const auto config = text_of(*checkpoint, "config.json");
  if (!config) fail_input("expected ", config_file, ", found no such file");
  model.config = parse_config(*config, config_file);
  apply_rope_scaling(model.config, options.rope_scaling);
  model.tokenizer_json = text_of(*checkpoint, "tokenizer.json");
  model.chat_template = text_of(*checkpoint, "chat_template.jinja");
  model.generation_config = text_of(*checkpoint, "generation_config.json");
  model.token_counts = text_of(*checkpoint, "token_counts.txt");
  model.source = std::move(checkpoint);
  return model;
}

std::optional<std::string> model_text(const ModelOptions& options, std::string_view file) {
  const std::string folder = folder_of(options);
  if (folder.empty()) {
    for (const MemoryFile& embedded : embedded_files()) {
      if (embedded.name == file) return std::string(embedded.bytes);
    }
    return std::nullopt;
  }
  check_folder(options, folder);
  const std::string path = cat(folder, "/", file);
  return file_exists(path) ? std::optional<std::string>(read_small_file(path, kMaxText))
                           : std::nullopt;
}

std::optional<Tokenizer> load_tokenizer(const OpenedModel& model) {
  if (!model.tokenizer_json) return std::nullopt;
  return Tokenizer::from_json(*model.tokenizer_json, model.name + "/tokenizer.json");
}

namespace {

// Latents of one token.
int64_t cache_bytes_per_token(const OpenedModel& model, const ModelOptions& options) {
  const ModelShape& s = model.config.shape;
  int64_t latent_layers = model.config.mtp_layers;
  for (const bool is_mla : model.config.is_mla) latent_layers += is_mla ? 1 : 0;
  const int64_t real_bytes = options.backend == "reference" ? 8 : 4;
  return std::max<int64_t>(latent_layers * (s.latent + s.rope) * real_bytes, 1);
}

// Without --memory nothing else says no: pages of caches are taken as they are used, and a context
// beyond the memory would end by the kernel's hand in the middle of an answer.
void check_context_fits(const OpenedModel& model, const ModelOptions& options) {
  const int64_t per_token = cache_bytes_per_token(model, options);
  const auto available = static_cast<int64_t>(this_machine().memory_available);
  if (options.context <= available / per_token) return;
  fail_resource("--context ", options.context, ": expected at most ", available / per_token,
                " tokens, whose caches fill the memory that is available (",
                show_bytes(static_cast<double>(available)), "), found a need of ",
                show_bytes(static_cast<double>(options.context) * static_cast<double>(per_token)),
                " (", show_bytes(static_cast<double>(per_token)), " a token)");
}

// The config's context, or the part of it whose caches fit beside the weights in the memory that is
// free now. An estimate that only ever cuts what nobody asked for: with --memory the engine's exact
// plan decides.
int64_t context_that_fits(const OpenedModel& model, const ModelOptions& options) {
  const int64_t per_token = cache_bytes_per_token(model, options);
  const auto available = static_cast<int64_t>(this_machine().memory_available);
  const auto* files = dynamic_cast<const Checkpoint*>(model.source.get());
  const auto weights = files == nullptr ? 0 : static_cast<int64_t>(files->file_bytes());
  const int64_t room = (available - weights) / 10 * 9;
  constexpr int64_t kLeast = 4096;  // mapped weights beyond the memory still run, slowly
  const int64_t fits = std::min(std::max(room / per_token, kLeast), model.config.context);
  if (fits < model.config.context) {
    log_info(cat("context cut from ", model.config.context, " to ", fits,
                 " tokens: ", show_bytes(static_cast<double>(available)),
                 " of memory is available and a token takes ",
                 show_bytes(static_cast<double>(per_token)), "; --context N sets it"));
  }
  return fits;
}

// For who compares: a GPU's launches one by one, the form that graphs are held against.
// A switch of what a device does faster, to compare with: the first of two words is the default.
bool device_switch(const char* name, std::string_view yes, std::string_view no) {
  const char* set = std::getenv(name);
  const std::string_view value = set == nullptr ? yes : set;
  if (value != yes && value != no)
    fail_usage(name, ": expected ", yes, " or ", no, ", found ", value);
  return value == yes;
}

Resident resident_switch() {
  const char* const name = "SPARKLING_RESIDENT";
  const char* set = std::getenv(name);
  const std::string_view value = set == nullptr ? "on" : set;
  if (value != "off" && value != "on" && value != "timed")
    fail_usage(name, ": expected on, off or timed, found ", value);
  return value == "off" ? Resident::kOff : value == "on" ? Resident::kOn : Resident::kTimed;
}

// Caches are cut to it, and what does not fit is refused with the plan before anything is taken.
// Of a GPU of its own a process may plan with 95 %, as modules and page tables take some; of memory
// that is the system's too with 80 %. Others may hold part of it.
uint64_t usable_on_device(const Machine& machine) {
  const DeviceMemory memory = device_memory(0);
  const uint64_t most = memory.shared ? memory.total / 5 * 4 : memory.total / 20 * 19;
  // What the driver calls free leaves out the page cache, which makes room when asked to.
  const uint64_t free = memory.shared ? machine.memory_available : memory.free;
  const uint64_t spare = memory.total / 50;
  if (free >= most + spare) return most;
  log_info(cat("of the GPU's ", show_bytes(static_cast<double>(memory.total)), " only ",
               show_bytes(static_cast<double>(free)), " are free: others hold the rest"));
  return free > spare ? free - spare : 1;
}

std::string counts_name(const OpenedModel& model) { return model.name + "/token_counts.txt"; }

}  // namespace

EngineOptions engine_options(const ModelOptions& options) {
  const Machine machine = this_machine();
  EngineOptions engine;
  engine.backend = options.backend;
  engine.precision = options.precision;
  // `reference` computes in double whatever is asked for.
  const bool cuda = options.backend == "cuda";
  const bool fast = options.precision == PrecisionMode::kFast && options.backend != "reference";
  if (options.moe == "packed" && !fast) {
    fail_usage(
        "--moe packed: expected --precision fast and a back end other than reference, found ",
        options.precision == PrecisionMode::kFast ? "--backend reference" : "--precision exact");
  }
  const bool packed = options.moe.empty() ? fast : options.moe == "packed";
  engine.device.moe = packed ? MoeKernel::kPacked : MoeKernel::kPlain;
  engine.head = options.lm_head.empty() ? (fast ? HeadFormat::kFp8 : HeadFormat::kStored)
                                        : parse_head_format(options.lm_head);
  engine.device.threads = options.threads;
  engine.device.graphs = device_switch("SPARKLING_GRAPHS", "on", "off");
  engine.device.fuse = device_switch("SPARKLING_FUSE", "on", "off");
  engine.device.resident = resident_switch();
  engine.device.device_sampler = device_switch("SPARKLING_SAMPLER", "device", "host");
  engine.device.memory = parse_size(options.memory, machine.memory_total);
  engine.context = options.context;
  engine.draft =
      options.draft == "auto" ? kAutoDepth : static_cast<int>(parse_int(options.draft, 0, 7));
  engine.require = parse_requirements(options.require);
  if (cuda && engine.device.memory == 0) engine.device.memory = usable_on_device(machine);
  return engine;
}

// A head of its own makes a draft cheaper where it runs by the packed kernels of a CPU. A GPU
// samples drafts of the target's head itself, and the host those of another.
int64_t draft_head_rows(const OpenedModel& model, const ModelOptions& options,
                        const EngineOptions& engine_options) {
  if (options.draft_head != kAutoDraftHead) return options.draft_head;
  if (model.config.mtp_layers == 0 || engine_options.draft == 0 ||
      engine_options.backend == "cuda" || engine_options.device.moe != MoeKernel::kPacked ||
      !model.token_counts)
    return 0;
  return frequent_rows(model.config.shape.vocab, *model.token_counts, counts_name(model));
}

std::unique_ptr<Engine> start_engine(OpenedModel& model, const ModelOptions& options,
                                     const EngineOptions& engine_options,
                                     std::optional<Tokenizer> tokenizer) {
  log_verbose(cat("loading ", model.name));
  EngineOptions final_options = engine_options;
  if (final_options.context == 0 && final_options.device.memory == 0) {
    final_options.context = context_that_fits(model, options);
  } else if (final_options.device.memory == 0) {
    check_context_fits(model, options);
  }
  if (log_verbose_on())
    final_options.on_phase = [](const LoadPhase& phase) { log_verbose(phase.text()); };
  if (const int64_t rows = draft_head_rows(model, options, final_options); rows > 0) {
    final_options.draft_head =
        draft_ids(rows, model.config.shape.vocab, model.token_counts, counts_name(model));
    if (!model.token_counts)
      log_info("--draft-head: no token_counts.txt, so the head has the lowest ids");
  }
  auto engine = std::make_unique<Engine>(std::move(model.source), model.config,
                                         std::move(tokenizer), final_options);
  for (const std::string& note : engine->notes()) log_warn(note);
  if (log_verbose_on()) {
    log_verbose(engine->plan_text());
    log_verbose(proof_text(engine->proofs()));
  }
  return engine;
}

}  // namespace spk::cli
