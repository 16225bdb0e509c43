# spk_version: which code this is. Run twice: included by CMakeLists.txt it makes the library; as a script (cmake -P) it
# writes version.cc, at each build, and leaves the file alone when nothing changed, so that a build without a new commit
# compiles nothing.
if(CMAKE_SCRIPT_MODE_FILE)
  set(commit "unknown")
  find_program(GIT git)
  if(GIT)
    set(ENV{GIT_OPTIONAL_LOCKS} 0)
    execute_process(COMMAND ${GIT} -c safe.directory=* -C ${SOURCE_DIR} describe --always --dirty --abbrev=12
                    OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
    if(NOT failed)
      set(commit ${described})
    endif()
  endif()
  file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT "// Made by cmake/version.cmake at each build; not to be edited.
#include \"cli/version.h\"

namespace spk {

Version version() { return {\"${VERSION}\", \"${commit}\", \"${BUILD_TYPE}\", \"${COMPILER}\"}; }

}  // namespace spk
")
  return()
endif()

set(version_source ${CMAKE_BINARY_DIR}/generated/version.cc)
set(version_build ${CMAKE_BUILD_TYPE})
if(SPARKLING_SANITIZE)
  string(APPEND version_build " ${SPARKLING_SANITIZE}")
endif()
add_custom_target(version_stamp
  COMMAND ${CMAKE_COMMAND} -DOUTPUT=${version_source} -DSOURCE_DIR=${CMAKE_SOURCE_DIR}
          -DVERSION=${PROJECT_VERSION} "-DBUILD_TYPE=${version_build}"
          "-DCOMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_SYSTEM_PROCESSOR}"
          -P ${CMAKE_SOURCE_DIR}/cmake/version.cmake
  BYPRODUCTS ${version_source}
  VERBATIM COMMENT "Which commit this is")
add_library(spk_version STATIC ${version_source})
add_dependencies(spk_version version_stamp)
target_include_directories(spk_version PUBLIC ${CMAKE_SOURCE_DIR}/src)
