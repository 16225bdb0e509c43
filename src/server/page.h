// The page at /, embedded at build time (cmake/page.cmake makes one text of src/server/page/).
#pragma once

#include "server/http.h"

#include <string_view>

namespace spk::server {

// With @NONCE@ in the places that the Content-Security-Policy must know.
std::string_view page_text();

// Body, type and headers of the page; the status stays. Only the script and the style that carry
// this answer's nonce may run, so nothing that gets into the page later can.
void write_page(HttpReply& reply);

}  // namespace spk::server
