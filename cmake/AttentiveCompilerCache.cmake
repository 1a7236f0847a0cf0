# ccache for our own builds, if it is installed.

find_program(ATTENTIVE_CCACHE ccache DOC "Keeps object files between clean builds")
mark_as_advanced(ATTENTIVE_CCACHE)
if(PROJECT_IS_TOP_LEVEL AND ATTENTIVE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without this sloppiness ccache never hits a translation unit that uses a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND}" -E env
      "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime" "${ATTENTIVE_CCACHE}")
endif()
