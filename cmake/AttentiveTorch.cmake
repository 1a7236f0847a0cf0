# LibTorch provider: defines attentive::torch and prints, in one line, which Torch it is and why. Order: an
# existing target `torch`; Torch_DIR, Torch_ROOT, CMAKE_PREFIX_PATH; the Torch of python3; a pinned wheel,
# installed with pip into a per-user cache.

include("${CMAKE_CURRENT_LIST_DIR}/attentive_torch_target.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/AttentiveTorchInstall.cmake")

set(ATTENTIVE_TORCH "auto" CACHE STRING
    "auto: the whole LibTorch if its NVIDIA libraries are complete, else its CPU half; cpu; cuda")
set_property(CACHE ATTENTIVE_TORCH PROPERTY STRINGS auto cpu cuda)
set(ATTENTIVE_TORCH_VERSION "" CACHE STRING "Use exactly this LibTorch (empty: any supported one)")
set(ATTENTIVE_INSTALL_TORCH "AUTO" CACHE STRING
    "Install a LibTorch wheel if none is found: AUTO (only as the top-level project), ON, OFF")
set_property(CACHE ATTENTIVE_INSTALL_TORCH PROPERTY STRINGS AUTO ON OFF)

# A path that was mistyped, or copied from a page as it stands there.
foreach(_torch_root IN LISTS CMAKE_PREFIX_PATH)
  if(NOT EXISTS "${_torch_root}")
    message(WARNING " attentive: CMAKE_PREFIX_PATH names ${_torch_root}, which does not exist")
  endif()
endforeach()

if(NOT TARGET attentive::torch)
  attentive_torch_find(_torch)
  if(TARGET torch AND NOT _torch_PREFIX)
    # Not a library file (it is built in the same tree, or is a wrapper): the target itself knows what it
    # needs.
    add_library(attentive::torch INTERFACE IMPORTED GLOBAL)
    target_link_libraries(attentive::torch INTERFACE torch)
    set(_torch_VERSION "${Torch_VERSION}")
    message(STATUS "attentive: LibTorch from the existing target torch, linked by that name")
  else()
    set(_torch_passed_over "")
    if(_torch_PREFIX)
      attentive_torch_read(_torch "${_torch_PREFIX}")
      if(NOT _torch_PROBLEM AND ATTENTIVE_TORCH_VERSION AND NOT _torch_VERSION VERSION_EQUAL ATTENTIVE_TORCH_VERSION)
        set(_torch_PROBLEM "the Torch at ${_torch_PREFIX} is ${_torch_VERSION}, ATTENTIVE_TORCH_VERSION asks for ${ATTENTIVE_TORCH_VERSION}; give the path of that one with -DTorch_DIR=<torch>/share/cmake/Torch")
      endif()
      if(_torch_PROBLEM AND NOT _torch_EXPLICIT)
        set(_torch_passed_over "${_torch_PROBLEM}")
        set(_torch_PREFIX "")
        set(_torch_PROBLEM "")
      endif()
    endif()

    if(NOT _torch_PREFIX AND NOT _torch_PROBLEM)
      attentive_torch_may_install(_torch_install _torch_cached)
      if(_torch_install AND _torch_passed_over)
        message(STATUS "attentive: passed over: ${_torch_passed_over}")
      endif()
      if(_torch_cached)
        attentive_torch_install(_torch ${_torch_install})
      endif()
      if(NOT _torch_PREFIX AND NOT _torch_PROBLEM AND _torch_passed_over)
        set(_torch_PROBLEM "${_torch_passed_over}")
      elseif(NOT _torch_PREFIX AND NOT _torch_PROBLEM)
        get_property(_torch_usual GLOBAL PROPERTY ATTENTIVE_TORCH_USUAL)
        set(_torch_PROBLEM "found no LibTorch; install one with python3 -m pip install torch==${_torch_usual}, name yours with -DTorch_DIR=<torch>/share/cmake/Torch, or allow the download with -DATTENTIVE_INSTALL_TORCH=ON")
      endif()
      if(NOT _torch_PROBLEM)
        attentive_torch_read(_torch "${_torch_PREFIX}")
      endif()
    endif()

    if(NOT _torch_PROBLEM)
      attentive_torch_half(_torch "${_torch_PREFIX}")
    endif()
    if(_torch_PROBLEM)
      # A message that begins with a space is not wrapped by CMake.
      message(FATAL_ERROR " attentive: ${_torch_PROBLEM}")
    endif()

    attentive_torch_define("${_torch_PREFIX}" ${_torch_HALF})
    set(_torch_what "whole")
    if(_torch_HALF STREQUAL "cpu")
      set(_torch_what "CPU half")
    endif()
    message(STATUS "attentive: LibTorch ${_torch_VERSION} (${_torch_what}: ${_torch_WHY}) from ${_torch_ORIGIN}: ${_torch_PREFIX}")
  endif()
  set_property(TARGET attentive::torch PROPERTY ATTENTIVE_VERSION "${_torch_VERSION}")
endif()
