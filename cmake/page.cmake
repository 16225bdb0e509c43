# The page of the server as a source file: a string literal, in pieces, because compilers limit the length of one.
file(READ ${CMAKE_SOURCE_DIR}/src/server/page.html page_text HEX)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/server/page.html)
string(REGEX REPLACE "(..)" "0x\\1," page_bytes "${page_text}")
string(REGEX REPLACE "((0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,))" "\\1\n  " page_bytes "${page_bytes}")
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/page.cc CONTENT
"// Made by cmake/page.cmake from src/server/page.html; not to be edited.
#include \"server/page.h\"

namespace spk::server {
namespace {
constexpr unsigned char kPage[] = {
  @page_bytes@
};
}  // namespace
std::string_view page() { return {reinterpret_cast<const char*>(kPage), sizeof kPage}; }
}  // namespace spk::server
" @ONLY)
