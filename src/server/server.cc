#include "server/server.h"

#include "base/log.h"
#include "server/access.h"
#include "server/json_write.h"
#include "server/page.h"
#include "server/routes.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace spk::server {
namespace {

using Handler = void (*)(Service&, const HttpRequest&, HttpReply&);

struct Route {
  std::string_view method, path, suffix;  // a path that ends in '/': path, anything, suffix
  Handler handler;                        // null: answered by the server itself
  std::string_view name;                  // in log and metrics
};

constexpr Route kRoutes[] = {
    {"GET", "/", "", nullptr, "page"},
    {"GET", "/health", "", nullptr, "health"},
    {"GET", "/metrics", "", nullptr, "metrics"},
    {"GET", "/props", "", nullptr, "props"},
    {"GET", "/roof", "", nullptr, "roof"},
    {"GET", "/v1/models", "", models, "models"},
    {"GET", "/v1/models/", "", one_model, "models"},
    {"POST", "/v1/chat/completions", "", chat_completions, "chat"},
    {"POST", "/v1/chat/completions/", "/stop_thinking", stop_thinking, "stop_thinking"},
    {"POST", "/v1/completions", "", completions, "completions"},
    {"POST", "/v1/responses", "", responses, "responses"},
    {"POST", "/v1/messages", "", messages, "messages"},
    {"POST", "/v1/messages/count_tokens", "", count_tokens, "count_tokens"},
    {"POST", "/tokenize", "", tokenize, "tokenize"},
    {"POST", "/detokenize", "", detokenize, "detokenize"},
    {"POST", "/apply-template", "", apply_template, "apply-template"},
};

bool takes_id(const Route& route) { return route.path.size() > 1 && route.path.back() == '/'; }

bool matches(const Route& route, std::string_view path) {
  if (!takes_id(route)) return path == route.path;
  return path.size() > route.path.size() + route.suffix.size() &&
         path.substr(0, route.path.size()) == route.path &&
         path.substr(path.size() - route.suffix.size()) == route.suffix;
}

// "application/json", in any case, maybe with parameters.
bool is_json_type(std::string_view header) {
  std::string type(header.substr(0, header.find(';')));
  type.erase(type.find_last_not_of(" \t") + 1);
  return lower(type) == "application/json";
}

std::string error_body(std::string_view path, const ApiError& error) {
  return path.substr(0, 12) == "/v1/messages" ? anthropic_error(error) : openai_error(error);
}

class Server {
 public:
  Server(const ServerOptions& options, Jobs::Load load)
      : options_(options),
        jobs_(options.queue, std::move(load)),
        turns_(size_t{64} << 20),
        service_{options_, jobs_, turns_, metrics_},
        http_(options.http,
              {[this](const HttpRequest& in, HttpReply& out) { return gate(in, out); },
               [this](const HttpRequest& in, HttpReply& out) { handle(in, out); },
               [](int status, const std::string& path, const std::string& why) {
                 return error_body(path, transport_error(status, why));
               }}) {}

  void run(const std::function<void(std::string)>& ready, const std::function<bool()>& stop) {
    const int port = http_.bind();
    std::thread listener([this] { http_.run(); });
    std::exception_ptr failure;
    bool announced = false;
    while (!stop()) {
      if (jobs_.state() == Jobs::State::kFailed) {
        failure = jobs_.failure();
        break;
      }
      if (!announced && jobs_.state() == Jobs::State::kReady) {
        announced = true;
        const bool v6 = options_.http.host.find(':') != std::string::npos;
        try {  // a broken standard output must not unwind past the running threads
          ready(cat("http://", v6 ? "[" : "", options_.http.host, v6 ? "]" : "", ":", port));
        } catch (...) {
          failure = std::current_exception();
          break;
        }
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    draining_.store(true);
    if (!failure && (jobs_.busy() || jobs_.waiting() > 0))
      log_info("stopping: waiting for the answers that are being written");
    const auto limit =
        std::chrono::milliseconds(static_cast<int64_t>(1e3 * options_.drain_seconds));
    if (!failure && jobs_.state() == Jobs::State::kReady && !jobs_.drain(limit)) {
      log_warn("stopping: the limit of --drain is over, answers are cut");
      jobs_.cancel_all();
      jobs_.drain(std::chrono::seconds(5));
    }
    http_.stop();
    // What has been generated still goes out; who does not read it by now loses it.
    for (int i = 0; i < 50 && http_.connections() > 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    http_.abort();
    listener.join();
    if (failure) std::rethrow_exception(failure);
  }

 private:
  static ApiError transport_error(int status, const std::string& why = {}) {
    switch (status) {
      case 404:
        return {404, "not_found", "", "no such route"};
      case 413:
        return {413, "body_too_large", "", "the request body is larger than the server takes"};
      case 503:
        return {503, "too_many_connections", "",
                why.empty() ? "too many connections; try again later" : why};
      case 400:
        return {400, "bad_request", "",
                why.empty() ? "expected a well-formed HTTP request with header lines of at most "
                              "8192 bytes, found none"
                            : why};
      case 414:
        return {414, "address_too_long", "",
                "the address: expected at most 8192 bytes, found more"};
      case 416:
        return {416, "no_ranges", "", "Range: expected none, found one that is not well-formed"};
      case 431:
        return {431, "header_too_large", "",
                "the header: expected at most 65536 bytes, found more"};
      default:
        return {status, "http_error", "", cat("HTTP status ", status)};
    }
  }

  void error(const HttpRequest& in, const ApiError& why, HttpReply& out) const {
    out = {};
    out.status = why.status;
    out.body = error_body(in.path(), why);
    if (why.retry_seconds > 0)
      out.headers.emplace_back("Retry-After", std::to_string(static_cast<int>(why.retry_seconds)));
    cors(in, out);
  }

  void cors(const HttpRequest& in, HttpReply& out) const {
    if (options_.cors.empty()) return;
    out.headers.emplace_back("Vary", "Origin");
    if (!origin_named(in.header("Origin"), options_)) return;
    out.headers.emplace_back("Access-Control-Allow-Origin", in.header("Origin"));
    out.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    // Clients bring headers of their own (x-stainless-...), and none of them means anything here.
    const std::string wanted = in.header("Access-Control-Request-Headers");
    out.headers.emplace_back("Access-Control-Allow-Headers",
                             wanted.empty() ? "Authorization, Content-Type, X-Api-Key" : wanted);
    out.headers.emplace_back("Access-Control-Expose-Headers", "Retry-After");
    out.headers.emplace_back("Access-Control-Max-Age", "600");
  }

  // Before the body is read. True: `out` is the answer.
  bool gate(const HttpRequest& in, HttpReply& out) {
    const auto refuse = [&](int status, const char* code, const std::string& message) {
      metrics_.request("refused", status);
      log_info(cat(in.method(), " refused ", status, " (", message, ")"));
      error(in, {status, code, "", message}, out);
      return true;
    };
    if (!host_allowed(in, options_))
      return refuse(403, "host_not_allowed", "the Host header names another host than this one");
    if (!origin_allowed(in, options_))
      return refuse(403, "origin_not_allowed",
                    "pages of this origin may not ask; the server's --cors names those that may");
    if (in.method() == "OPTIONS") {
      out.status = 204;
      cors(in, out);
      return true;
    }
    if (!options_.api_key.empty() && in.path() != "/health" && !has_key(in, options_.api_key)) {
      refuse(401, "invalid_api_key", "expected an API key, found none or a wrong one");
      out.headers.emplace_back("WWW-Authenticate", "Bearer");
      // The page asks for the key itself. It holds nothing that the key protects.
      if (in.path() == "/" && (in.method() == "GET" || in.method() == "HEAD")) write_page(out);
      return true;
    }
    const Route* route = nullptr;
    bool other_method = false;
    for (const Route& candidate : kRoutes) {
      if (!matches(candidate, in.path())) continue;
      const bool same =
          candidate.method == in.method() || (candidate.method == "GET" && in.method() == "HEAD");
      if (same) route = &candidate;
      other_method = other_method || !same;
    }
    if (route == nullptr && other_method)
      return refuse(405, "method_not_allowed", "this route has another method");
    if (route == nullptr) return refuse(404, "not_found", "no such route");
    if (route->method == "POST" && route->suffix.empty()) {
      if (!is_json_type(in.header("Content-Type")))
        return refuse(400, "invalid_content_type",
                      "Content-Type: expected application/json, found another");
      if (in.has_header("Content-Encoding"))
        return refuse(400, "invalid_content_encoding",
                      "Content-Encoding: expected none, found one");
    }
    return false;
  }

  void handle(const HttpRequest& in, HttpReply& out) {
    const Route* route = nullptr;
    for (const Route& candidate : kRoutes) {
      if (matches(candidate, in.path())) route = &candidate;
    }
    try {
      if (route == nullptr) throw transport_error(404);
      if (route->handler == nullptr) {
        own(in.path(), out);
      } else {
        check_ready();
        route->handler(service_, in, out);
      }
      cors(in, out);
      // Generating routes write their own row when the answer is over.
      if (route->handler == nullptr || out.stream ||
          std::string_view(route->path).substr(0, 4) == "/v1/")
        return;
      metrics_.request(route->name, out.status);
    } catch (const ApiError& why) {
      fail(in, *route, why, out);
    } catch (const Error& why) {
      const bool ours = why.kind() == ErrorKind::kResource;
      const std::string text = why.what();
      const size_t colon = text.find(": ");
      const std::string field = colon == std::string::npos ? "" : text.substr(0, colon);
      fail(in, *route,
           {ours ? 500 : 400, ours ? "internal_error" : "invalid_value", ours ? "" : field, text},
           out);
    } catch (const std::exception& why) {
      fail(in, *route, {500, "internal_error", "", why.what()}, out);
    }
  }

  void fail(const HttpRequest& in, const Route& route, const ApiError& why, HttpReply& out) {
    metrics_.request(route.name, why.status);
    // Messages may quote what the client sent.
    log_info(cat(route.name, " ", why.status, " (", why.code,
                 why.param.empty() ? "" : " " + why.param,
                 options_.log_prompts || why.status >= 500 ? cat(": ", why.what()) : "", ")"));
    error(in, why, out);
  }

  void check_ready() const {
    if (draining_.load()) throw ApiError(503, "shutting_down", "", "the server is shutting down");
    if (jobs_.state() == Jobs::State::kReady) return;
    if (jobs_.state() == Jobs::State::kFailed)
      throw ApiError(503, "shutting_down", "", "the server has failed and ends");
    ApiError loading(503, "loading", "",
                     cat("the model is being loaded, ", static_cast<int>(100 * loaded_share()),
                         " percent are there"));
    loading.retry_seconds = 1;
    throw loading;
  }

  // Of the bytes of the weights; the rest of a start (caches, a first step) is short.
  double loaded_share() const {
    const LoadProgress* progress = options_.progress;
    if (progress == nullptr || progress->total == 0) return 0;
    return std::min(1.0,
                    static_cast<double>(progress->done) / static_cast<double>(progress->total));
  }

  void own(const std::string& path, HttpReply& out) {
    if (path == "/") {
      write_page(out);
    } else if (path == "/metrics") {
      out.type = "text/plain; version=0.0.4; charset=utf-8";
      out.body = metrics_.text(jobs_.waiting(), jobs_.busy(), http_.connections());
    } else if (path == "/health") {
      health(out);
    } else if (path == "/roof") {
      check_ready();
      out.body = roof_json(service_);
    } else {
      check_ready();
      JsonWriter live;
      live.object().field("waiting", static_cast<int64_t>(jobs_.waiting()));
      live.field("running", jobs_.busy() ? 1 : 0);
      live.field("connections", static_cast<int64_t>(http_.connections()));
      live.field("remembered_turn_bytes", static_cast<int64_t>(turns_.bytes()));
      out.body = props_json(service_, live.end().take());
    }
  }

  void health(HttpReply& out) const {
    const bool ending = draining_.load() || jobs_.state() == Jobs::State::kFailed;
    const bool ready = jobs_.state() == Jobs::State::kReady && !ending;
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
    JsonWriter w;
    w.object().field("status", ready ? "ok" : ending ? "stopping" : "loading");
    if (!ready && !ending) {
      w.field("progress", loaded_share());
      w.field("loading_seconds", seconds);
    }
    if (ready) {
      w.field("waiting", static_cast<int64_t>(jobs_.waiting()));
      w.field("running", jobs_.busy() ? 1 : 0);
    }
    out.status = ready ? 200 : 503;
    out.body = w.end().take();
  }

  const ServerOptions options_;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::atomic<bool> draining_{false};
  Metrics metrics_;
  Jobs jobs_;
  TurnMemory turns_;
  Service service_;
  HttpServer http_;
};

}  // namespace

std::vector<std::string> route_list() {
  std::vector<std::string> out;
  for (const Route& route : kRoutes)
    out.push_back(cat(route.method, " ", route.path, takes_id(route) ? "{id}" : "", route.suffix));
  return out;
}

void check_exposure(const ServerOptions& options, bool allow_open) {
  if (!options.api_key.empty() || is_loopback(options.http.host)) return;
  if (!allow_open)
    fail_usage("--host ", options.http.host,
               " lets other machines in, and there is no --api-key: give one, or --no-api-key to "
               "say that this is meant");
  log_warn(
      cat("anybody who reaches ", options.http.host, " may use this server: it has no API key"));
}

void serve(const ServerOptions& options, Jobs::Load load,
           const std::function<void(std::string)>& ready, const std::function<bool()>& stop) {
  Server(options, std::move(load)).run(ready, stop);
}

}  // namespace spk::server
