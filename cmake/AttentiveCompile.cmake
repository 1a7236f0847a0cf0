# Compile settings of our own targets. All of them are PRIVATE: nothing here reaches a consumer.

include(AttentiveCompilerCache)
include(AttentiveOpenMP)
include(AttentiveSanitizers)
include(AttentiveWarnings)

find_program(ATTENTIVE_LLD NAMES ld.lld ld.lld-14 DOC "Links our own targets faster")
mark_as_advanced(ATTENTIVE_LLD)

# Every target of this project goes through here.
function(attentive_configure target)
  attentive_warnings(${target})
  attentive_sanitizers(${target})
  attentive_openmp(${target}) # all of them: a precompiled header is only valid under the same flags
  if(PROJECT_IS_TOP_LEVEL AND ATTENTIVE_LLD)
    target_link_options(${target} PRIVATE -fuse-ld=lld)
  endif()
endfunction()
