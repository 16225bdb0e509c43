// The transport: connections, requests, answers. The only place that knows the HTTP library
// (cpp-httplib 0.11 to 0.14).
//
// Owns sockets, threads and every limit that concerns bytes and time: one thread per connection up
// to a limit, a deadline for the whole header, progress deadlines for body and answer, the size of
// a body. Knows no route and no JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spk::server {

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8080;  // 0: any free one
  size_t body_limit = size_t{16} << 20;
  size_t connections = 512;    // more are answered with 503 at once
  double header_seconds = 10;  // from the first byte of a request to the end of its header
  double idle_seconds = 60;    // between two requests of one connection
  double stall_seconds = 60;   // without progress while reading a body or writing an answer
};

class HttpRequest {
 public:
  virtual ~HttpRequest() = default;
  virtual const std::string& method() const = 0;
  virtual const std::string& path() const = 0;  // decoded, without the query
  virtual const std::string& body() const = 0;
  virtual std::string header(const std::string& name) const = 0;  // "": absent
  virtual bool has_header(const std::string& name) const = 0;
  virtual std::string peer() const = 0;  // address of the client
  // Whether the client has closed the connection; asks the socket, takes nothing from it.
  virtual bool client_gone() const = 0;
};

// Writes to a client; false: the connection is lost or made no progress for stall_seconds.
class HttpWriter {
 public:
  virtual ~HttpWriter() = default;
  virtual bool write(std::string_view bytes) = 0;
  virtual bool client_gone() const = 0;
};

struct HttpReply {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
  // Set: the header goes out, then this writes the body piece by piece. It runs on the connection's
  // thread.
  std::function<void(HttpWriter&)> stream;
  bool close = false;  // end the connection after it
};

struct HttpHandlers {
  // Sees a request before its body is read; true: `reply` is the answer and the body is never
  // looked at.
  std::function<bool(const HttpRequest&, HttpReply& reply)> gate;
  std::function<void(const HttpRequest&, HttpReply& reply)> handle;
  // Body for what the transport refuses itself: malformed requests (400), too large ones (413,
  // 414, 431), too many (503). `path`: as far as it is known, it decides the form; `why`: more than
  // the status says, or nothing.
  std::function<std::string(int status, const std::string& path, const std::string& why)> refuse;
};

class HttpServer {
 public:
  HttpServer(HttpOptions options, HttpHandlers handlers);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Binds and listens; returns the port. Error(kResource) naming address and reason when it cannot.
  int bind();
  // Serves until stop(); returns when the last connection is over.
  void run();
  // Takes no new connections and closes idle ones; answers that are being written go on. Any
  // thread, once run() has been called or is about to be: it waits for it.
  void stop();
  // Cuts all connections. Any thread.
  void abort();
  size_t connections() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spk::server
