# A build for packages names no folder of this machine, and what does is not packed:
#   cmake -DSOURCE=<this package> -DWORK=<folder> "-DARGUMENTS=<of the configure step>" -DTORCH=<LibTorch> -P paths.cmake

cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${WORK}")
set(check "${SOURCE}/cmake/attentive_package_paths.cmake")

# searched(<what> <words that it prints, or none> <strict> <whether it fails> <folder>)
function(searched what words strict fails folder)
  execute_process(
    COMMAND "${CMAKE_COMMAND}" "-DCPACK_TEMPORARY_INSTALL_DIRECTORY=${folder}" "-DCPACK_ATTENTIVE_PATHS=${TORCH};${SOURCE};${WORK}/build"
      -DCPACK_ATTENTIVE_STRICT=${strict} -P "${check}"
    RESULT_VARIABLE status OUTPUT_VARIABLE printed ERROR_VARIABLE printed)
  set(failed OFF)
  if(NOT status EQUAL 0)
    set(failed ON)
  endif()
  string(REGEX REPLACE "[\n ]+" " " printed "${printed}")
  if(NOT failed STREQUAL fails OR NOT printed MATCHES "${words}" OR (NOT words AND printed))
    message(SEND_ERROR "${what}: status ${status}\n${printed}")
  endif()
endfunction()

# --- the search ------------------------------------------------------------------------------------------------------

file(WRITE "${WORK}/clean/lib/a.cmake" "set(a /usr/lib)\n")
file(WRITE "${WORK}/text/lib/b.cmake" "set(b ${TORCH}/lib)\n")
file(WRITE "${WORK}/text/lib/libb.a" "")
file(WRITE "${WORK}/library/lib/libc.a" "assert ${SOURCE}/src/c.cpp")
foreach(strict IN ITEMS ON OFF)
  searched("no path" "" ${strict} OFF "${WORK}/clean")
  searched("a path in a text" "these files do: b\\.cmake" ${strict} ON "${WORK}/text")
endforeach()
searched("a path in a library of a package" "these files do: libc\\.a" ON ON "${WORK}/library")
searched("a path in a library of this machine" "for this machine: libc\\.a name" OFF OFF "${WORK}/library")
searched("a folder that is not there" "cannot search" ON ON "${WORK}/nowhere")

# --- a library -------------------------------------------------------------------------------------------------------

# The smallest: it has assertions of LibTorch's headers, and debug information.
execute_process(COMMAND "${CMAKE_COMMAND}" -S "${SOURCE}" -B "${WORK}/build" ${ARGUMENTS} -DCMAKE_BUILD_TYPE=Debug
  -DCMAKE_CXX_FLAGS_DEBUG=-g1 -DATTENTIVE_PACKAGE=ON -DATTENTIVE_COMPONENTS=files -DATTENTIVE_CUDA=OFF -DATTENTIVE_UNITY=OFF
  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${CMAKE_COMMAND}" --build "${WORK}/build" --target attentive_base OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(GLOB_RECURSE library "${WORK}/build/libattentive_base.*")
file(COPY "${library}" DESTINATION "${WORK}/built")
searched("a library that was built for packages" "" ON OFF "${WORK}/built")
file(REMOVE_RECURSE "${WORK}/build")
