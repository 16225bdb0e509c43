// The page at /, embedded at build time (cmake/page.cmake makes the source from page.html).
#pragma once

#include <string_view>

namespace spk::server {

std::string_view page();

}  // namespace spk::server
