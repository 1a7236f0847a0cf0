# Defines attentive::openmp: what a program links for OpenMP code of this package, so that the process loads one runtime.
# Used by this build (AttentiveOpenMP.cmake) and, installed as it stands, by the package's config file.

include_guard(GLOBAL)

# After attentive::torch.
function(attentive_openmp_define)
  if(TARGET attentive::openmp)
    return()
  endif()
  add_library(attentive::openmp INTERFACE IMPORTED GLOBAL)
  get_target_property(prefix attentive::torch ATTENTIVE_PREFIX) # none where it is a target of the surrounding project
  set(runtime "")
  if(prefix AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    attentive_openmp_renamed("${prefix}" runtime)
  endif()
  if(runtime)
    attentive_openmp_stub("${runtime}" stub)
    cmake_path(GET runtime PARENT_PATH folder)
    # As an option of the linker: for a library CMake would let the program look in the stub's folder.
    target_link_libraries(attentive::openmp INTERFACE "-Wl,\"${stub}\"" "-Wl,-rpath,\"${folder}\"")
  else()
    # By flag, not by OpenMP::OpenMP_CXX, which names the compiler's libgomp by its path: LibTorch's wheel brings a libgomp of
    # the same name, one process can only use one of the two, and CMake warns of that for every program. The one of LibTorch
    # is found first, which is right. As a library item the flag also reaches who links our static library. With clang,
    # LLVM's runtime answers LibTorch's calls as well: it knows GNU's functions, and comes first.
    target_link_libraries(attentive::openmp INTERFACE -fopenmp)
  endif()
endfunction()

# The libgomp that LibTorch loads, if its file has another name than the compiler's: some wheels carry a checksum in it. The
# loader would take the compiler's for a second library.
function(attentive_openmp_renamed prefix out)
  set(runtime "")
  execute_process(COMMAND ldd "${prefix}/lib/libtorch_cpu.so" OUTPUT_VARIABLE text ERROR_QUIET)
  if(text MATCHES "(libgomp[^ ]*) => (/[^\n(]*[^\n( ])")
    if(NOT CMAKE_MATCH_1 STREQUAL "libgomp.so.1")
      cmake_path(SET runtime NORMALIZE "${CMAKE_MATCH_2}")
    endif()
  endif()
  set(${out} "${runtime}" PARENT_SCOPE)
endfunction()

# A library without code that has the name and the functions of `runtime`. To link the file itself would not do: it still
# calls itself libgomp.so.1, and that name is what the linker writes into a program.
function(attentive_openmp_stub runtime out)
  cmake_path(GET runtime FILENAME name)
  set(folder "${CMAKE_BINARY_DIR}/attentive_openmp")
  set(stub "${folder}/${name}")
  set(${out} "${stub}" PARENT_SCOPE)

  execute_process(COMMAND "${CMAKE_NM}" -D --defined-only "${runtime}" OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL " [TWi] [A-Za-z0-9_]+" functions "${text}")
  list(TRANSFORM functions REPLACE "^ . " "")
  list(REMOVE_DUPLICATES functions)
  set(source ".section .note.GNU-stack,\"\",%progbits\n.text\n")
  foreach(function IN LISTS functions)
    string(APPEND source ".globl ${function}\n.type ${function}, %function\n${function}:\n")
  endforeach()
  file(WRITE "${folder}/stub.s" "${source}")
  execute_process(
    COMMAND "${CMAKE_CXX_COMPILER}" -shared -nostdlib "-Wl,-soname,${name}" "${folder}/stub.s" -o "${stub}"
    COMMAND_ERROR_IS_FATAL ANY)
endfunction()
