#include "server/page.h"

#include "base/error.h"
#include "server/service.h"

#include <string>

namespace spk::server {

void write_page(HttpReply& reply) {
  constexpr std::string_view kMark = "@NONCE@";
  const std::string nonce = new_id("");
  std::string_view rest = page_text();
  reply.type = "text/html; charset=utf-8";
  reply.body.clear();
  reply.body.reserve(rest.size() + 64);
  for (size_t at = rest.find(kMark); at != std::string_view::npos; at = rest.find(kMark)) {
    reply.body.append(rest.substr(0, at)).append(nonce);
    rest.remove_prefix(at + kMark.size());
  }
  reply.body.append(rest);
  reply.headers.emplace_back(
      "Content-Security-Policy",
      cat("default-src 'none'; script-src 'nonce-", nonce, "'; style-src 'nonce-", nonce,
          "'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
          "frame-ancestors 'none'"));
  reply.headers.emplace_back("X-Content-Type-Options", "nosniff");
  reply.headers.emplace_back("Referrer-Policy", "no-referrer");
  reply.headers.emplace_back("Cache-Control", "no-store");
}

}  // namespace spk::server
