# Target flags of the CPU back end's inner loops: one object per instruction set, and these flags for that object only.
# Which object runs is decided at start (src/backend/cpu/isa.cc); nothing else in the program may use wider registers
# than the platform's base. -O3 also in debug builds: a test at full size would take minutes without it.
set(SPARKLING_LOOPS ${CMAKE_SOURCE_DIR}/src/backend/cpu)
set_source_files_properties(${SPARKLING_LOOPS}/kernels_generic.cc ${SPARKLING_LOOPS}/kernels_neon.cc
                            ${SPARKLING_LOOPS}/packed_generic.cc ${SPARKLING_LOOPS}/packed_neon.cc
                            PROPERTIES COMPILE_OPTIONS "-O3")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_source_files_properties(${SPARKLING_LOOPS}/kernels_avx2.cc PROPERTIES COMPILE_OPTIONS
                              "-O3;-mavx2;-mfma;-mf16c")
  set_source_files_properties(${SPARKLING_LOOPS}/packed_avx2.cc PROPERTIES COMPILE_OPTIONS "-O3;-mavx2;-mfma")
  set_source_files_properties(${SPARKLING_LOOPS}/packed_avxvnni.cc PROPERTIES COMPILE_OPTIONS "-O3;-mavx2;-mfma;-mavxvnni")
  # GCC 12's own intrinsics start from a register that is undefined on purpose, and it warns about that (PR 105593).
  set_source_files_properties(
    ${SPARKLING_LOOPS}/kernels_avx512.cc
    PROPERTIES COMPILE_OPTIONS "-O3;-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;\
-Wno-uninitialized;-Wno-maybe-uninitialized")
  set_source_files_properties(
    ${SPARKLING_LOOPS}/packed_avx512vnni.cc
    PROPERTIES COMPILE_OPTIONS "-O3;-mavx2;-mfma;-mavx512f;-mavx512bw;-mavx512vl;-mavx512vnni;\
-Wno-uninitialized;-Wno-maybe-uninitialized")
  set_source_files_properties(
    ${SPARKLING_LOOPS}/bf16_avx512.cc
    PROPERTIES COMPILE_OPTIONS "-O3;-mavx2;-mfma;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512bf16;-mavx512vbmi;\
-Wno-uninitialized;-Wno-maybe-uninitialized")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set_source_files_properties(${SPARKLING_LOOPS}/packed_neondot.cc PROPERTIES COMPILE_OPTIONS
                              "-O3;-march=armv8.2-a+dotprod")
endif()
