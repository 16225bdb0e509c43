// One client's socket with deadlines: what the HTTP library reads from and writes to (src/server
// only).
//
// The library reads headers byte by byte and gives every single read a time-out, so a client that
// sends a byte now and then could hold a thread for ever. Here the deadline belongs to the request,
// not to the read.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace spk::server {

struct ConnectionLimits {
  double header_seconds, idle_seconds, stall_seconds;
  size_t header_bytes, body_bytes;
};

// What the bodies of all connections together may take: they stay until their answer is written.
struct BodyBudget {
  size_t limit;
  std::atomic<size_t> used{0};
};

class Connection {
 public:
  // Takes the socket; closes it at the end, after the client had a moment to read what was written.
  Connection(int socket, const ConnectionLimits& limits, BodyBudget& bodies,
             const std::atomic<bool>& stopping, const std::atomic<bool>& aborting);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Waits for the first byte of a request; false: none came, or the server stops.
  bool wait_request();
  // The header is complete; from here the limits of the body count. `chunked`: its length was not
  // announced.
  void header_done(bool chunked);

  ssize_t read(char* to, size_t size);
  ssize_t write(const char* from, size_t size);
  bool readable() const;
  bool gone() const;                             // closed or broken by the client
  bool too_large() const { return too_large_; }  // the header while in_header(), then the body
  bool crowded() const { return crowded_; }      // the budget of bodies was used up
  bool in_header() const { return in_header_; }
  bool wrote() const { return wrote_; }
  void close_after() { close_after_ = true; }
  bool closing() const { return close_after_ || too_large_ || crowded_ || broken_; }
  int socket() const { return socket_; }
  // "127.0.0.1" and port.
  void address(bool remote, std::string& ip, int& port) const;

 private:
  using Clock = std::chrono::steady_clock;
  bool wait(short events, Clock::time_point until, bool leave_when_stopping) const;
  void give_back() { bodies_.used -= std::exchange(held_, 0); }

  const int socket_;
  const ConnectionLimits limits_;
  BodyBudget& bodies_;
  const std::atomic<bool>& stopping_;
  const std::atomic<bool>& aborting_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
  bool in_header_ = true;
  bool wrote_ = false;
  size_t taken_ = 0;  // bytes of this request
  size_t allowed_ = 0;
  size_t held_ = 0;  // of the budget
  Clock::time_point header_deadline_;
  bool too_large_ = false, crowded_ = false, close_after_ = false, broken_ = false;
};

}  // namespace spk::server
