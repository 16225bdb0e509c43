# Fuzz targets: tests/fuzz/NAME_fuzz.cc, with its corpus in tests/fuzz/corpus/NAME.
#
# SPARKLING_FUZZ (preset "fuzz": clang, address and undefined sanitizers): each becomes the libFuzzer program fuzz_NAME.
# Otherwise they are part of sparkling_tests, where fuzz_corpus_test.cc replays the corpora; the one function name that
# libFuzzer calls in all of them becomes replay_NAME there.
if(SPARKLING_FUZZ AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "SPARKLING_FUZZ: expected the compiler clang, found ${CMAKE_CXX_COMPILER_ID}")
endif()
file(GLOB fuzz_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fuzz/*_fuzz.cc)
set(fuzz_list "")
foreach(source ${fuzz_sources})
  get_filename_component(name ${source} NAME_WE)
  string(REGEX REPLACE "_fuzz$" "" name ${name})
  if(SPARKLING_FUZZ)
    add_executable(fuzz_${name} ${source})
    target_link_libraries(fuzz_${name} PRIVATE spk_server spk_model spk_text -fsanitize=fuzzer)
    target_compile_definitions(fuzz_${name} PRIVATE SPARKLING_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  elseif(TARGET sparkling_tests)
    target_sources(sparkling_tests PRIVATE ${source})
    set_source_files_properties(${source} PROPERTIES COMPILE_DEFINITIONS LLVMFuzzerTestOneInput=replay_${name})
    string(APPEND fuzz_list " SPK_TARGET(${name})")
  endif()
endforeach()
if(TARGET sparkling_tests)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/tests/fuzz_corpus_test.cc PROPERTIES COMPILE_DEFINITIONS
                              "SPARKLING_FUZZ_TARGETS=${fuzz_list}")
endif()
