// The verbs: each does its work, writes its result to stdout and returns the exit status; errors
// are exceptions.
#pragma once

#include "cli/options.h"

namespace spk::cli {

int verb_run(const Options& options);
int verb_serve(const Options& options);
int verb_logits(const Options& options);
int verb_tokenize(const Options& options);
int verb_inspect(const Options& options);
int verb_doctor(const Options& options);
int verb_plan(const Options& options);
int verb_bench(const Options& options);
int verb_eval(const Options& options);
int verb_compare(const Options& options);

}  // namespace spk::cli
