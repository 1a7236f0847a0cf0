# Compiles for 64-bit ARM with Debian's cross compiler; qemu-user runs the programs. tools/checks/setup_aarch64.sh
# installs both, and unpacks the libraries for arm64 into the folder named below.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)

if(NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
  set(CMAKE_FIND_ROOT_PATH "$ENV{XDG_CACHE_HOME}/attentive/debian-arm64")
else()
  set(CMAKE_FIND_ROOT_PATH "$ENV{HOME}/.cache/attentive/debian-arm64")
endif()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
