#include "server/access.h"

#include <algorithm>

namespace spk::server {
namespace {

// "[::1]:8080" -> "::1", "localhost:8080" -> "localhost"
std::string without_port(std::string host) {
  if (!host.empty() && host.front() == '[') return host.substr(1, host.find(']') - 1);
  const size_t colon = host.find(':');
  if (colon != std::string::npos && host.find(':', colon + 1) == std::string::npos)
    host.resize(colon);
  return host;
}

std::string decode_base64(std::string_view text) {
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    uint32_t value = 0;
    if (c >= 'A' && c <= 'Z')
      value = static_cast<uint32_t>(c - 'A');
    else if (c >= 'a' && c <= 'z')
      value = static_cast<uint32_t>(c - 'a' + 26);
    else if (c >= '0' && c <= '9')
      value = static_cast<uint32_t>(c - '0' + 52);
    else if (c == '+')
      value = 62;
    else if (c == '/')
      value = 63;
    else
      break;
    bits = bits << 6 | value;
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 0xff);
  }
  return out;
}

}  // namespace

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
  return text;
}

bool is_loopback(std::string_view host) {
  // All of 127.0.0.0/8, but not a name that only begins so.
  const bool digits = host.find_first_not_of("0123456789.") == std::string_view::npos;
  return host == "localhost" || host == "::1" || (digits && host.substr(0, 4) == "127.");
}

bool same_secret(std::string_view given, std::string_view secret) {
  size_t different = given.size() ^ secret.size();
  for (size_t i = 0; i < given.size(); ++i) {
    const char other = secret.empty() ? '\0' : secret[i % secret.size()];
    different |= static_cast<unsigned char>(given[i] ^ other);
  }
  return different == 0;
}

bool has_key(const HttpRequest& request, const std::string& key) {
  if (request.has_header("X-Api-Key") && same_secret(request.header("X-Api-Key"), key)) return true;
  const std::string header = request.header("Authorization");
  const size_t space = header.find(' ');
  if (space == std::string::npos) return false;
  const std::string scheme = lower(header.substr(0, space));
  const std::string_view rest = std::string_view(header).substr(space + 1);
  if (scheme == "bearer") return same_secret(rest, key);
  if (scheme != "basic") return false;
  const std::string pair = decode_base64(rest);
  const size_t colon = pair.find(':');
  return colon != std::string::npos && same_secret(std::string_view(pair).substr(colon + 1), key);
}

bool host_allowed(const HttpRequest& request, const ServerOptions& options) {
  if (!is_loopback(options.http.host)) return true;
  if (!request.has_header("Host")) return true;  // not a browser
  const std::string host = lower(without_port(request.header("Host")));
  return is_loopback(host) || host == lower(options.http.host);
}

bool origin_named(const std::string& origin, const ServerOptions& options) {
  return std::find(options.cors.begin(), options.cors.end(), origin) != options.cors.end();
}

bool origin_allowed(const HttpRequest& request, const ServerOptions& options) {
  if (!request.has_header("Origin")) return true;
  const std::string origin = request.header("Origin");
  const size_t slashes = origin.find("://");
  if (slashes != std::string::npos && origin.substr(slashes + 3) == request.header("Host"))
    return true;
  return origin_named(origin, options);
}

}  // namespace spk::server
