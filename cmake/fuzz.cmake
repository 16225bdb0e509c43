# libFuzzer targets: tests/fuzz/NAME_fuzz.cc becomes build-fuzz/fuzz_NAME, its corpus is tests/fuzz/corpus/NAME.
# Included when SPARKLING_FUZZ is on (preset "fuzz": clang, address and undefined sanitizers).
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "SPARKLING_FUZZ needs clang: expected Clang, found ${CMAKE_CXX_COMPILER_ID}")
endif()
file(GLOB fuzz_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fuzz/*_fuzz.cc)
foreach(source ${fuzz_sources})
  get_filename_component(name ${source} NAME_WE)
  string(REGEX REPLACE "_fuzz$" "" name ${name})
  add_executable(fuzz_${name} ${source})
  target_link_libraries(fuzz_${name} PRIVATE spk_model spk_text -fsanitize=fuzzer)
endforeach()
