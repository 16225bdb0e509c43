#include "server/http.h"

#include "base/error.h"
#include "server/connection.h"

#include <httplib.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace spk::server {
namespace {

constexpr size_t kHeaderBytes = size_t{64} << 10;
constexpr size_t kBodies = 8;  // of the largest size, at a time
constexpr int kUriTooLong = 414, kHeaderTooLarge = 431;
constexpr size_t kPathBytes =
    512;  // the library matches paths by std::regex, which recurses per character

thread_local Connection* current = nullptr;
thread_local bool refuse_connection =
    false;  // this call runs on the accepting thread: answer 503 and leave

class Stream : public httplib::Stream {
 public:
  explicit Stream(Connection& connection) : connection_(connection) {}
  bool is_readable() const override { return connection_.readable(); }
  bool is_writable() const override { return !connection_.gone(); }
  ssize_t read(char* to, size_t size) override { return connection_.read(to, size); }
  ssize_t write(const char* from, size_t size) override { return connection_.write(from, size); }
  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    connection_.address(true, ip, port);
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    connection_.address(false, ip, port);
  }
  socket_t socket() const override { return connection_.socket(); }

 private:
  Connection& connection_;
};

class Request : public HttpRequest {
 public:
  Request(const httplib::Request& from, const Connection& connection)
      : from_(from), connection_(connection) {}
  const std::string& method() const override { return from_.method; }
  const std::string& path() const override { return from_.path; }
  const std::string& body() const override { return from_.body; }
  std::string header(const std::string& name) const override {
    return from_.get_header_value(name);
  }
  bool has_header(const std::string& name) const override { return from_.has_header(name); }
  std::string peer() const override { return from_.remote_addr; }
  bool client_gone() const override { return connection_.gone(); }

 private:
  const httplib::Request& from_;
  const Connection& connection_;
};

class Writer : public HttpWriter {
 public:
  Writer(httplib::DataSink& sink, const Connection& connection)
      : sink_(sink), connection_(connection) {}
  bool write(std::string_view bytes) override {
    return bytes.empty() || sink_.write(bytes.data(), bytes.size());
  }
  bool client_gone() const override { return connection_.gone(); }

 private:
  httplib::DataSink& sink_;
  const Connection& connection_;
};

// A thread per connection: nearly all of them sleep, and a pool would make the rest wait behind
// them.
class Threads : public httplib::TaskQueue {
 public:
  explicit Threads(size_t limit) : limit_(limit) {}
  // void or, in newer versions of the library, bool
  using Enqueued = decltype(std::declval<httplib::TaskQueue&>().enqueue(nullptr));
  Enqueued enqueue(std::function<void()> task) override {
    start(task);
    return static_cast<Enqueued>(true);
  }
  void start(const std::function<void()>& task) {
    bool started = false;
    {
      const std::lock_guard lock(mutex_);
      if (count_ < limit_) {
        ++count_;
        started = true;
      }
    }
    if (started) {
      try {
        std::thread([this, task] {
          task();
          const std::lock_guard lock(mutex_);
          --count_;
          idle_.notify_all();
        }).detach();
        return;
      } catch (const std::system_error&) {  // no more threads
        const std::lock_guard lock(mutex_);
        --count_;
      }
    }
    refuse_connection = true;
    task();
    refuse_connection = false;
  }
  void shutdown() override {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [&] { return count_ == 0; });
  }

 private:
  const size_t limit_;
  size_t count_ = 0;
  std::mutex mutex_;
  std::condition_variable idle_;
};

void fill(HttpReply& reply, const std::string& version, httplib::Response& out) {
  out.status = reply.status;
  for (const auto& [name, value] : reply.headers) out.set_header(name, value);
  // The oldest clients know no chunks: for them the end of the connection is the end of a stream.
  const bool no_chunks = reply.stream && version == "HTTP/1.0";
  if (reply.close || no_chunks) {
    current->close_after();
    out.set_header("Connection", "close");
  }
  if (!reply.stream) {
    out.set_content(reply.body, reply.type);
    return;
  }
  auto produce = [stream = std::move(reply.stream), connection = current](size_t,
                                                                          httplib::DataSink& sink) {
    Writer writer(sink, *connection);
    stream(writer);
    if (connection->closing() && connection->gone()) return false;
    sink.done();
    return true;
  };
  if (no_chunks) {
    out.set_content_provider(reply.type, std::move(produce));
  } else {
    out.set_chunked_content_provider(reply.type, std::move(produce));
  }
}

}  // namespace

// What makes the length of a body, or whom a request is for, a matter of opinion: two readers of
// one connection (a proxy and this server) must not differ in it. Empty: all is well.
std::string ambiguous(const httplib::Request& in) {
  // "Content-Length : 5" is a header to some readers and none to others.
  for (const auto& [name, value] : in.headers) {
    const bool odd = std::any_of(name.begin(), name.end(), [](unsigned char c) {
      return c <= ' ' || c >= 0x7f ||
             std::string_view("\"(),/;<=>?@[\\]{}").find(static_cast<char>(c)) !=
                 std::string_view::npos;
    });
    if (name.empty() || odd)
      return "a header's name: expected a word, found another character in it";
  }
  const size_t hosts = in.get_header_value_count("Host");
  if (hosts > 1) return cat("Host: expected one, found ", hosts);
  const size_t lengths = in.get_header_value_count("Content-Length");
  if (lengths > 1) return cat("Content-Length: expected one, found ", lengths);
  if (lengths == 1) {
    const std::string length = in.get_header_value("Content-Length");
    constexpr size_t kDigits = 18;  // below 2^63
    if (length.empty() || length.size() > kDigits ||
        length.find_first_not_of("0123456789") != std::string::npos)
      return "Content-Length: expected a number of bytes, found something else";
  }
  if (!in.has_header("Transfer-Encoding")) return "";
  std::string coding = in.get_header_value("Transfer-Encoding");
  for (char& c : coding) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
  if (coding != "chunked" || in.get_header_value_count("Transfer-Encoding") > 1)
    return "Transfer-Encoding: expected chunked, found another";
  return lengths > 0 ? "expected Content-Length or Transfer-Encoding, found both" : "";
}

// What ambiguous() has let pass.
size_t announced(const httplib::Request& in) {
  const std::string length = in.get_header_value("Content-Length");
  return length.empty() ? 0 : std::stoull(length);
}

// The library's server with our connections in place of its own socket loop.
struct HttpServer::Impl : httplib::Server {
  Impl(HttpOptions given, HttpHandlers do_what)
      : options(std::move(given)),
        handlers(std::move(do_what)),
        limits{options.header_seconds, options.idle_seconds, options.stall_seconds, kHeaderBytes,
               options.body_limit},
        bodies{kBodies * options.body_limit} {
    new_task_queue = [this] { return new Threads(options.connections); };
    // The library's default lets a second server share the port in silence.
    set_socket_options([](socket_t socket) {
      const int on = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    });
    set_payload_max_length(options.body_limit);
    set_keep_alive_max_count(1 << 20);
    set_keep_alive_timeout(static_cast<time_t>(options.idle_seconds));
    set_pre_routing_handler([this](const httplib::Request& in, httplib::Response& out) {
      return gate(in, out) ? HandlerResponse::Handled : HandlerResponse::Unhandled;
    });
    const auto handler = [this](const httplib::Request& in, httplib::Response& out) {
      answer(in, out);
    };
    Get(".*", handler).Post(".*", handler).Put(".*", handler).Patch(".*", handler);
    Delete(".*", handler).Options(".*", handler);
    set_error_handler([this](const httplib::Request& in, httplib::Response& out) {
      if (current != nullptr && current->too_large())
        out.status = current->in_header() ? kHeaderTooLarge : 413;
      const bool crowded = current != nullptr && current->crowded();
      if (crowded) {
        out.status = 503;
        out.set_header("Retry-After", "1");
      }
      if (out.body.empty()) {
        const std::string why = crowded ? "too many large requests at once; try again later" : "";
        out.set_content(handlers.refuse(out.status, in.path, why), "application/json");
      }
      if (out.status == 400 || out.status == 413 || out.status == kUriTooLong ||
          out.status == kHeaderTooLarge ||
          crowded) {  // where the next request would begin is not known
        out.set_header("Connection", "close");
        if (current != nullptr) current->close_after();
      }
    });
  }

  bool gate(const httplib::Request& in, httplib::Response& out) {
    HttpReply reply;
    bool answered = true;
    if (const std::string why = ambiguous(in); !why.empty()) {
      reply.status = 400;
      reply.body = handlers.refuse(400, in.path, why);
    } else if (in.path.size() > kPathBytes) {
      reply.status = 404;
      reply.body = handlers.refuse(404, in.path, "");
    } else {
      answered = handlers.gate(Request(in, *current), reply);
      // Announced too large: the library would read all of it away before it says so.
      if (!answered && announced(in) > options.body_limit) {
        reply.status = 413;
        reply.body = handlers.refuse(413, in.path, "");
        answered = true;
      }
    }
    const bool has_body =
        in.has_header("Transfer-Encoding") || in.get_header_value("Content-Length") != "0";
    if (answered) {
      reply.close = reply.close || has_body;  // the body stays unread
      fill(reply, in.version, out);
    } else {
      current->header_done(in.has_header("Transfer-Encoding"));
      // The library leaves the body of these where it is: it would be read as the next request.
      if (has_body && (in.method == "GET" || in.method == "HEAD")) current->close_after();
    }
    return answered;
  }

  void answer(const httplib::Request& in, httplib::Response& out) {
    HttpReply reply;
    handlers.handle(Request(in, *current), reply);
    fill(reply, in.version, out);
  }

  bool process_and_close_socket(socket_t socket) override {
    ++open;
    {
      Connection connection(socket, limits, bodies, stopping, aborting);
      Stream stream(connection);
      current = &connection;
      if (refuse_connection) {
        const std::string text = own_answer(503, "Service Unavailable\r\nRetry-After: 1");
        ::send(socket, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      } else {
        serve(connection, stream);
      }
      current = nullptr;
    }
    --open;
    return true;
  }

  // Where the library cannot answer.
  std::string own_answer(int status, const char* words) const {
    const std::string body = handlers.refuse(status, "", "");
    return cat("HTTP/1.1 ", status, " ", words,
               "\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: ",
               body.size(), "\r\n\r\n", body);
  }

  // The compiled library listens with a queue of 5, so a burst of clients would wait a second for
  // the repeat of a lost SYN. Listening again on the same socket only changes the length.
  void listen_more() { ::listen(svr_sock_, 1024); }

  // Between 0.14 and 0.18 the library began to want the two addresses, which nothing here looks at.
  template <typename Self>
  static bool process(Self& self, Stream& stream, bool& closed,
                      const std::function<void(httplib::Request&)>& prepare) {
    const bool stop = self.stopping.load();
    if constexpr (requires { self.process_request(stream, stop, closed, prepare); }) {
      return self.process_request(stream, stop, closed, prepare);
    } else {
      return self.process_request(stream, "", 0, "", 0, stop, closed, prepare);
    }
  }

  void serve(Connection& connection, Stream& stream) {
    const auto prepare = [](httplib::Request& request) {
      // No parts of answers and no compression: both would only cost time on one machine.
      request.ranges.clear();
      request.headers.erase("Accept-Encoding");
      // Without a length there is no body; the library would wait for the end of the connection.
      if (!request.has_header("Content-Length") && !request.has_header("Transfer-Encoding"))
        request.set_header("Content-Length", "0");
    };
    while (connection.wait_request()) {
      bool closed = false;
      const bool good = process(*this, stream, closed, prepare);
      if (!good && connection.too_large() && !connection.wrote()) {  // in the first line
        const std::string text = own_answer(kHeaderTooLarge, "Request Header Fields Too Large");
        connection.write(text.data(), text.size());
      }
      if (!good || closed || connection.closing()) break;
    }
  }

  const HttpOptions options;
  const HttpHandlers handlers;
  const ConnectionLimits limits;
  BodyBudget bodies;
  std::atomic<bool> finished{false};
  std::atomic<bool> stopping{false}, aborting{false};
  std::atomic<size_t> open{0};
};

HttpServer::HttpServer(HttpOptions options, HttpHandlers handlers)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(handlers))) {}
HttpServer::~HttpServer() = default;

int HttpServer::bind() {
  const HttpOptions& options = impl_->options;
  errno = 0;
  const int port = options.port == 0
                       ? impl_->bind_to_any_port(options.host)
                       : (impl_->bind_to_port(options.host, options.port) ? options.port : -1);
  if (port < 0) {
    const char* why = errno != 0 ? std::strerror(errno) : "no such address";
    fail_resource("cannot listen on ", options.host, ":", options.port, ": ", why,
                  "; --port N and --host ADDRESS choose another");
  }
  impl_->listen_more();
  return port;
}

void HttpServer::run() {
  impl_->listen_after_bind();
  impl_->finished.store(true);
}

void HttpServer::stop() {
  impl_->stopping.store(true);
  // The library ignores a stop that comes before its loop has begun (a model that fails at once).
  while (!impl_->is_running() && !impl_->finished.load())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  impl_->stop();
}

void HttpServer::abort() {
  impl_->aborting.store(true);
  stop();
}

size_t HttpServer::connections() const { return impl_->open.load(); }

}  // namespace spk::server
