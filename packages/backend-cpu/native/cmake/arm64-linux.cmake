# Builds for Linux on arm64 elsewhere, with g++-aarch64-linux-gnu, and runs tests in qemu-aarch64-static: see "Another processor" in
# README.md. LAZULI_SYSROOT is a folder that holds the libraries' arm64 packages, unpacked.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES LAZULI_SYSROOT)
set(CMAKE_FIND_ROOT_PATH "${LAZULI_SYSROOT}" /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
# OpenBLAS's own libraries are found there when linking, and when running.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${LAZULI_SYSROOT}/usr/lib/aarch64-linux-gnu")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L /usr/aarch64-linux-gnu
  -E "LD_LIBRARY_PATH=${LAZULI_SYSROOT}/usr/lib/aarch64-linux-gnu")
