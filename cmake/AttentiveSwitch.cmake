# Options that are AUTO, ON or OFF: what they ask for is in the build if nothing keeps it out (AUTO), or that is an error (ON).

include_guard(GLOBAL)

# attentive_switch_wanted(<option> <what is missing without it> <out>): whether to look for it at all.
function(attentive_switch_wanted option what out)
  set(${out} OFF PARENT_SCOPE)
  if(NOT ${option} MATCHES "^(AUTO|ON|OFF)$")
    # The leading blank of a message keeps CMake from breaking the line.
    message(FATAL_ERROR " attentive: ${option} is \"${${option}}\"; say AUTO, ON or OFF")
  elseif(${option} STREQUAL "OFF")
    message(STATUS "attentive: no ${what}: ${option}=OFF")
  else()
    set(${out} ON PARENT_SCOPE)
  endif()
endfunction()

# attentive_switch_settle(<option> <what is missing without it> <lack> <out>): ON if nothing keeps it out. lack: what does, with its fix.
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
