// The verb `serve`: options to a running server, signals to its end.
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/option_checks.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/sampling.h"
#include "cli/source.h"
#include "cli/values.h"
#include "cli/verbs.h"
#include "cli/version.h"
#include "formats/untrusted.h"
#include "server/server.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <limits>

namespace spk::cli {
namespace {

std::atomic<bool> stop_asked{false};
static_assert(std::atomic<bool>::is_always_lock_free, "touched by a signal handler");

// The first signal drains, the second ends at once: nothing that the server holds needs saving.
extern "C" void on_stop(int) {
  if (stop_asked.exchange(true)) _exit(130);
}

void install_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_stop;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

std::string read_key(const ServeOptions& serve) {
  if (serve.api_key_file.empty()) return serve.api_key;
  constexpr uint64_t kLongestKey = 4096;
  std::string key = read_input(serve.api_key_file, kLongestKey);
  while (!key.empty() && (key.back() == '\n' || key.back() == '\r' || key.back() == ' '))
    key.pop_back();
  try {
    check_visible(key, "an API key");
  } catch (const Error& error) {
    fail_input(serve.api_key_file, ": ", error.what());
  }
  return key;
}

std::string name_of(const Options& options) {
  if (!options.serve.model_name.empty()) return options.serve.model_name;
  const std::string name = model_name(options.model);
  if (name.find(" (embedded)") != std::string::npos) return name.substr(0, name.find(' '));
  std::filesystem::path path(name);
  if (path.filename().empty()) path = path.parent_path();
  std::string folder = path.filename().string();
  return is_name(folder) ? folder : printable(folder);  // a folder's name may hold anything
}

server::ServerOptions server_options(const Options& options) {
  const ServeOptions& serve = options.serve;
  server::ServerOptions out;
  out.http.host = serve.host;
  out.http.port = serve.port;
  out.http.body_limit = parse_size(serve.max_body, uint64_t{1} << 40);
  out.http.connections = static_cast<size_t>(serve.connections);
  out.http.stall_seconds = serve.stall;
  out.http.header_seconds = std::min(serve.stall, out.http.header_seconds);
  out.http.idle_seconds = std::min(serve.stall, out.http.idle_seconds);
  out.api_key = read_key(serve);
  out.cors = serve.cors;
  out.queue = static_cast<size_t>(serve.queue);
  out.keep_alive_seconds = serve.keep_alive;
  out.drain_seconds = serve.drain;
  out.model_name = name_of(options);
  const Version v = version();
  out.build = cat("sparkling-", v.number, "-", v.commit);
  out.log_prompts = serve.log_prompts;
  out.sampling = model_defaults(model_text(options.model, "generation_config.json"),
                                std::numeric_limits<int32_t>::max());
  out.thinking = serve.thinking;
  out.thinking_budget = serve.thinking_budget;
  out.started = std::time(nullptr);
  return out;
}

}  // namespace

int verb_serve(const Options& options) {
  if (!options.model.synthetic.empty())
    fail_usage("serve needs a tokenizer, which --synthetic does not have; give a MODEL folder");
  LoadProgress progress;
  server::ServerOptions server = server_options(options);
  server.progress = &progress;
  server::check_exposure(server, options.serve.no_api_key);
  install_stop_signals();
  const auto load = [&options, &progress] {
    OpenedModel model = open_model(options.model);
    std::optional<Tokenizer> tokenizer = load_tokenizer(model);
    if (!tokenizer) fail_input(model.name, " has no tokenizer.json, which `serve` needs");
    EngineOptions engine = engine_options(options.model);
    engine.progress = &progress;
    engine.choices = true;
    engine.slice_seconds = 0.2;  // a client that leaves is noticed between two slices
    return start_engine(model, options.model, engine, std::move(tokenizer));
  };
  const auto ready = [](const std::string& address) {
    out(cat("listening on ", address, "\n"));
    out_flush();
  };
  server::serve(server, load, ready, [] { return stop_asked.load(); });
  return 0;
}

}  // namespace spk::cli
