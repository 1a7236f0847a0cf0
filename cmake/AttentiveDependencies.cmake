# fmt and nlohmann_json are private to the library, CLI11 to the apps, Catch2 to the tests. Each is searched
# for on the machine; with ATTENTIVE_FETCH_DEPS=ON, a missing one is cloned at a pinned commit.

include(FetchContent)

# attentive_dependency(<package> <lowest version> <apt package> <Git repository> <commit> <its tag>)
function(attentive_dependency package version apt repository commit tag)
  find_package(${package} ${version} QUIET)
  if(${package}_FOUND)
    return()
  endif()
  if(ATTENTIVE_FETCH_DEPS)
    message(STATUS "attentive: cloning ${package} ${tag} from ${repository}")
    FetchContent_Declare(${package} GIT_REPOSITORY ${repository} GIT_TAG ${commit} SYSTEM)
    set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)
    set(BUILD_TESTING OFF)
    set(BUILD_SHARED_LIBS OFF)
    set(JSON_BuildTests OFF)
    set(JSON_Install OFF)
    set(FMT_INSTALL OFF)
    FetchContent_MakeAvailable(${package})
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY ATTENTIVE_MISSING "${package} ${version}")
  set_property(GLOBAL APPEND PROPERTY ATTENTIVE_MISSING_APT "${apt}")
endfunction()

attentive_dependency(fmt 9 libfmt-dev https://github.com/fmtlib/fmt.git
  0c9fce2ffefecfdce794e1859584e25877b7b592 11.0.2)
# attentive::attention knows no JSON.
if(NOT ATTENTIVE_COMPONENTS STREQUAL "attention" OR ATTENTIVE_BUILD_TESTS OR ATTENTIVE_BUILD_APPS OR ATTENTIVE_BUILD_BENCH)
  attentive_dependency(nlohmann_json 3.10 nlohmann-json3-dev https://github.com/nlohmann/json.git
    9cca280a4d0ccf0c08f47a99aa71d1b0e52f8d03 3.11.3)
endif()
if(ATTENTIVE_BUILD_APPS OR ATTENTIVE_BUILD_BENCH)
  attentive_dependency(CLI11 2.1 libcli11-dev https://github.com/CLIUtils/CLI11.git
    6c7b07a878ad834957b98d0f9ce1dbe0cb204fc9 2.4.2)
endif()
if(ATTENTIVE_BUILD_TESTS)
  attentive_dependency(Catch2 3 catch2 https://github.com/catchorg/Catch2.git
    fa43b77429ba76c462b1898d6cd2f2d7a9416b14 3.7.1)
endif()

get_property(_missing GLOBAL PROPERTY ATTENTIVE_MISSING)
if(_missing)
  get_property(_apt GLOBAL PROPERTY ATTENTIVE_MISSING_APT)
  list(JOIN _missing ", " _missing)
  list(JOIN _apt " " _apt)
  set(_hint "")
  if(_apt MATCHES "catch2")
    set(_hint " (on Debian 12 catch2 comes from bookworm-backports: apt-get install -t bookworm-backports catch2)")
  endif()
  message(FATAL_ERROR " attentive: missing ${_missing}; apt-get install ${_apt}${_hint}, or clone them with -DATTENTIVE_FETCH_DEPS=ON")
endif()

# Uses only the headers of a library, and only for `target` itself. Unlike target_link_libraries(... PRIVATE
# ...), it adds nothing to the link interface of a static library.
function(attentive_use_headers target)
  foreach(library IN LISTS ARGN)
    target_include_directories(${target} SYSTEM PRIVATE
      $<TARGET_PROPERTY:${library},INTERFACE_INCLUDE_DIRECTORIES>)
    target_compile_definitions(${target} PRIVATE
      $<TARGET_PROPERTY:${library},INTERFACE_COMPILE_DEFINITIONS>)
  endforeach()
endfunction()
