// MODEL, SPARKLING_MODEL, --synthetic or the embedded ling-nano -> an opened source with its config
// and small files.
//
// Owns the order in which a model is looked for and the messages when something is not there.
// Everything above works on the result and does not know where it came from.
#pragma once

#include "cli/options.h"
#include "engine/engine.h"
#include "formats/checkpoint.h"
#include "model/config.h"
#include "text/tokenizer.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace spk::cli {

struct OpenedModel {
  std::string name;  // "/models/ling", "ling-nano (embedded)", "ling-3.0-tiny (synthetic, seed 1)"
  std::unique_ptr<TensorSource> source;
  ModelConfig config;  // --layers and --rope-scaling applied
  std::optional<std::string> tokenizer_json, chat_template, generation_config, token_counts;
  bool synthetic = false;
};
// kSizes: of synthetic weights only names and shapes, no memory; nothing can run on them.
enum class Contents { kWeights, kSizes };
OpenedModel open_model(const ModelOptions& options, Contents contents = Contents::kWeights);

// One of MODEL's text files without opening its weights; Error(kInput) when MODEL itself is not
// there.
std::optional<std::string> model_text(const ModelOptions& options, std::string_view file);
std::string model_name(const ModelOptions& options);

// The tokenizer of an opened model; nullopt when it has none.
std::optional<Tokenizer> load_tokenizer(const OpenedModel& model);

// What the command line asks of the engine; a verb may change the context or chunk before it starts
// one.
EngineOptions engine_options(const ModelOptions& options);
// Rows of the draft head that these options mean for this model; 0: the target's.
int64_t draft_head_rows(const OpenedModel& model, const ModelOptions& options,
                        const EngineOptions& engine_options);
// Says the engine's notes and, when verbose, plan and memory. Takes the model's source.
std::unique_ptr<Engine> start_engine(OpenedModel& model, const ModelOptions& options,
                                     const EngineOptions& engine_options,
                                     std::optional<Tokenizer> tokenizer = std::nullopt);

}  // namespace spk::cli
