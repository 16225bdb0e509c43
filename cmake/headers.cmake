# Target spk_headers (not part of `all`; .ci/run builds it): each header of src compiles alone, with nothing before it.
file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/src/*.h)
# Not these: inner loops that kernels_*.cc take in once per instruction set, after that set's vector types.
list(FILTER headers EXCLUDE REGEX "^backend/cpu/(loops|simd)_")
set(header_sources "")
foreach(header IN LISTS headers)
  string(REPLACE "/" "_" header_name ${header})
  set(header_source ${CMAKE_BINARY_DIR}/generated/headers/${header_name}.cc)
  file(CONFIGURE OUTPUT ${header_source} CONTENT "#include \"${header}\"  // IWYU pragma: keep\n" @ONLY)
  list(APPEND header_sources ${header_source})
endforeach()
add_library(spk_headers OBJECT EXCLUDE_FROM_ALL ${header_sources})
target_include_directories(spk_headers PRIVATE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(spk_headers PRIVATE -O0)
