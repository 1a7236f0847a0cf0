# OpenMP for our own targets: at::parallel_for is a serial loop in a source compiled without it.

find_package(OpenMP QUIET COMPONENTS CXX)
if(NOT OpenMP_CXX_FOUND)
  message(FATAL_ERROR " attentive: ${CMAKE_CXX_COMPILER} has no OpenMP; for clang 14: apt-get install libomp-14-dev")
endif()

function(attentive_openmp target)
  separate_arguments(flags UNIX_COMMAND "${OpenMP_CXX_FLAGS}")
  target_compile_options(${target} PRIVATE ${flags})
  # By flag, not by OpenMP::OpenMP_CXX, which names the compiler's libgomp by its path: LibTorch's wheel brings a libgomp of
  # the same name, one process can only use one of the two, and CMake warns of that for every program. The one of LibTorch
  # is found first, which is right. As a library item the flag also reaches who links our static library.
  target_link_libraries(${target} PRIVATE -fopenmp)
endfunction()
