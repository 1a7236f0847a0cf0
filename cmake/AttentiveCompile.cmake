# Compile settings of this project's targets. All of them are PRIVATE, so none reaches a consumer.

include(AttentiveCompilerCache)
include(AttentiveOpenMP)
include(AttentiveSanitizers)
include(AttentiveWarnings)

find_program(ATTENTIVE_LLD NAMES ld.lld ld.lld-14 DOC "Links our own targets faster")
mark_as_advanced(ATTENTIVE_LLD)

# Every target of this project is configured by this function.
function(attentive_configure target)
  attentive_warnings(${target})
  attentive_sanitizers(${target})
  attentive_openmp(${target})  # for all targets, because a precompiled header requires equal flags
  # A precompiled header with timestamps differs between builds, so the compiler cache would miss everything
  # that uses it.
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")
  # Assertions and debug information name files.
  if(ATTENTIVE_PACKAGE)
    get_target_property(torch attentive::torch ATTENTIVE_PREFIX)
    foreach(place IN ITEMS "${torch}=torch" "${PROJECT_SOURCE_DIR}=attentive" "${PROJECT_BINARY_DIR}=attentive/build")
      target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${place}>")
    endforeach()
  endif()
  # A cross compiler looks for a linker named after its own target.
  if(PROJECT_IS_TOP_LEVEL AND ATTENTIVE_LLD AND NOT CMAKE_CROSSCOMPILING)
    target_link_options(${target} PRIVATE -fuse-ld=lld)
  endif()
endfunction()

# Settings that all components share: warnings, versions, and private use of fmt.
function(attentive_library target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  attentive_use_headers(${target} fmt::fmt-header-only)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  set_target_properties(${target} PROPERTIES
    POSITION_INDEPENDENT_CODE ON
    DEFINE_SYMBOL "")  # targets that share the precompiled header need equal definitions, whether their libraries are shared or static
  if(NOT ATTENTIVE_WHEEL)  # a wheel cannot hold the symbolic links of a versioned library
    set_target_properties(${target} PROPERTIES
      VERSION ${PROJECT_VERSION}
      SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  endif()
  attentive_configure(${target})
endfunction()

# attentive_define_header(<target> <header>…): a precompiled header that targets with equal flags share. A build of
# attentive::attention alone has no nlohmann_json.
function(attentive_define_header target)
  set(stub "${PROJECT_BINARY_DIR}/${target}.cpp")
  file(CONFIGURE OUTPUT "${stub}" CONTENT "// Gives the precompiled header a target.\n")
  add_library(${target} OBJECT EXCLUDE_FROM_ALL "${stub}")
  target_link_libraries(${target} PRIVATE attentive::torch)
  attentive_header_flags(${target})
  set(json)
  if(TARGET nlohmann_json::nlohmann_json)
    set(json <nlohmann/json.hpp>)
  endif()
  target_precompile_headers(${target} PRIVATE
    <torch/nn/cloneable.h> <torch/nn/pimpl.h> <torch/nn/modules/common.h> <torch/nn/modules/container/any.h>
    <torch/nn/modules/container/sequential.h> <torch/nn/modules/linear.h> <ATen/ATen.h>
    <array> <filesystem> <fstream> <functional> <map> <optional> <sstream> <string> <vector> <fmt/format.h>
    ${json} ${ARGN})
  attentive_configure(${target})
endfunction()

function(attentive_header_flags target)
  target_compile_options(${target} PRIVATE -fPIC)
  attentive_use_headers(${target} fmt::fmt-header-only)
  if(TARGET nlohmann_json::nlohmann_json)
    attentive_use_headers(${target} nlohmann_json::nlohmann_json)
  endif()
endfunction()

# attentive_share_header(<target> [<header>]): the target uses the library's precompiled header, or the one named.
function(attentive_share_header target)
  set(header attentive_header)
  if(ARGC GREATER 1)
    set(header ${ARGV1})
  endif()
  attentive_header_flags(${target})
  target_precompile_headers(${target} REUSE_FROM ${header})
endfunction()

# attentive_in_batches(<target>): if ATTENTIVE_UNITY is ON, compiles the target's sources 24 at a time, which parses the
# headers once for all of them. Sources with options of their own are compiled alone.
function(attentive_in_batches target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${ATTENTIVE_UNITY} UNITY_BUILD_BATCH_SIZE 24)
endfunction()

# attentive_optimise_batches(<target>): optimises the batches of a debug build, for a target on which the tests spend more time than
# that costs. An option of its own would take a source out of its batch, so batches are optimised as a whole, without the header that
# others share.
function(attentive_optimise_batches target)
  if(ATTENTIVE_UNITY)
    target_compile_options(${target} PRIVATE "$<$<CONFIG:Debug>:-O1>")
    set_target_properties(${target} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
  endif()
endfunction()

# attentive_component(<name> [EXPORTS <file>] SOURCES <source>... [HEADERS <header>...]): the component attentive::<name>
# with its public headers, named from include/attentive/ on. It links what the table says. Without a header no consumer
# links it by name. With EXPORTS, a linker's version script, it is a shared library in every build, which contains what it
# links and shows only the symbols of the script.
function(attentive_component name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "EXPORTS" "HEADERS;SOURCES")
  set(target attentive_${name})
  set(visible PUBLIC)
  if(arg_EXPORTS)
    set(visible PRIVATE)
    add_library(${target} SHARED)
    # PyTorch's dispatcher keeps pointers to its functions.
    target_link_options(${target} PRIVATE "-Wl,--version-script=${arg_EXPORTS}" -Wl,-z,nodelete)
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${arg_EXPORTS}")
    target_link_libraries(${target} PUBLIC attentive::torch)
  else()
    add_library(${target})
  endif()
  target_sources(${target} PRIVATE ${arg_SOURCES})
  if(arg_HEADERS)
    add_library(attentive::${name} ALIAS ${target})
    list(TRANSFORM arg_HEADERS PREPEND "${PROJECT_SOURCE_DIR}/include/attentive/")
    target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${arg_HEADERS})
  endif()
  foreach(needed IN LISTS attentive_${name}_needs)
    target_link_libraries(${target} ${visible} attentive_${needed})
  endforeach()
  if(name STREQUAL "attention" OR name STREQUAL "base")
    target_link_libraries(${target} PUBLIC attentive::torch)
  endif()
  if(name IN_LIST attentive_over_base)
    target_link_libraries(${target} PUBLIC attentive_base)
  endif()
  if(NOT name STREQUAL "attention")
    attentive_use_headers(${target} nlohmann_json::nlohmann_json)
  endif()
  attentive_in_batches(${target})
  # From a precompiled header, Clang reads what a batch uses. g++ instantiates at the end of every batch what the header left
  # open, which takes longer than parsing the headers once.
  if(NOT name STREQUAL "base" AND (NOT ATTENTIVE_UNITY OR CMAKE_CXX_COMPILER_ID MATCHES "Clang"))
    attentive_share_header(${target})
  endif()
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  attentive_library(${target})
endfunction()
