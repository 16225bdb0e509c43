// The executable: options in, one verb, exit status out. Every exception ends here and nowhere
// else.
#include "backend/device_tools.h"
#include "base/error.h"
#include "base/log.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/verbs.h"

#include <cstdio>
#include <exception>
#include <new>
#include <string>

namespace spk::cli {
namespace {

int dispatch(const Options& o) {
  switch (o.verb) {
    case Verb::kRun:
      return verb_run(o);
    case Verb::kServe:
      return verb_serve(o);
    case Verb::kLogits:
      return verb_logits(o);
    case Verb::kTokenize:
      return verb_tokenize(o);
    case Verb::kInspect:
      return verb_inspect(o);
    case Verb::kDoctor:
      return verb_doctor(o);
    case Verb::kPlan:
      return verb_plan(o);
    case Verb::kBench:
      return verb_bench(o);
    case Verb::kEval:
      return verb_eval(o);
    case Verb::kCompare:
      return verb_compare(o);
    case Verb::kCompletion:
      out(completion_script(o.shell));
      return 0;
  }
  return 2;
}

// Before main, and before what else runs there: a signal in the first milliseconds is like any
// other.
[[gnu::constructor(101)]] void first_of_all() { install_signals(); }

int run(int argc, char** argv) {
  if (is_compile_helper(argc, argv)) return run_compile_helper();
  const Options options = parse_options(argc, argv);
  set_log_level(options.log);
  for (const std::string& warning : options.warnings) log_warn(warning);
  int status = 0;
  if (options.text) {
    out(*options.text);
  } else {
    status = dispatch(options);
  }
  out_flush();
  return status;
}

int guarded(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const OutputClosed&) {
    return 0;  // the reader has what it wanted
  } catch (const Error& error) {
    log_error(error.what());
    return static_cast<int>(error.kind());
  } catch (const std::bad_alloc&) {
    log_error("out of memory; --memory SIZE and --context N set what is used");
    return static_cast<int>(ErrorKind::kResource);
  } catch (const std::exception& error) {
    log_error(error.what());
    return static_cast<int>(ErrorKind::kInput);
  }
}

}  // namespace
}  // namespace spk::cli

int main(int argc, char** argv) {
  const int status = spk::cli::guarded(argc, argv);
  // What a failed verb printed before its error still belongs to the reader.
  return std::fflush(stdout) == 0 || status != 0 ? status : 1;
}
