# Options with the values AUTO, ON and OFF. AUTO includes a feature if nothing prevents it; ON makes its
# absence an error.

include_guard(GLOBAL)

# attentive_switch_wanted(<option> <what is missing without it> <out>): whether to look for the feature at
# all.
function(attentive_switch_wanted option what out)
  set(${out} OFF PARENT_SCOPE)
  if(NOT ${option} MATCHES "^(AUTO|ON|OFF)$")
    # A message that begins with a space is not wrapped by CMake.
    message(FATAL_ERROR " attentive: ${option} is \"${${option}}\"; say AUTO, ON or OFF")
  elseif(${option} STREQUAL "OFF")
    message(STATUS "attentive: no ${what}: ${option}=OFF")
  else()
    set(${out} ON PARENT_SCOPE)
  endif()
endfunction()

# attentive_switch_settle(<option> <what is missing without it> <lack> <out>): ON if nothing prevents the
# feature. lack: what prevents it, with the fix; empty if nothing does.
function(attentive_switch_settle option what lack out)
  set(${out} OFF PARENT_SCOPE)
  if(NOT lack)
    set(${out} ON PARENT_SCOPE)
  elseif(${option} STREQUAL "ON")
    message(FATAL_ERROR " attentive: ${option}=ON, but ${lack}, or say ${option}=AUTO")
  else()
    message(STATUS "attentive: no ${what}: ${lack}")
  endif()
endfunction()
