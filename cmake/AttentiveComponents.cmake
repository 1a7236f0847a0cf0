# ATTENTIVE_BUILD_TOKENIZERS, ATTENTIVE_BUILD_VIZ, ATTENTIVE_BUILD_DISTRIBUTED: whether to build the components
# attentive::tokenizers and attentive::viz, which need libraries of their own, and attentive::distributed, which needs a part of
# LibTorch that not every one has. attentive_optional_component sets ATTENTIVE_TOKENIZERS, ATTENTIVE_VIZ and ATTENTIVE_DISTRIBUTED.

include("${CMAKE_CURRENT_LIST_DIR}/attentive_component_libraries.cmake")

# What is missing without a component, and its libraries.
set(_attentive_tokenizers "tokenizers of Python's models" "PCRE2 and utf8proc")
set(_attentive_viz "pictures of attention" "zlib")
set(_attentive_distributed "training in several processes" "a LibTorch from 2.11 on with c10d and Gloo")

# attentive_optional_component(<name>)
function(attentive_optional_component name)
  list(GET _attentive_${name} 0 what)
  list(GET _attentive_${name} 1 libraries)
  string(TOUPPER "${name}" upper)
  set(option ATTENTIVE_BUILD_${upper})
  set(${option} "AUTO" CACHE STRING "The component ${name}: AUTO (if there is ${libraries}), ON, OFF")
  set_property(CACHE ${option} PROPERTY STRINGS AUTO ON OFF)

  set(ATTENTIVE_${upper} OFF PARENT_SCOPE)
  if(NOT ${option} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR " attentive: ${option} is \"${${option}}\"; say AUTO, ON or OFF")
  elseif(${option} STREQUAL "OFF")
    message(STATUS "attentive: no ${what}: ${option}=OFF")
  else()
    attentive_component_libraries(${name} lack)
    if(NOT lack)
      set(ATTENTIVE_${upper} ON PARENT_SCOPE)
    elseif(${option} STREQUAL "ON")
      # The leading blank keeps CMake from breaking the line.
      message(FATAL_ERROR " attentive: ${option}=ON, but ${lack}, or say ${option}=AUTO")
    else()
      message(STATUS "attentive: no ${what}: ${lack}")
    endif()
  endif()
endfunction()
