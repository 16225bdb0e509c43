// Who may ask: API key, origin of a page, name of the host. No request body is read before these
// have passed.
#pragma once

#include "server/api_error.h"
#include "server/http.h"
#include "server/service.h"

#include <string>
#include <string_view>

namespace spk::server {

std::string lower(std::string text);  // ASCII letters
bool is_loopback(std::string_view host);
// Time depends on the length of `given` only.
bool same_secret(std::string_view given, std::string_view secret);
// Key as "Authorization: Bearer KEY", "X-Api-Key: KEY", or the password of Basic, which browsers
// ask for.
bool has_key(const HttpRequest& request, const std::string& key);
// On a loopback address the Host header must be one too (or the given host), or a page of another
// name could reach the server through the browser. Other addresses have a key.
bool host_allowed(const HttpRequest& request, const ServerOptions& options);
// An Origin header must be the server's own or a named one.
bool origin_allowed(const HttpRequest& request, const ServerOptions& options);
bool origin_named(const std::string& origin, const ServerOptions& options);

}  // namespace spk::server
