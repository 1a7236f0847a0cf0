# Finds a LibTorch on disk, checks it, and defines attentive::torch from its files. Used by this build
# (AttentiveTorch.cmake) and, installed unchanged, by the package's config file.
#
# find_package(Torch) is deliberately not called. It would define torch, torch_cuda, torch::cudart and more in
# the caller's project, probe or enable CUDA there, and fail on machines without a toolkit. Without it, a
# project that finds Torch itself, before or after this package, gets exactly what it would get without this
# package.

include_guard(GLOBAL)

set_property(GLOBAL PROPERTY ATTENTIVE_TORCH_FIRST 2.7.0)   # oldest supported
set_property(GLOBAL PROPERTY ATTENTIVE_TORCH_LAST 2.15)     # newest supported major.minor
set_property(GLOBAL PROPERTY ATTENTIVE_TORCH_USUAL 2.11.0)  # installed if none is found, and named in advice

# attentive_torch_find(<out>): looks, in this order, at an existing target `torch`, Torch_DIR, Torch_ROOT,
# CMAKE_PREFIX_PATH and the Torch of python3.
#   <out>_PREFIX   its directory (holding include/ and lib/), empty if there is none
#   <out>_ORIGIN   who named it, in words
#   <out>_EXPLICIT true if the user named it, so that a fault in it is an error
#   <out>_PROBLEM  why a named place holds no Torch
function(attentive_torch_find out)
  set(${out}_PREFIX "" PARENT_SCOPE)
  set(${out}_ORIGIN "" PARENT_SCOPE)
  set(${out}_PROBLEM "" PARENT_SCOPE)
  set(${out}_EXPLICIT TRUE PARENT_SCOPE)

  if(TARGET torch)
    set(${out}_ORIGIN "the existing target torch" PARENT_SCOPE)
    attentive_torch_location(torch library)
    if(library)
      cmake_path(GET library PARENT_PATH prefix)
      cmake_path(GET prefix PARENT_PATH prefix)
      set(${out}_PREFIX "${prefix}" PARENT_SCOPE)
    endif()
    return()
  endif()

  set(places "")
  if(Torch_DIR)
    list(APPEND places "Torch_DIR|${Torch_DIR}")
  endif()
  foreach(root IN ITEMS "${Torch_ROOT}" "$ENV{Torch_ROOT}")
    if(root)
      list(APPEND places "Torch_ROOT|${root}")
    endif()
  endforeach()
  string(REPLACE ":" ";" environment_path "$ENV{CMAKE_PREFIX_PATH}")
  foreach(root IN LISTS CMAKE_PREFIX_PATH environment_path)
    list(APPEND places "CMAKE_PREFIX_PATH|${root}")
  endforeach()

  foreach(place IN LISTS places)
    string(REGEX MATCH "^([^|]+)\\|(.*)$" _ "${place}")
    set(origin "${CMAKE_MATCH_1}")
    set(root "${CMAKE_MATCH_2}")
    foreach(suffix IN ITEMS "" /share/cmake/Torch /Torch /lib/cmake/Torch)
      if(EXISTS "${root}${suffix}/TorchConfig.cmake")
        get_filename_component(prefix "${root}${suffix}/../../.." REALPATH)
        set(${out}_PREFIX "${prefix}" PARENT_SCOPE)
        set(${out}_ORIGIN "${origin}" PARENT_SCOPE)
        return()
      endif()
    endforeach()
    if(origin STREQUAL "Torch_DIR" OR origin STREQUAL "Torch_ROOT")
      set(${out}_PROBLEM "${origin} names ${root}, which holds no TorchConfig.cmake; give the folder <torch>/share/cmake/Torch"
          PARENT_SCOPE)
      return()
    endif()
  endforeach()

  set(${out}_EXPLICIT FALSE PARENT_SCOPE)
  attentive_find_python(python)
  if(python AND NOT CMAKE_CROSSCOMPILING)  # python3's Torch is for the build machine
    execute_process(
      COMMAND "${python}" -c "import importlib.util as u, os
s = u.find_spec('torch')
print(os.path.dirname(s.origin) if s and s.origin else '')"
      WORKING_DIRECTORY /  # otherwise a folder named torch in the current one would be taken for the package
      OUTPUT_VARIABLE prefix OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(prefix)
      get_filename_component(prefix "${prefix}" REALPATH)
      set(${out}_PREFIX "${prefix}" PARENT_SCOPE)
      set(${out}_ORIGIN "${python}" PARENT_SCOPE)
    endif()
  endif()
endfunction()

# The python3 of the first configure run. It is kept, so that a later run from another shell does not change
# LibTorch.
function(attentive_find_python out)
  if(ATTENTIVE_PYTHON AND NOT EXISTS "${ATTENTIVE_PYTHON}")
    unset(ATTENTIVE_PYTHON CACHE)
  endif()
  find_program(ATTENTIVE_PYTHON NAMES python3 python NO_CMAKE_PATH NO_CMAKE_ENVIRONMENT_PATH
               DOC "The Python whose Torch is used, and whose pip installs one")
  mark_as_advanced(ATTENTIVE_PYTHON)
  set(${out} "" PARENT_SCOPE)
  if(ATTENTIVE_PYTHON)
    set(${out} "${ATTENTIVE_PYTHON}" PARENT_SCOPE)
  endif()
endfunction()

# The library file of an imported target; empty if it has none.
function(attentive_torch_location target out)
  set(${out} "" PARENT_SCOPE)
  get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
  if(NOT configurations)
    set(configurations "")
  endif()
  list(TRANSFORM configurations PREPEND "_")
  foreach(suffix IN LISTS configurations ITEMS "")
    get_target_property(location ${target} IMPORTED_LOCATION${suffix})
    if(location)
      get_filename_component(location "${location}" REALPATH)
      set(${out} "${location}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# attentive_torch_missing(<library> <out> [<folder>]): the shared libraries that the loader does not find for
# `library`. With a folder, NVIDIA's libraries must come from there, because a CUDA toolkit on the machine may
# have other versions. For a library of another architecture, the loader reports nothing as missing.
function(attentive_torch_missing library out)
  set(folder "${ARGN}")
  set(missing "")
  set(environment "")
  if(folder)
    set(environment --unset=LD_LIBRARY_PATH)  # it would take precedence over the library's own paths
  endif()
  execute_process(COMMAND "${CMAKE_COMMAND}" -E env ${environment} ldd "${library}" OUTPUT_VARIABLE text ERROR_QUIET)
  string(REGEX MATCHALL "[^\n\t ]+ => [^\n]+" lines "${text}")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "^([^ ]+) => ([^(]*[^( ])" _ "${line}")
    set(name "${CMAKE_MATCH_1}")
    set(place "${CMAKE_MATCH_2}")
    if(place STREQUAL "not found")
      list(APPEND missing "${name}")
    elseif(folder AND name MATCHES "^lib(cu|nccl|nv)")
      get_filename_component(place "${place}" REALPATH)
      if(NOT place MATCHES "^${folder}/")
        list(APPEND missing "${name}")
      endif()
    endif()
  endforeach()
  list(REMOVE_DUPLICATES missing)
  set(${out} "${missing}" PARENT_SCOPE)
endfunction()

# attentive_torch_read(<out> <prefix>): sets <out>_VERSION, and <out>_PROBLEM to the reason why it cannot be
# used, with the fix.
function(attentive_torch_read out prefix)
  get_property(first GLOBAL PROPERTY ATTENTIVE_TORCH_FIRST)
  get_property(usual GLOBAL PROPERTY ATTENTIVE_TORCH_USUAL)
  get_property(last GLOBAL PROPERTY ATTENTIVE_TORCH_LAST)
  set(version "")
  set(problem "")
  set(version_file "${prefix}/share/cmake/Torch/TorchConfigVersion.cmake")
  if(EXISTS "${version_file}")
    file(STRINGS "${version_file}" line REGEX "PACKAGE_VERSION \"" LIMIT_COUNT 1)
    string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" version "${line}")
  endif()

  if(NOT EXISTS "${prefix}/include/ATen/core/Tensor.h")
    set(problem "the Torch at ${prefix} has no C++ headers; install the wheel of PyPI: python3 -m pip install torch==${usual}")
  elseif(NOT version)
    set(problem "the Torch at ${prefix} does not say its version (share/cmake/Torch/TorchConfigVersion.cmake); reinstall it: python3 -m pip install --force-reinstall torch==${usual}")
  elseif(version VERSION_LESS first OR version VERSION_GREATER_EQUAL "${last}.99999")
    set(problem "the Torch at ${prefix} is ${version}, supported are ${first} to ${last}.x; install one: python3 -m pip install torch==${usual}")
  elseif(NOT EXISTS "${prefix}/lib/libtorch_cpu.so")
    set(problem "the Torch at ${prefix} has no lib/libtorch_cpu.so; a LibTorch with shared libraries is needed: python3 -m pip install torch==${usual}")
  else()
    attentive_torch_missing("${prefix}/lib/libtorch_cpu.so" missing)
    if(missing)
      list(JOIN missing ", " missing)
      attentive_torch_cpu_packages(${version} packages)
      list(JOIN packages "' '" packages)
      set(problem "the Torch at ${prefix} lacks ${missing}; install what it loads: python3 -m pip install '${packages}'")
    endif()
  endif()
  set(${out}_VERSION "${version}" PARENT_SCOPE)
  set(${out}_PROBLEM "${problem}" PARENT_SCOPE)
endfunction()

# The wheels, besides torch itself, that libtorch_cpu.so loads: those of the CUDA version for which PyPI's
# wheel of this version is built.
function(attentive_torch_cpu_packages version out)
  if(version VERSION_LESS 2.8)
    set(suffix "-cu12==12.6.*")
  elseif(version VERSION_LESS 2.11)
    set(suffix "-cu12==12.8.*")
  elseif(version VERSION_LESS 2.15)
    set(suffix "==13.0.*")
  else()
    set(suffix "==13.2.*")
  endif()
  set(${out} "nvidia-cuda-runtime${suffix}" "nvidia-cuda-cupti${suffix}" PARENT_SCOPE)
endfunction()

# attentive_torch_half(<out> <prefix>): whether to link the whole Torch or its CPU half. ATTENTIVE_TORCH may
# force one.
#   <out>_HALF full or cpu, <out>_WHY in words, <out>_PROBLEM if ATTENTIVE_TORCH asks for what is not there
function(attentive_torch_half out prefix)
  set(wish auto)
  if(ATTENTIVE_TORCH)
    set(wish "${ATTENTIVE_TORCH}")
  endif()
  set(problem "")
  if(NOT EXISTS "${prefix}/lib/libtorch_cuda.so")
    set(half full)
    set(why "a CPU build")
    set(lack "it is a CPU build")
  elseif(CMAKE_CROSSCOMPILING)
    set(half cpu)
    set(why "cross-compiled")
    set(lack "what it needs cannot be looked up for another architecture")
  else()
    get_filename_component(wheels "${prefix}/../nvidia" REALPATH)
    if(NOT IS_DIRECTORY "${wheels}")
      set(wheels "")
    endif()
    attentive_torch_missing("${prefix}/lib/libtorch_cuda.so" missing ${wheels})
    if(missing)
      list(LENGTH missing count)
      list(GET missing 0 name)
      set(half cpu)
      set(why "NVIDIA libraries incomplete: ${name} missing")
      if(count GREATER 1)
        math(EXPR count "${count} - 1")
        string(APPEND why " and ${count} more")
      endif()
      set(lack "${why}")
    else()
      set(half full)
      set(why "its NVIDIA libraries are complete")
      set(lack "")
    endif()
  endif()

  if(wish STREQUAL "cpu")
    set(half cpu)
    set(why "ATTENTIVE_TORCH=cpu")
  elseif(wish STREQUAL "cuda")
    if(lack)
      set(problem "ATTENTIVE_TORCH=cuda, but the Torch at ${prefix} cannot run CUDA (${lack}); install it with its dependencies: python3 -m pip install torch, or say ATTENTIVE_TORCH=auto")
    endif()
  elseif(NOT wish STREQUAL "auto")
    set(problem "ATTENTIVE_TORCH is \"${wish}\"; say auto, cpu or cuda")
  endif()
  set(${out}_HALF ${half} PARENT_SCOPE)
  set(${out}_WHY "${why}" PARENT_SCOPE)
  set(${out}_PROBLEM "${problem}" PARENT_SCOPE)
endfunction()

# The CUDA runtime that the LibTorch under `prefix` loads; empty if there is none.
function(attentive_torch_cudart prefix out)
  set(path "")
  if(EXISTS "${prefix}/lib/libc10_cuda.so")
    execute_process(COMMAND "${CMAKE_COMMAND}" -E env --unset=LD_LIBRARY_PATH ldd "${prefix}/lib/libc10_cuda.so"
                    OUTPUT_VARIABLE text ERROR_QUIET)
    if(text MATCHES "libcudart[^ ]* => (/[^ ]+)")
      get_filename_component(path "${CMAKE_MATCH_1}" REALPATH)
    endif()
  endif()
  set(${out} "${path}" PARENT_SCOPE)
endfunction()

# attentive_torch_fits(<out> <prefix> <half> <why> <needs> <cuda>): whether a program that links this LibTorch
# can use an attentive whose CUDA needs are <needs> (nothing, runtime or whole; see AttentiveInstall.cmake)
# and whose own CUDA code has the major version <cuda>.
#   <out>_BESIDE  what must be linked beside LibTorch's half, <out>_PROBLEM why it does not fit, with the fix
function(attentive_torch_fits out prefix half why needs cuda)
  set(${out}_BESIDE "" PARENT_SCOPE)
  set(problem "")
  attentive_torch_cudart("${prefix}" cudart)
  set(rebuild "or rebuild attentive with -DATTENTIVE_CUDA=OFF")
  if(cuda AND NOT cudart)
    set(problem "attentive holds CUDA code, which the LibTorch at ${prefix} cannot link: it has no CUDA runtime; name one for CUDA ${cuda} with -DTorch_DIR=<torch>/share/cmake/Torch, ${rebuild}")
  elseif(cuda AND NOT cudart MATCHES "libcudart\\.so\\.${cuda}(\\.|$)")
    set(problem "attentive holds CUDA code of CUDA ${cuda}, but the LibTorch at ${prefix} runs on ${cudart}; name one for CUDA ${cuda} with -DTorch_DIR=<torch>/share/cmake/Torch, ${rebuild}")
  elseif(needs STREQUAL "whole" AND NOT (half STREQUAL "full" AND EXISTS "${prefix}/lib/libtorch_cuda.so"))
    set(problem "this shared attentive loads the whole LibTorch with CUDA, but of the one at ${prefix} only the CPU half would be linked (${why}); name a whole one with -DTorch_DIR=<torch>/share/cmake/Torch, or rebuild attentive with -DATTENTIVE_TORCH=cpu")
  elseif(needs STREQUAL "runtime" AND half STREQUAL "cpu")
    # The code is linked but never runs, because this half of LibTorch has no CUDA devices.
    set(${out}_BESIDE "${prefix}/lib/libc10_cuda.so;${cudart}" PARENT_SCOPE)
  endif()
  set(${out}_PROBLEM "${problem}" PARENT_SCOPE)
endfunction()

# Defines attentive::torch from the files under `prefix`.
function(attentive_torch_define prefix half)
  set(lib "${prefix}/lib")
  add_library(attentive::torch INTERFACE IMPORTED GLOBAL)
  attentive_torch_cudart("${prefix}" cudart)
  set_target_properties(attentive::torch PROPERTIES
    ATTENTIVE_PREFIX "${prefix}" ATTENTIVE_HALF ${half} ATTENTIVE_CUDART "${cudart}")
  target_include_directories(attentive::torch INTERFACE
    "${prefix}/include" "${prefix}/include/torch/csrc/api/include")
  target_link_libraries(attentive::torch INTERFACE "${lib}/libtorch_cpu.so" "${lib}/libc10.so")

  # These libraries register themselves when loaded. No symbol in them is used, so --as-needed must not drop
  # them.
  set(registering libtorch_cpu.so)
  if(half STREQUAL "full")
    target_link_libraries(attentive::torch INTERFACE "${lib}/libtorch.so")
    list(APPEND registering libtorch.so)  # an AOTInductor package asks the loader for it by name
    if(EXISTS "${lib}/libtorch_cuda.so")
      # CUDA code in attentive calls the runtime itself, which must be the one that LibTorch loads.
      target_link_libraries(attentive::torch INTERFACE "${lib}/libc10_cuda.so" ${cudart})
      list(APPEND registering libtorch_cuda.so)
    endif()
  endif()
  foreach(name IN LISTS registering)
    target_link_libraries(attentive::torch INTERFACE
      "-Wl,--push-state,--no-as-needed,\"${lib}/${name}\" -Wl,--pop-state")
  endforeach()

  # The linker must resolve libtorch_cuda.so's dependencies from the wheels next to it. Otherwise, ld takes an
  # older libnccl of an installed CUDA toolkit and reports undefined NCCL symbols.
  if(half STREQUAL "full")
    file(GLOB folders "${prefix}/../nvidia/*/lib")
    foreach(folder IN LISTS folders)
      get_filename_component(folder "${folder}" REALPATH)
      target_link_options(attentive::torch INTERFACE "LINKER:-rpath-link,${folder}")
    endforeach()
  endif()

  cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL attentive_torch_check_one)
endfunction()

# Runs at the end of the configuration: a project that found another Torch after this package would load two.
function(attentive_torch_check_one)
  if(TARGET torch)
    attentive_torch_location(torch library)
    get_target_property(prefix attentive::torch ATTENTIVE_PREFIX)
    get_filename_component(lib "${prefix}/lib" REALPATH)
    if(library AND NOT library MATCHES "^${lib}/")
      message(FATAL_ERROR " attentive: it uses the LibTorch at ${prefix}, this project the one at ${library}; find yours first, or give both the same with -DTorch_DIR=<torch>/share/cmake/Torch")
    endif()
  endif()
endfunction()
