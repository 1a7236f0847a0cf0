# Uses ccache for this project's builds, if it is installed.

find_program(ATTENTIVE_CCACHE ccache DOC "Keeps object files between clean builds")
mark_as_advanced(ATTENTIVE_CCACHE)
# Without this sloppiness, ccache never hits a translation unit that uses a precompiled header. Dependencies
# are read from the compiler's list, because running the preprocessor for them takes a fifth of the time of a
# full build.
set(ATTENTIVE_CCACHE_SETTINGS "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime" "CCACHE_DEPEND=1")
if(PROJECT_IS_TOP_LEVEL AND ATTENTIVE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND}" -E env ${ATTENTIVE_CCACHE_SETTINGS} "${ATTENTIVE_CCACHE}")
endif()
