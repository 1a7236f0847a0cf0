# OpenMP for this project's targets: at::parallel_for is a serial loop in a source compiled without it.

include("${CMAKE_CURRENT_LIST_DIR}/attentive_openmp_target.cmake")

find_package(OpenMP QUIET COMPONENTS CXX)
if(NOT OpenMP_CXX_FOUND)
  message(FATAL_ERROR " attentive: ${CMAKE_CXX_COMPILER} has no OpenMP; for clang 14: apt-get install libomp-14-dev")
endif()
if(ATTENTIVE_WHEEL)
  # The loader finds the functions in the runtime of libtorch_cpu.so, by whatever file name PyTorch's wheel has it.
  add_library(attentive::openmp INTERFACE IMPORTED GLOBAL)
else()
  attentive_openmp_define()
endif()

if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  add_library(attentive_openmp_registration OBJECT "${CMAKE_CURRENT_LIST_DIR}/openmp_registration.cpp")
  target_compile_features(attentive_openmp_registration PRIVATE cxx_std_20)
endif()

function(attentive_openmp target)
  separate_arguments(flags UNIX_COMMAND "${OpenMP_CXX_FLAGS}")
  target_compile_options(${target} PRIVATE ${flags})
  target_link_libraries(${target} PRIVATE attentive::openmp)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE" AND TARGET attentive_openmp_registration)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:attentive_openmp_registration>)
  endif()
endfunction()
