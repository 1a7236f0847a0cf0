# Configures, builds and runs one foreign project from nothing:
#   cmake -DSOURCE=… -DBINARY=… -DPROGRAMS=…;… [-DTARGETS=…;…] [-DARGUMENTS=…;…] [-DINSTALL=<prefix>] [-DTESTS=ON]
#         -P foreign_project.cmake
# It builds TARGETS, or the whole project if there are none. If INSTALL is given, it also installs everything
# that the project installs; with TESTS, it runs the project's own tests.

file(REMOVE_RECURSE "${BINARY}")

function(run step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${step} failed: ${status}")
  endif()
endfunction()

run(configure "${CMAKE_COMMAND}" -S "${SOURCE}" -B "${BINARY}" ${ARGUMENTS})
set(targets "")
if(TARGETS)
  set(targets --target ${TARGETS})
endif()
run(build "${CMAKE_COMMAND}" --build "${BINARY}" ${targets})
if(INSTALL)
  file(REMOVE_RECURSE "${INSTALL}")
  run(install "${CMAKE_COMMAND}" --install "${BINARY}" --prefix "${INSTALL}")
endif()
foreach(program IN LISTS PROGRAMS)
  run("${program}" "${BINARY}/${program}")
endforeach()
if(TESTS)
  run(test "${CMAKE_CTEST_COMMAND}" --test-dir "${BINARY}" --output-on-failure --no-tests=error)
endif()
