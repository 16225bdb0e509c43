# The page of the server as one text: page.html with the style and the scripts of src/server/page in place of their
# marks, as a source file. All of it in hexadecimal, because CMake's strings have rules of their own.
set(page_folder ${CMAKE_SOURCE_DIR}/src/server/page)
set(page_scripts markdown.js store.js api.js view.js panel.js chat.js)  # in this order, one scope
foreach(file page.html page.css ${page_scripts})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page_folder}/${file})
endforeach()
file(READ ${page_folder}/page.html page_bytes HEX)
file(READ ${page_folder}/page.css page_style HEX)
set(page_script "")
foreach(file ${page_scripts})
  file(READ ${page_folder}/${file} page_part HEX)
  string(APPEND page_script "${page_part}")
endforeach()
string(HEX "@STYLE@" page_style_mark)
string(HEX "@SCRIPT@" page_script_mark)
string(REPLACE "${page_style_mark}" "${page_style}" page_bytes "${page_bytes}")
string(REPLACE "${page_script_mark}" "${page_script}" page_bytes "${page_bytes}")
string(REGEX REPLACE "(..)" "0x\\1," page_bytes "${page_bytes}")
string(REGEX REPLACE "((0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,))" "\\1\n  " page_bytes "${page_bytes}")
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/page.cc CONTENT
"// Made by cmake/page.cmake from src/server/page; not to be edited.
#include \"server/page.h\"

namespace spk::server {
namespace {
constexpr unsigned char kPage[] = {
  @page_bytes@
};
}  // namespace
std::string_view page_text() { return {reinterpret_cast<const char*>(kPage), sizeof kPage}; }
}  // namespace spk::server
" @ONLY)
