# The kernels as host code, and with them a driver library that tests put in front of the real one (tests/fake_gpu).
# GCC does not know #pragma unroll, and warns of it where no pragma of its own can stop it. Optimised in every build: the
# emulated runs would take minutes without it.
add_library(spk_emulator OBJECT ${CMAKE_SOURCE_DIR}/tests/support/emulator.cc
            ${CMAKE_SOURCE_DIR}/tests/support/emulated_kernels.cc)
target_include_directories(spk_emulator PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tests)
set_target_properties(spk_emulator PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden)
set_source_files_properties(${CMAKE_SOURCE_DIR}/tests/support/emulated_kernels.cc
                            PROPERTIES COMPILE_OPTIONS "-O2;-Wno-unknown-pragmas")

# Named as the program looks for it; a folder of its own, so that only LD_LIBRARY_PATH finds it.
add_library(fake_cuda SHARED ${CMAKE_SOURCE_DIR}/tests/fake_gpu/driver.cc ${CMAKE_SOURCE_DIR}/tests/fake_gpu/gpu.cc
            ${CMAKE_SOURCE_DIR}/src/base/error.cc)
target_include_directories(fake_cuda PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tests)
target_link_libraries(fake_cuda PRIVATE spk_emulator)
set_target_properties(fake_cuda PROPERTIES CXX_VISIBILITY_PRESET hidden OUTPUT_NAME cuda SUFFIX .so.1
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fake_gpu)
