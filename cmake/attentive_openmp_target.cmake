# Defines attentive::openmp, the OpenMP runtime that a program with this package's OpenMP code links, so that
# the process loads only one. Used by this build (AttentiveOpenMP.cmake) and, installed unchanged, by the
# package's config file.

include_guard(GLOBAL)

# Call it after attentive::torch is defined.
function(attentive_openmp_define)
  if(TARGET attentive::openmp)
    return()
  endif()
  add_library(attentive::openmp INTERFACE IMPORTED GLOBAL)
  get_target_property(prefix attentive::torch ATTENTIVE_PREFIX)  # empty if it is a target of the surrounding project
  set(runtime "")
  if(prefix AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    attentive_openmp_renamed("${prefix}" runtime)
  endif()
  if(runtime)
    attentive_openmp_stub("${runtime}" stub)
    cmake_path(GET runtime PARENT_PATH folder)
    # As a linker option: for a library, CMake would add the stub's folder to the program's RPATH.
    target_link_libraries(attentive::openmp INTERFACE "-Wl,\"${stub}\"" "-Wl,-rpath,\"${folder}\"")
  else()
    # By flag, not by OpenMP::OpenMP_CXX, which names the compiler's libgomp by its path. LibTorch's wheel
    # contains a libgomp of the same name; a process can use only one of the two, and CMake warns of that for
    # every program. With the flag, LibTorch's libgomp is found first, which is right. As a library item, the
    # flag also reaches programs that link the static library. With clang, LLVM's runtime also serves
    # LibTorch's calls: it implements GNU's functions and is found first.
    target_link_libraries(attentive::openmp INTERFACE -fopenmp)
  endif()
endfunction()

# The libgomp that LibTorch loads, if its file name differs from the compiler's: in some wheels it contains a
# checksum. Otherwise the loader would load the compiler's libgomp as a second library.
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

# Makes a library without code that has the name and the functions of `runtime`, with their symbol versions: LibTorch
# refers to versioned symbols, and GNU ld accepts no others for them. Linking the file itself would not work: its SONAME
# is still libgomp.so.1, which the linker would write into the program.
function(attentive_openmp_stub runtime out)
  cmake_path(GET runtime FILENAME name)
  set(folder "${CMAKE_BINARY_DIR}/attentive_openmp")
  set(stub "${folder}/${name}")
  set(${out} "${stub}" PARENT_SCOPE)

  execute_process(COMMAND "${CMAKE_NM}" -D --defined-only "${runtime}" OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL " [TWi] [A-Za-z0-9_]+(@@?[A-Za-z0-9_.]+)?" functions "${text}")
  list(TRANSFORM functions REPLACE "^ . " "")
  list(REMOVE_DUPLICATES functions)
  set(source ".section .note.GNU-stack,\"\",%progbits\n.text\n")
  set(versions "")
  set(count 0)
  foreach(function IN LISTS functions)
    set(symbol "${function}")
    if(function MATCHES "@@?(.+)$")
      list(APPEND versions "${CMAKE_MATCH_1}")
      set(symbol "attentive_stub_${count}")
      string(APPEND source ".symver ${symbol}, ${function}\n")
      math(EXPR count "${count} + 1")
    endif()
    string(APPEND source ".globl ${symbol}\n.type ${symbol}, %function\n${symbol}:\n")
  endforeach()
  file(WRITE "${folder}/stub.s" "${source}")
  list(REMOVE_DUPLICATES versions)
  set(script "")
  foreach(version IN LISTS versions)
    string(APPEND script "${version} { local: attentive_stub_*; };\n")
  endforeach()
  file(WRITE "${folder}/stub.map" "${script}")
  set(options "-Wl,-soname,${name}")
  if(versions)
    list(APPEND options "-Wl,--version-script,${folder}/stub.map")
  endif()
  execute_process(
    COMMAND "${CMAKE_CXX_COMPILER}" -shared -nostdlib ${options} "${folder}/stub.s" -o "${stub}"
    COMMAND_ERROR_IS_FATAL ANY)
endfunction()
