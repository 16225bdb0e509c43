// A chat on a terminal.
#pragma once

#include "cli/options.h"
#include "cli/prompt.h"
#include "engine/engine.h"

namespace spk::cli {

// Reads messages until Ctrl-D or /quit. Ctrl-C stops an answer, never the program. `request` holds
// sampling and limits;
// --raw: each message is the whole prompt, nothing is remembered.
int chat(Engine& engine, const Options& options, const GenerateRequest& request,
         const RenderOptions& render);

}  // namespace spk::cli
