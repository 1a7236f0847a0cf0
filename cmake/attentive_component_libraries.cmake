# Defines the libraries of components that have some of their own: attentive::pcre2 and attentive::utf8proc of
# attentive::tokenizers, attentive::zlib of attentive::viz. Used by this build (AttentiveComponents.cmake) and, installed as it
# stands, by the package's config file.

include_guard(GLOBAL)

# attentive_component_libraries(<component> <out>): defines the targets; <out> says what is missing, and which Debian package
# holds it. Empty if all is there.
function(attentive_component_libraries component out)
  if(component STREQUAL "tokenizers")
    attentive_component_library(pcre2 pcre2.h pcre2-8 libpcre2-dev lack)
    attentive_component_library(utf8proc utf8proc.h utf8proc libutf8proc-dev lack_of_second)
    if(NOT lack)
      set(lack "${lack_of_second}")
    endif()
  elseif(component STREQUAL "viz")
    attentive_component_library(zlib zlib.h z zlib1g-dev lack)
  else()
    message(FATAL_ERROR " attentive: ${component} has no libraries of its own")
  endif()
  set(${out} "${lack}" PARENT_SCOPE)
endfunction()

function(attentive_component_library name header library package out)
  set(${out} "" PARENT_SCOPE)
  if(TARGET attentive::${name})
    return()
  endif()
  string(TOUPPER "${name}" variable)
  find_path(ATTENTIVE_${variable}_INCLUDE ${header} DOC "The folder of ${header}")
  find_library(ATTENTIVE_${variable}_LIBRARY ${library} DOC "The library ${library}")
  mark_as_advanced(ATTENTIVE_${variable}_INCLUDE ATTENTIVE_${variable}_LIBRARY)
  if(NOT ATTENTIVE_${variable}_INCLUDE OR NOT ATTENTIVE_${variable}_LIBRARY)
    set(${out} "there is no ${name}; apt-get install ${package}" PARENT_SCOPE)
    return()
  endif()
  add_library(attentive::${name} UNKNOWN IMPORTED GLOBAL)
  set_target_properties(attentive::${name} PROPERTIES
    IMPORTED_LOCATION "${ATTENTIVE_${variable}_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${ATTENTIVE_${variable}_INCLUDE}")
endfunction()
