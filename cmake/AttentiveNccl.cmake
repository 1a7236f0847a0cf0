# ATTENTIVE_NCCL: whether attentive::distributed communicates between GPUs, with LibTorch's c10d over NCCL.
# Sets ATTENTIVE_NCCL_CODE, and ATTENTIVE_NCCL_FOLDERS, the folders of the NCCL and CUDA headers that c10d's
# NCCL header includes.

include("${CMAKE_CURRENT_LIST_DIR}/AttentiveSwitch.cmake")

set(ATTENTIVE_NCCL "AUTO" CACHE STRING
    "NCCL in attentive::distributed: AUTO (if the whole LibTorch is linked, and there are headers of its NCCL and CUDA), ON, OFF")
set_property(CACHE ATTENTIVE_NCCL PROPERTY STRINGS AUTO ON OFF)
set(ATTENTIVE_NCCL_INCLUDE "" CACHE PATH "The folder of nccl.h, if it is neither beside LibTorch nor in a CUDA toolkit")
mark_as_advanced(ATTENTIVE_NCCL_INCLUDE)

# attentive_define_in(<header> <name> <out>): the number that a header defines as a macro; empty if there is
# none.
function(attentive_define_in header name out)
  set(${out} "" PARENT_SCOPE)
  if(EXISTS "${header}")
    file(STRINGS "${header}" line REGEX "^#define ${name} +[0-9]+" LIMIT_COUNT 1)
    string(REGEX MATCH "[0-9]+$" number "${line}")
    set(${out} "${number}" PARENT_SCOPE)
  endif()
endfunction()

# The major.minor version of the NCCL with which a wheel of LibTorch was built, from the wheel's metadata.
# Empty for any other LibTorch; a group of several processes then compares the versions when it is joined.
function(attentive_nccl_of_torch prefix out)
  set(${out} "" PARENT_SCOPE)
  file(GLOB metadata "${prefix}/../torch-*.dist-info/METADATA")
  foreach(file IN LISTS metadata)
    file(STRINGS "${file}" line REGEX "^Requires-Dist: nvidia-nccl-cu[0-9]+==" LIMIT_COUNT 1)
    if(line MATCHES "==([0-9]+\\.[0-9]+)")
      set(${out} "${CMAKE_MATCH_1}" PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

# attentive_nccl_lack(<out> <folders>): what prevents NCCL, with the fix; empty if nothing does. folders:
# those of the headers.
function(attentive_nccl_lack out folders_out)
  get_target_property(half attentive::torch ATTENTIVE_HALF)
  get_target_property(cudart attentive::torch ATTENTIVE_CUDART)
  get_target_property(prefix attentive::torch ATTENTIVE_PREFIX)
  set(${folders_out} "" PARENT_SCOPE)
  if(NOT cudart)
    set(${out} "this LibTorch does not run on NVIDIA GPUs; install the whole one, python3 -m pip install torch, and name it with -DTorch_DIR=<torch>/share/cmake/Torch" PARENT_SCOPE)
    return()
  elseif(NOT half STREQUAL "full")
    set(${out} "only the CPU half of LibTorch is linked, which is all that a CPU needs; for NVIDIA GPUs, configure with -DATTENTIVE_TORCH=cuda" PARENT_SCOPE)
    return()
  endif()
  file(STRINGS "${prefix}/include/caffe2/core/macros.h" nccl REGEX "\"USE_NCCL\", \"(1|ON)\"")
  if(NOT nccl)
    set(${out} "the LibTorch at ${prefix} was built without NCCL; name another with -DTorch_DIR=<torch>/share/cmake/Torch" PARENT_SCOPE)
    return()
  endif()

  # First the wheels next to LibTorch, whose versions fit; then a toolkit with the same CUDA version. PyPI's
  # wheels of CUDA 13 lack crt/, of which the wheel of Triton, a dependency of LibTorch's wheel, has a copy.
  string(REGEX REPLACE "^.*libcudart\\.so\\.([0-9]+).*$" "\\1" cuda "${cudart}")
  get_filename_component(packages "${prefix}/.." REALPATH)
  file(GLOB wheels "${packages}/nvidia/*/include")
  set(places ${ATTENTIVE_NCCL_INCLUDE} ${wheels})
  get_filename_component(toolkit "${ATTENTIVE_NVCC}" REALPATH)
  get_filename_component(toolkit "${toolkit}/../../include" ABSOLUTE)
  foreach(place IN ITEMS "${toolkit}" /usr/local/include /usr/include)
    attentive_define_in("${place}/cuda_runtime_api.h" CUDART_VERSION number)
    if(number MATCHES "^${cuda}0" OR (NOT number AND EXISTS "${place}/nccl.h"))
      list(APPEND places "${place}")
    endif()
  endforeach()
  list(APPEND places "${packages}/triton/backends/nvidia/include")

  set(folders "")
  foreach(header IN ITEMS nccl.h cuda_runtime_api.h cublasLt.h cusolverDn.h cusparse.h crt/host_defines.h)
    set(found "")
    foreach(place IN LISTS places)
      if(NOT found AND EXISTS "${place}/${header}")
        set(found "${place}")
      endif()
    endforeach()
    if(NOT found AND header STREQUAL "nccl.h")
      set(${out} "there is no nccl.h; python3 -m pip install nvidia-nccl-cu${cuda}, or name its folder with -DATTENTIVE_NCCL_INCLUDE=<folder>" PARENT_SCOPE)
      return()
    elseif(NOT found)
      set(${out} "there is no ${header} of CUDA ${cuda}; install a CUDA toolkit of that one and name it with -DATTENTIVE_NVCC=<toolkit>/bin/nvcc" PARENT_SCOPE)
      return()
    endif()
    list(APPEND folders "${found}")
  endforeach()
  list(REMOVE_DUPLICATES folders)

  list(GET folders 0 of_nccl)
  attentive_define_in("${of_nccl}/nccl.h" NCCL_MAJOR major)
  attentive_define_in("${of_nccl}/nccl.h" NCCL_MINOR minor)
  attentive_nccl_of_torch("${prefix}" wanted)
  if(wanted AND NOT wanted STREQUAL "${major}.${minor}")
    # c10d's objects contain structs of NCCL, whose sizes differ between releases.
    set(${out} "LibTorch was built with NCCL ${wanted}, ${of_nccl}/nccl.h is of ${major}.${minor}; name the folder of another with -DATTENTIVE_NCCL_INCLUDE=<folder>" PARENT_SCOPE)
    return()
  endif()
  set(${out} "" PARENT_SCOPE)
  set(${folders_out} "${folders}" PARENT_SCOPE)
endfunction()

attentive_switch_wanted(ATTENTIVE_NCCL "NCCL" ATTENTIVE_NCCL_CODE)
if(ATTENTIVE_NCCL_CODE AND ATTENTIVE_DISTRIBUTED)
  attentive_nccl_lack(_nccl_lack ATTENTIVE_NCCL_FOLDERS)
  attentive_switch_settle(ATTENTIVE_NCCL "NCCL" "${_nccl_lack}" ATTENTIVE_NCCL_CODE)
elseif(ATTENTIVE_NCCL STREQUAL "ON")
  message(FATAL_ERROR " attentive: ATTENTIVE_NCCL=ON, but the component distributed is not built; say -DATTENTIVE_BUILD_DISTRIBUTED=ON, or say ATTENTIVE_NCCL=AUTO")
else()
  set(ATTENTIVE_NCCL_CODE OFF)
endif()
if(ATTENTIVE_NCCL_CODE)
  list(GET ATTENTIVE_NCCL_FOLDERS 0 _nccl_folder)
  message(STATUS "attentive: NCCL between GPUs, by ${_nccl_folder}/nccl.h")
endif()

# attentive_nccl_source(<source>): compile settings of the one source that includes c10d's NCCL header.
function(attentive_nccl_source source)
  set(options "")
  foreach(folder IN LISTS ATTENTIVE_NCCL_FOLDERS)
    if(NOT folder MATCHES "^/usr(/local)?/include$")  # the compiler searches there anyway, in its own order
      list(APPEND options "-isystem${folder}")
    endif()
  endforeach()
  set_source_files_properties(${source} PROPERTIES
    SKIP_PRECOMPILE_HEADERS ON COMPILE_DEFINITIONS USE_C10D_NCCL COMPILE_OPTIONS "${options}")
endfunction()
