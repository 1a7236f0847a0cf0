# Checks the files of an installed package, and where its libraries look for others:
#   cmake -DPREFIX=… -DSHARED=ON|OFF -DTORCH=<LibTorch of the build> -DLIBRARIES=attentive;… -P installed.cmake

file(GLOB_RECURSE files RELATIVE "${PREFIX}" "${PREFIX}/*")
foreach(name IN ITEMS include/attentive/attentive.h lib[^;]*/cmake/attentive/attentive-config.cmake
                      share/doc/attentive/LICENSE share/doc/attentive/README.md)
  if(NOT files MATCHES "(^|;)${name}(;|$)")
    message(SEND_ERROR "${PREFIX} lacks ${name}")
  endif()
endforeach()

foreach(library IN LISTS LIBRARIES)
  set(suffix "\\.a")
  set(shared ${SHARED})
  if(library STREQUAL "attentive_operators") # shared in every build
    set(shared ON)
  endif()
  if(shared)
    set(suffix "\\.so")
  endif()
  if(NOT files MATCHES "(^|;)(lib[^;]*/lib${library}${suffix})(;|$)")
    message(SEND_ERROR "${PREFIX} lacks lib${library}${suffix}")
  elseif(shared)
    file(READ_ELF "${PREFIX}/${CMAKE_MATCH_2}" RUNPATH runpath)
    if(NOT runpath MATCHES "ORIGIN" OR NOT ";${runpath};" MATCHES "[;:]${TORCH}/lib[;:]")
      message(SEND_ERROR "${CMAKE_MATCH_2} looks in ${runpath}, not beside itself and in ${TORCH}/lib")
    endif()
  endif()
endforeach()
