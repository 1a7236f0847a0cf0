# Defines the libraries that single components need: attentive::pcre2 and attentive::utf8proc for
# attentive::tokenizers, attentive::zlib for attentive::viz, and parts of LibTorch for attentive::distributed.
# Used by this build (AttentiveComponents.cmake) and, installed unchanged, by the package's config file.

include_guard(GLOBAL)

# attentive_component_libraries(<component> <out>): defines the targets. <out> says what is missing, and which
# Debian package contains it; empty if nothing is missing.
function(attentive_component_libraries component out)
  set(lack "")
  if(component STREQUAL "tokenizers")
    attentive_component_library(pcre2 pcre2.h pcre2-8 libpcre2-dev lack)
    attentive_component_library(utf8proc utf8proc.h utf8proc libutf8proc-dev lack_of_second)
    if(NOT lack)
      set(lack "${lack_of_second}")
    endif()
  elseif(component STREQUAL "viz")
    attentive_component_library(zlib zlib.h z zlib1g-dev lack)
  elseif(component STREQUAL "distributed")
    attentive_component_torch(lack)
  endif()
  set(${out} "${lack}" PARENT_SCOPE)
endfunction()

# The parts of LibTorch that attentive::distributed needs: c10d's headers, Gloo, and c10d of this release or a
# later one.
function(attentive_component_torch out)
  set(${out} "" PARENT_SCOPE)
  get_target_property(version attentive::torch ATTENTIVE_VERSION)
  get_target_property(prefix attentive::torch ATTENTIVE_PREFIX)
  if(NOT prefix)  # a project's own target torch, with the version that the package was built with
    return()
  endif()
  set(other "name another LibTorch with -DTorch_DIR=<torch>/share/cmake/Torch")
  if(version VERSION_LESS 2.11)
    set(${out} "LibTorch ${version} is older than 2.11; ${other}" PARENT_SCOPE)
    return()
  endif()
  foreach(header IN ITEMS TCPStore.hpp reducer.hpp logger.hpp ProcessGroupGloo.hpp)
    if(NOT EXISTS "${prefix}/include/torch/csrc/distributed/c10d/${header}")
      set(${out} "the LibTorch at ${prefix} has no header torch/csrc/distributed/c10d/${header}; ${other}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  file(STRINGS "${prefix}/include/caffe2/core/macros.h" gloo REGEX "\"USE_GLOO\", \"ON\"")
  if(NOT gloo)
    set(${out} "the LibTorch at ${prefix} was built without Gloo; ${other}" PARENT_SCOPE)
  endif()
endfunction()

# The further need of a static attentive::distributed with NCCL: the whole LibTorch.
function(attentive_component_nccl out)
  set(${out} "" PARENT_SCOPE)
  get_target_property(prefix attentive::torch ATTENTIVE_PREFIX)
  get_target_property(half attentive::torch ATTENTIVE_HALF)
  if(prefix AND NOT (half STREQUAL "full" AND EXISTS "${prefix}/lib/libtorch_cuda.so"))
    set(${out} "it holds NCCL, and of the LibTorch at ${prefix} only the CPU half is linked; name a whole one with -DTorch_DIR=<torch>/share/cmake/Torch, or rebuild attentive with -DATTENTIVE_NCCL=OFF" PARENT_SCOPE)
  endif()
endfunction()

function(attentive_component_library name header library package out)
  set(${out} "" PARENT_SCOPE)
  if(TARGET attentive::${name})
    return()
  endif()
  string(TOUPPER "${name}" variable)
  find_path(ATTENTIVE_${variable}_INCLUDE ${header} DOC "The folder of ${header}")
  find_library(ATTENTIVE_${variable}_LIBRARY ${library} DOC "The library ${library}")
  mark_as_advanced(ATTENTIVE_${variable}_INCLUDE ATTENTIVE_${variable}_LIBRARY)
  if(NOT ATTENTIVE_${variable}_INCLUDE OR NOT ATTENTIVE_${variable}_LIBRARY)
    set(${out} "there is no ${name}; apt-get install ${package}" PARENT_SCOPE)
    return()
  endif()
  add_library(attentive::${name} UNKNOWN IMPORTED GLOBAL)
  set_target_properties(attentive::${name} PROPERTIES
    IMPORTED_LOCATION "${ATTENTIVE_${variable}_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${ATTENTIVE_${variable}_INCLUDE}")
  set_property(GLOBAL APPEND PROPERTY ATTENTIVE_COMPONENT_PACKAGES ${package})
endfunction()
