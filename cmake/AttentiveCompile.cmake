# Compile settings of our own targets. All of them are PRIVATE: nothing here reaches a consumer.

include(AttentiveCompilerCache)
include(AttentiveSanitizers)
include(AttentiveWarnings)

# GLOBAL: a static library names OpenMP to its consumer, in whatever folder that is.
find_package(OpenMP QUIET GLOBAL COMPONENTS CXX)
if(NOT TARGET OpenMP::OpenMP_CXX)
  message(FATAL_ERROR " attentive: ${CMAKE_CXX_COMPILER} has no OpenMP; for clang 14: apt-get install libomp-14-dev")
endif()

find_program(ATTENTIVE_LLD NAMES ld.lld ld.lld-14 DOC "Links our own targets faster")
mark_as_advanced(ATTENTIVE_LLD)

# Every target of this project goes through here.
function(attentive_configure target)
  attentive_warnings(${target})
  attentive_sanitizers(${target})
  # at::parallel_for is a serial loop without it; a precompiled header is only valid if all of us set it alike.
  target_link_libraries(${target} PRIVATE OpenMP::OpenMP_CXX)
  if(PROJECT_IS_TOP_LEVEL AND ATTENTIVE_LLD)
    target_link_options(${target} PRIVATE -fuse-ld=lld)
  endif()
endfunction()
