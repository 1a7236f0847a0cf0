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
  # A precompiled header with timestamps differs from build to build, and nothing that uses it would be in the compiler cache.
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")
  # A cross compiler looks for a linker of its own target's name.
  if(PROJECT_IS_TOP_LEVEL AND ATTENTIVE_LLD AND NOT CMAKE_CROSSCOMPILING)
    target_link_options(${target} PRIVATE -fuse-ld=lld)
  endif()
endfunction()

# Settings that the library and its components share: warnings and versions, and private use of fmt and nlohmann_json.
function(attentive_library target)
  attentive_use_headers(${target} fmt::fmt-header-only nlohmann_json::nlohmann_json)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  set_target_properties(${target} PROPERTIES
    POSITION_INDEPENDENT_CODE ON
    DEFINE_SYMBOL "" # whoever shares the precompiled header needs the same definitions, shared libraries and static ones
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  attentive_configure(${target})
endfunction()

# attentive_component(NAME): the target attentive_NAME is the component attentive::NAME, a library above attentive::attentive.
function(attentive_component name)
  target_link_libraries(attentive_${name} PUBLIC attentive)
  target_compile_options(attentive_${name} PRIVATE -fPIC) # the precompiled header of the library is built with it
  target_precompile_headers(attentive_${name} REUSE_FROM attentive)
  set_target_properties(attentive_${name} PROPERTIES EXPORT_NAME ${name})
  attentive_library(attentive_${name})
endfunction()
