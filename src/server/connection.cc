#include "server/connection.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace spk::server {
namespace {

constexpr size_t kBuffer = 16384;
constexpr int kSliceMs = 100;  // how long a stop or an abort may go unnoticed

std::chrono::steady_clock::duration seconds(double s) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(s));
}

}  // namespace

Connection::Connection(int socket, const ConnectionLimits& limits, BodyBudget& bodies,
                       const std::atomic<bool>& stopping, const std::atomic<bool>& aborting)
    : socket_(socket),
      limits_(limits),
      bodies_(bodies),
      stopping_(stopping),
      aborting_(aborting),
      buffer_(kBuffer) {
  const int on = 1;
  setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // Left to itself the kernel takes up to some megabytes of an answer, and a reader that has
  // stopped looks like a slow one for minutes.
  const int send_bytes = 128 << 10;
  setsockopt(socket_, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes);
  fcntl(socket_, F_SETFL, fcntl(socket_, F_GETFL) | O_NONBLOCK);
  fcntl(socket_, F_SETFD, FD_CLOEXEC);
}

// A socket closed with unread bytes sends a reset, which can destroy the answer (a 413, say) on its
// way. So the end is announced first, and what the client still sends is read away for a moment.
Connection::~Connection() {
  give_back();
  ::shutdown(socket_, SHUT_WR);
  if (wrote_ && !broken_) {
    const auto until = Clock::now() + std::chrono::seconds(2);
    size_t left = 4 * limits_.body_bytes;
    while (left > 0 && wait(POLLIN, until, true)) {
      const ssize_t n = ::recv(socket_, buffer_.data(), buffer_.size(), 0);
      if (n <= 0) break;
      left -= std::min(left, static_cast<size_t>(n));
    }
  }
  ::close(socket_);
}

bool Connection::wait(short events, Clock::time_point until, bool leave_when_stopping) const {
  while (!aborting_.load() && !(leave_when_stopping && stopping_.load())) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd at{socket_, events, 0};
    const int ready = ::poll(&at, 1, static_cast<int>(std::clamp<int64_t>(left, 0, kSliceMs)));
    if (ready > 0) return true;
    if ((ready < 0 && errno != EINTR) || left <= 0) return false;
  }
  return false;
}

bool Connection::wait_request() {
  give_back();
  in_header_ = true;
  taken_ = 0;
  allowed_ = limits_.header_bytes;
  if (begin_ == end_ && !wait(POLLIN, Clock::now() + seconds(limits_.idle_seconds), true))
    return false;
  header_deadline_ = Clock::now() + seconds(limits_.header_seconds);
  return true;
}

void Connection::header_done(bool chunked) {
  in_header_ = false;
  // A body of announced length is refused by the library, which reads it away; without one, only
  // counting helps.
  allowed_ = taken_ + (chunked ? limits_.body_bytes : 4 * limits_.body_bytes) + kBuffer;
}

ssize_t Connection::read(char* to, size_t size) {
  if (begin_ == end_) {
    if (taken_ >= allowed_) {
      too_large_ = true;
      return -1;
    }
    const Clock::time_point until =
        in_header_ ? header_deadline_ : Clock::now() + seconds(limits_.stall_seconds);
    while (true) {
      if (!wait(POLLIN, until, false)) return -1;
      const ssize_t n = ::recv(socket_, buffer_.data(), buffer_.size(), 0);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (n <= 0) return n;
      begin_ = 0;
      end_ = static_cast<size_t>(n);
      taken_ += end_;
      if (in_header_) break;
      held_ += end_;
      if ((bodies_.used += end_) <= bodies_.limit) break;
      crowded_ = true;
      return -1;
    }
  }
  const size_t n = std::min(size, end_ - begin_);
  std::memcpy(to, buffer_.data() + begin_, n);
  begin_ += n;
  return static_cast<ssize_t>(n);
}

ssize_t Connection::write(const char* from, size_t size) {
  wrote_ = true;
  const Clock::time_point until = Clock::now() + seconds(limits_.stall_seconds);
  while (!broken_) {
    const ssize_t n = ::send(socket_, from, size, MSG_NOSIGNAL);
    if (n >= 0) return n;
    if (errno == EINTR) continue;
    if ((errno != EAGAIN && errno != EWOULDBLOCK) || !wait(POLLOUT, until, false)) broken_ = true;
  }
  return -1;
}

bool Connection::readable() const {
  if (begin_ < end_) return true;
  pollfd at{socket_, POLLIN, 0};
  return ::poll(&at, 1, 0) > 0;
}

bool Connection::gone() const {
  if (broken_ || aborting_.load()) return true;
  pollfd at{socket_, POLLRDHUP, 0};
  return ::poll(&at, 1, 0) > 0 && (at.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void Connection::address(bool remote, std::string& ip, int& port) const {
  sockaddr_storage where{};
  socklen_t length = sizeof where;
  auto* generic = reinterpret_cast<sockaddr*>(&where);
  const int failed =
      remote ? ::getpeername(socket_, generic, &length) : ::getsockname(socket_, generic, &length);
  char text[INET6_ADDRSTRLEN] = "";
  port = 0;
  if (failed == 0 && where.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&where);
    inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    port = ntohs(v4->sin_port);
  } else if (failed == 0 && where.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&where);
    inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    port = ntohs(v6->sin6_port);
  }
  ip = text;
}

}  // namespace spk::server
