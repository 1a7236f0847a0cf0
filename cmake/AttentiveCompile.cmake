# Compile settings of our own targets. All of them are PRIVATE: nothing here reaches a consumer.

find_package(OpenMP REQUIRED COMPONENTS CXX)
find_program(ATTENTIVE_LLD NAMES ld.lld ld.lld-14)
find_program(ATTENTIVE_CCACHE ccache)
if(PROJECT_IS_TOP_LEVEL AND ATTENTIVE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without this sloppiness ccache never hits a translation unit that uses a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND}" -E env
      "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime" "${ATTENTIVE_CCACHE}")
endif()

# Warnings, sanitizers and the linker for one of our targets.
function(attentive_configure target)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
    -Wno-unknown-pragmas # torch's headers carry MSVC pragmas
    $<$<BOOL:${ATTENTIVE_WERROR}>:-Werror>)
  # at::parallel_for is a serial loop without it; a precompiled header is only valid if all of us set it alike.
  target_link_libraries(${target} PRIVATE OpenMP::OpenMP_CXX)
  if(ATTENTIVE_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${ATTENTIVE_SANITIZE} -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=${ATTENTIVE_SANITIZE})
  endif()
  if(ATTENTIVE_LLD AND PROJECT_IS_TOP_LEVEL)
    target_link_options(${target} PRIVATE -fuse-ld=lld)
  endif()
endfunction()
