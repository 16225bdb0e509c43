# Toolchain for cross-compiling to 64-bit Arm. The libraries are Debian's arm64 packages, unpacked by tools/arm_sysroot.sh
# into ARM_SYSROOT; the C and C++ libraries are the cross compiler's own.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

get_filename_component(ARM_SYSROOT "${CMAKE_CURRENT_LIST_DIR}/../build-aarch64-sysroot" ABSOLUTE)
set(CMAKE_FIND_ROOT_PATH ${ARM_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} "${ARM_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${ARM_SYSROOT}/usr/share/pkgconfig")
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${ARM_SYSROOT})

set(arm_libraries ${ARM_SYSROOT}/usr/lib/aarch64-linux-gnu)
set(CMAKE_CXX_FLAGS_INIT "-isystem ${ARM_SYSROOT}/usr/include/aarch64-linux-gnu -isystem ${ARM_SYSROOT}/usr/include")
set(CMAKE_EXE_LINKER_FLAGS_INIT
    "-L${arm_libraries} -Wl,-rpath-link,${arm_libraries}:${ARM_SYSROOT}/lib/aarch64-linux-gnu")
set(CMAKE_CROSSCOMPILING_EMULATOR
    qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=${arm_libraries}:${ARM_SYSROOT}/lib/aarch64-linux-gnu)
