# Defines attentive::pcre2 and attentive::utf8proc, the libraries of the component attentive::tokenizers. Used by this build
# (AttentiveTokenizers.cmake) and, installed as it stands, by the package's config file.

include_guard(GLOBAL)

# attentive_tokenizers_libraries(<out>): defines the targets; <out> says what is missing, and which Debian package holds it.
# Empty if all is there.
function(attentive_tokenizers_libraries out)
  attentive_tokenizers_library(pcre2 pcre2.h pcre2-8 libpcre2-dev without_pcre2)
  attentive_tokenizers_library(utf8proc utf8proc.h utf8proc libutf8proc-dev without_utf8proc)
  set(${out} "${without_pcre2}" PARENT_SCOPE)
  if(NOT without_pcre2)
    set(${out} "${without_utf8proc}" PARENT_SCOPE)
  endif()
endfunction()

function(attentive_tokenizers_library name header library package out)
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
