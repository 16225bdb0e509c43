// Fuzz target of the server's reading side. Byte 0 chooses the reader (modulo 6: chat, completions,
// responses, messages, JSON alone, headers), the rest is the request body, or lines of headers.
//
// What must hold: a body is read into a job that fits the context, or it is an error of the two
// known kinds whose text is valid JSON in every API's form; nothing else escapes. Headers: the
// access checks answer yes or no, and an empty or shortened key never opens.
#include "base/error.h"
#include "engine/engine.h"
#include "formats/checkpoint.h"
#include "model/config.h"
#include "server/access.h"
#include "server/json_read.h"
#include "server/routes.h"
#include "text/json_text.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

namespace spk::server {
namespace {

constexpr int64_t kContext = 1024;

std::unique_ptr<Engine> load() {
  const std::string folder = SPARKLING_SOURCE_DIR "/models/ling-nano";
  std::unique_ptr<Checkpoint> checkpoint = Checkpoint::open(folder);
  const ModelConfig config =
      parse_config(std::string(checkpoint->text("config.json").value()), "config.json");
  Tokenizer tokenizer =
      Tokenizer::from_json(std::string(checkpoint->text("tokenizer.json").value()), "tokenizer");
  EngineOptions options;
  options.backend = "cpu";
  options.context = kContext;
  options.device.threads = 1;
  return std::make_unique<Engine>(std::move(checkpoint), config, std::move(tokenizer), options);
}

// Made once and never taken down: the fuzzer ends the process as it likes.
Service& service() {
  static auto* options = new ServerOptions;
  static auto* jobs = new Jobs(4, load);
  static auto* turns = new TurnMemory(1 << 20);
  static auto* metrics = new Metrics;
  static auto* made = new Service{*options, *jobs, *turns, *metrics};
  while (jobs->state() == Jobs::State::kLoading)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  SPK_CHECK(jobs->state() == Jobs::State::kReady);
  return *made;
}

class Headers : public HttpRequest {
 public:
  explicit Headers(std::string_view text) {
    while (!text.empty()) {
      const std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(text.size(), line.size() + 1));
      const size_t colon = line.find(':');
      if (colon != std::string_view::npos)
        values_.emplace(line.substr(0, colon), line.substr(colon + 1));
    }
  }
  const std::string& method() const override { return empty_; }
  const std::string& path() const override { return empty_; }
  const std::string& body() const override { return empty_; }
  std::string header(const std::string& name) const override {
    const auto at = values_.find(name);
    return at == values_.end() ? "" : at->second;
  }
  bool has_header(const std::string& name) const override { return values_.count(name) > 0; }
  std::string peer() const override { return "127.0.0.1"; }
  bool client_gone() const override { return false; }

 private:
  std::map<std::string, std::string> values_;
  std::string empty_;
};

void check_headers(std::string_view text) {
  static const std::string key = "a key that no input will ever hold: 8f2c1b";
  const Headers request(text);
  if (text.find(key) == std::string_view::npos)
    SPK_CHECK(!has_key(request, key) || text.find("YSBrZX") != std::string_view::npos);
  ServerOptions options;
  options.cors = {"https://page.example"};
  (void)host_allowed(request, options);
  (void)origin_allowed(request, options);
}

void check_body(int reader, std::string_view body) {
  using Read = Call (*)(Service&, std::string_view);
  constexpr Read kReaders[] = {read_chat, read_completion, read_responses, read_messages};
  try {
    if (reader == 4) {
      const JsonDocument document(body);
      SPK_CHECK(is_json(document.root().dump()));
      return;
    }
    const Call call = kReaders[reader](service(), body);
    SPK_CHECK(!call.job.prompt.empty() && static_cast<int64_t>(call.job.prompt.size()) < kContext);
    SPK_CHECK(call.job.choices >= 1 && call.job.choices <= 8 && call.job.stop.size() <= 16);
  } catch (const ApiError& error) {
    SPK_CHECK(error.status >= 400 && error.status < 500);
    SPK_CHECK(is_json(openai_error(error)) && is_json(anthropic_error(error)));
  } catch (const Error& error) {
    SPK_CHECK(error.kind() == ErrorKind::kInput || error.kind() == ErrorKind::kUsage);
  }
}

}  // namespace
}  // namespace spk::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const int reader = data[0] % 6;
  if (reader == 5)
    spk::server::check_headers(text);
  else
    spk::server::check_body(reader, text);
  return 0;
}
