// What a measurement was made of: the build, the machine, the weights, the options of the run.
// Every file of results carries it, so that numbers of two builds never pass for one.
#pragma once

#include "cli/source.h"

#include <string>
#include <utility>
#include <vector>

namespace spk::cli {

// 16 hexadecimal digits over the config's sizes and every tensor's name, format, shape and first
// bytes (of the routed experts the first): tells checkpoints apart without reading them whole.
std::string weights_identity(const OpenedModel& model);

// commit, build, machine and the options of the table "How it runs", name and value.
std::vector<std::pair<std::string, std::string>> run_settings(const ModelOptions& options);

}  // namespace spk::cli
