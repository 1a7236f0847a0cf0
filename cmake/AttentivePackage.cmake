# Packages for machines without this source tree: CPack writes a tarball and a .deb of the install component
# library. tools/package makes them; a build of ATTENTIVE_PACKAGE=OFF makes some whose libraries name folders of
# this machine, in assertions and debug information, and says so.
#
# Their config file has no LibTorch of its own to fall back on: it is the install component package, which CPack
# installs over that of library.

include_guard(GLOBAL)

attentive_torch_minor(_minor)
get_target_property(_type attentive_attention TYPE)
get_target_property(_prefix attentive::torch ATTENTIVE_PREFIX)
attentive_write_config("${PROJECT_BINARY_DIR}/attentive-config-package.cmake" "${_type}" "${ATTENTIVE_CUDA_CODE}" NO_PREFIX)
# Not by install(FILES), which keeps a file that is no second older than the one to install.
string(CONFIGURE [[
file(COPY_FILE "@PROJECT_BINARY_DIR@/attentive-config-package.cmake"
     "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/@CMAKE_INSTALL_LIBDIR@/cmake/attentive/attentive-config.cmake")]] _replace @ONLY)
install(CODE "${_replace}" COMPONENT package EXCLUDE_FROM_ALL)

# The Debian packages that a consumer needs: the compiler with its OpenMP runtime, the C library's headers, CMake,
# and the libraries of single components.
string(REGEX MATCH "^[0-9]+" _major "${CMAKE_CXX_COMPILER_VERSION}")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(_needs "g++ (>= 4:${_major})")
else()
  set(_needs "clang (>= 1:${_major})" "libomp-dev (>= 1:${_major})")
endif()
execute_process(COMMAND getconf GNU_LIBC_VERSION OUTPUT_VARIABLE _libc OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(_libc MATCHES "^glibc ([0-9.]+)$" AND NOT CMAKE_CROSSCOMPILING)
  list(APPEND _needs "libc6-dev (>= ${CMAKE_MATCH_1})")
else()
  list(APPEND _needs libc6-dev)
endif()
get_property(_libraries GLOBAL PROPERTY ATTENTIVE_COMPONENT_PACKAGES)
list(APPEND _needs "cmake (>= ${CMAKE_MINIMUM_REQUIRED_VERSION})" ${_libraries})
list(JOIN _needs ", " _needs)

set(_kind shared)
if(_type STREQUAL "STATIC_LIBRARY")
  set(_kind static)
endif()
set(_cuda "")
if(ATTENTIVE_CUDA_CODE OR ATTENTIVE_NCCL_CODE)
  set(_cuda "\nThe wheel with CUDA is needed: the library contains code for it.")
endif()
set(_description "A ${_kind} library with its headers and its CMake package:
find_package(attentive CONFIG), target attentive::attention.

It needs LibTorch ${_minor}, any release of it and no other minor version, with the C++11 ABI of
libstdc++, as PyPI's wheels have it. It is none of the packages on which this one depends.
To get it: python3 -m pip install 'torch==${_minor}.*'${_cuda}

find_package looks for it at Torch_DIR, Torch_ROOT and CMAKE_PREFIX_PATH, and takes the PyTorch of
python3 if these name none. It refuses one that does not fit with one line that says what would.")

set(_processor "${CMAKE_SYSTEM_PROCESSOR}")
set(_architecture "${_processor}")
if(_processor STREQUAL "x86_64")
  set(_architecture amd64)
elseif(_processor STREQUAL "aarch64")
  set(_architecture arm64)
endif()

set(CPACK_GENERATOR TGZ DEB)
set(CPACK_PACKAGE_NAME attentive)
set(CPACK_PACKAGE_VENDOR "the attentive authors")
if(NOT CPACK_PACKAGE_CONTACT)
  set(CPACK_PACKAGE_CONTACT "the attentive authors")
endif()
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "scaled-dot-product attention for LibTorch ${_minor}")
set(CPACK_PACKAGE_FILE_NAME "attentive-${PROJECT_VERSION}-torch${_minor}-${_processor}")
# One after the other into one folder: what CPack calls components would become packages of their own.
set(CPACK_MONOLITHIC_INSTALL ON)
set(CPACK_INSTALL_CMAKE_PROJECTS
  "${PROJECT_BINARY_DIR};${PROJECT_NAME};library;/;${PROJECT_BINARY_DIR};${PROJECT_NAME};package;/")
set(CPACK_DEBIAN_PACKAGE_NAME libattentive-dev)
set(CPACK_DEBIAN_PACKAGE_VERSION "${PROJECT_VERSION}+torch${_minor}")
set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE "${_architecture}")
set(CPACK_DEBIAN_FILE_NAME "libattentive-dev_${PROJECT_VERSION}+torch${_minor}_${_architecture}.deb")
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "${_needs}")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "${_description}")
# Before anything is packed, for each of the two.
set(CPACK_PRE_BUILD_SCRIPTS "${ATTENTIVE_CMAKE_FOLDER}/attentive_package_paths.cmake")
set(CPACK_ATTENTIVE_PATHS "${_prefix};${PROJECT_SOURCE_DIR};${PROJECT_BINARY_DIR}")
set(CPACK_ATTENTIVE_STRICT "${ATTENTIVE_PACKAGE}")
include(CPack)
