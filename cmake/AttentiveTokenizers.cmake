# ATTENTIVE_BUILD_TOKENIZERS: whether to build the component attentive::tokenizers, which needs two libraries of its own.
# Sets ATTENTIVE_TOKENIZERS.

include("${CMAKE_CURRENT_LIST_DIR}/attentive_tokenizers_targets.cmake")

set(ATTENTIVE_BUILD_TOKENIZERS "AUTO" CACHE STRING
    "The component tokenizers: AUTO (if there are PCRE2 and utf8proc), ON, OFF")
set_property(CACHE ATTENTIVE_BUILD_TOKENIZERS PROPERTY STRINGS AUTO ON OFF)

set(ATTENTIVE_TOKENIZERS OFF)
if(NOT ATTENTIVE_BUILD_TOKENIZERS MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR " attentive: ATTENTIVE_BUILD_TOKENIZERS is \"${ATTENTIVE_BUILD_TOKENIZERS}\"; say AUTO, ON or OFF")
elseif(ATTENTIVE_BUILD_TOKENIZERS STREQUAL "OFF")
  message(STATUS "attentive: no tokenizers of Python's models: ATTENTIVE_BUILD_TOKENIZERS=OFF")
else()
  attentive_tokenizers_libraries(_tokenizers_lack)
  if(NOT _tokenizers_lack)
    set(ATTENTIVE_TOKENIZERS ON)
  elseif(ATTENTIVE_BUILD_TOKENIZERS STREQUAL "ON")
    # The leading blank keeps CMake from breaking the line.
    message(FATAL_ERROR " attentive: ATTENTIVE_BUILD_TOKENIZERS=ON, but ${_tokenizers_lack}, or say ATTENTIVE_BUILD_TOKENIZERS=AUTO")
  else()
    message(STATUS "attentive: no tokenizers of Python's models: ${_tokenizers_lack}")
  endif()
endif()
