# ATTENTIVE_CUDA: whether the library contains CUDA C++. Sets ATTENTIVE_CUDA_CODE, and only then enables the
# language CUDA, for this project's folders.

include("${CMAKE_CURRENT_LIST_DIR}/AttentiveSwitch.cmake")

set(ATTENTIVE_CUDA "AUTO" CACHE STRING
    "CUDA C++ in the library: AUTO (if there is an nvcc, and a LibTorch that runs on NVIDIA GPUs), ON, OFF")
set_property(CACHE ATTENTIVE_CUDA PROPERTY STRINGS AUTO ON OFF)
find_program(ATTENTIVE_NVCC nvcc HINTS "${CMAKE_CUDA_COMPILER}" ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH
             PATHS /usr/local/cuda PATH_SUFFIXES bin DOC "The CUDA compiler")
mark_as_advanced(ATTENTIVE_NVCC)

# attentive_cuda_lack(<out>): what prevents CUDA code, with the fix; empty if nothing does.
function(attentive_cuda_lack out)
  get_target_property(half attentive::torch ATTENTIVE_HALF)
  get_target_property(cudart attentive::torch ATTENTIVE_CUDART)
  set(lack "")
  if(NOT ATTENTIVE_NVCC AND NOT CMAKE_CUDA_COMPILER)
    set(lack "there is no nvcc; install a CUDA toolkit and name it with -DATTENTIVE_NVCC=<toolkit>/bin/nvcc")
  elseif(NOT cudart)
    set(lack "this LibTorch does not run on NVIDIA GPUs; install the whole one, python3 -m pip install torch, and name it with -DTorch_DIR=<torch>/share/cmake/Torch")
  elseif(NOT half STREQUAL "full")
    set(lack "only the CPU half of LibTorch is linked, which is all that a CPU needs; for NVIDIA GPUs, configure with -DATTENTIVE_TORCH=cuda")
  else()
    attentive_cuda_release(release)
    string(REGEX REPLACE "^.*libcudart\\.so\\.([0-9]+).*$" "\\1" wanted "${cudart}")
    if(NOT release)
      set(lack "${ATTENTIVE_NVCC} does not run; name another with -DATTENTIVE_NVCC=<toolkit>/bin/nvcc")
    elseif(NOT release MATCHES "^${wanted}\\.")
      set(lack "${ATTENTIVE_NVCC} is of CUDA ${release}, LibTorch of CUDA ${wanted}; install a toolkit of that one and name it with -DATTENTIVE_NVCC=<toolkit>/bin/nvcc")
    endif()
  endif()
  set(${out} "${lack}" PARENT_SCOPE)
endfunction()

# The release of nvcc, such as 13.0.
function(attentive_cuda_release out)
  set(compiler "${ATTENTIVE_NVCC}")
  if(CMAKE_CUDA_COMPILER)
    set(compiler "${CMAKE_CUDA_COMPILER}")
  endif()
  execute_process(COMMAND "${compiler}" --version OUTPUT_VARIABLE text ERROR_QUIET)
  string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" _ "${text}")
  set(${out} "${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()

attentive_switch_wanted(ATTENTIVE_CUDA "CUDA code" ATTENTIVE_CUDA_CODE)
if(ATTENTIVE_CUDA_CODE)
  attentive_cuda_lack(_cuda_lack)
  attentive_switch_settle(ATTENTIVE_CUDA "CUDA code" "${_cuda_lack}" ATTENTIVE_CUDA_CODE)
endif()
if(ATTENTIVE_CUDA_CODE)
  attentive_cuda_release(_cuda_release)
  message(STATUS "attentive: CUDA code for sm_80 and sm_90, by nvcc ${_cuda_release}")
endif()

# attentive_enable_cuda(): a macro, because a language is enabled for the calling folder.
macro(attentive_enable_cuda)
  if(NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER "${ATTENTIVE_NVCC}" CACHE FILEPATH "The CUDA compiler")
  endif()
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    # CMake 3.25 would test the compiler with a default architecture that nvcc 13 does not support.
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 90-virtual)
  endif()
  if(PROJECT_IS_TOP_LEVEL AND ATTENTIVE_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER "${ATTENTIVE_CCACHE}")
  endif()
  enable_language(CUDA)
endmacro()

# attentive_cuda_sources(<target> HOST <source>… DEVICE <source>…): adds CUDA sources (DEVICE), and C++
# sources that call the runtime (HOST). CUDA sources are compiled separately, because nvcc understands neither
# the warnings nor the precompiled header of the C++ sources. The runtime is LibTorch's.
function(attentive_cuda_sources target)
  cmake_parse_arguments(ARG "" "" "HOST;DEVICE" ${ARGN})
  add_library(${target}_cuda OBJECT ${ARG_DEVICE})
  target_include_directories(${target}_cuda PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(${target}_cuda PRIVATE
    -O3 -Xcompiler=-Wall,-Wextra $<$<BOOL:${ATTENTIVE_WERROR}>:-Werror=all-warnings>)
  set_target_properties(${target}_cuda PROPERTIES
    CUDA_ARCHITECTURES "80-real;90-real;90-virtual" CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF
    CUDA_RUNTIME_LIBRARY None POSITION_INDEPENDENT_CODE ON)
  target_sources(${target} PRIVATE ${ARG_HOST} $<TARGET_OBJECTS:${target}_cuda>)
  foreach(folder IN LISTS CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES)
    # A flag of these sources only, so that the others are compiled as in a build without CUDA code.
    set_property(SOURCE ${ARG_HOST} APPEND PROPERTY COMPILE_OPTIONS "-isystem${folder}")
  endforeach()
  # C++ links the result, so users of the library need no CUDA compiler. The Makefile generators ask for the
  # CUDA dialect of this target too, which without CUDA_STANDARD would be that of its cxx_std_20; CMake 3.25
  # knows no such dialect of nvcc 13.
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX CUDA_RUNTIME_LIBRARY None CUDA_STANDARD 17)
endfunction()
