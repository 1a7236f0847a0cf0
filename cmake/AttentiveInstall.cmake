# Install rules and the exported package: find_package(attentive CONFIG) defines attentive::attention and, if
# they were built, attentive::attentive and the other components. CMake's install components: library (what a
# consumer needs), apps, and package for CPack (AttentivePackage.cmake).

include(CMakePackageConfigHelpers)
set(ATTENTIVE_CMAKE_FOLDER "${CMAKE_CURRENT_LIST_DIR}")

if(ATTENTIVE_INSTALL)
  include(GNUInstallDirs)
  # Installed programs and shared libraries find each other relative to their own folder, and LibTorch in the
  # folder with which they were linked. Values set by the user are kept.
  if(NOT DEFINED CMAKE_INSTALL_RPATH)
    file(RELATIVE_PATH _from_programs "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}")
    set(CMAKE_INSTALL_RPATH "$ORIGIN/${_from_programs}")
  endif()
  if(NOT DEFINED CMAKE_INSTALL_RPATH_USE_LINK_PATH AND NOT ATTENTIVE_PACKAGE)
    set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
  endif()
endif()

# attentive_install_package(): installs every component that was built, each with its own file of targets, so
# that a consumer of one component needs only its dependencies.
function(attentive_install_package)
  attentive_install_files(attentive_attention)
  foreach(name IN LISTS ATTENTIVE_BUILT_COMPONENTS)
    attentive_install_targets(attentive-${name}-targets attentive_${name})
  endforeach()
  if(TARGET attentive_base)
    attentive_install_targets(attentive-base-targets attentive_base)
  endif()
  if(TARGET attentive)
    attentive_install_targets(attentive-targets attentive)
  endif()
endfunction()

# attentive_install_files(<library>): installs the package's config file, made for this library, and the files
# that it includes.
function(attentive_install_files library)
  set(package "${CMAKE_INSTALL_LIBDIR}/cmake/attentive")
  get_target_property(type ${library} TYPE)
  attentive_write_config("${PROJECT_BINARY_DIR}/attentive-config.cmake" "${type}" "${ATTENTIVE_CUDA_CODE}")
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/attentive-config-version.cmake"
    VERSION "${PROJECT_VERSION}" COMPATIBILITY SameMinorVersion)
  install(FILES
    "${PROJECT_BINARY_DIR}/attentive-config.cmake"
    "${PROJECT_BINARY_DIR}/attentive-config-version.cmake"
    "${ATTENTIVE_CMAKE_FOLDER}/attentive_torch_target.cmake"
    "${ATTENTIVE_CMAKE_FOLDER}/attentive_openmp_target.cmake"
    "${ATTENTIVE_CMAKE_FOLDER}/attentive_component_table.cmake"
    "${ATTENTIVE_CMAKE_FOLDER}/attentive_component_libraries.cmake"
    DESTINATION "${package}" COMPONENT library)
  install(FILES "${ATTENTIVE_CMAKE_FOLDER}/../LICENSE" "${ATTENTIVE_CMAKE_FOLDER}/../README.md"
    DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/doc/attentive" COMPONENT library)
endfunction()

# attentive_install_targets(<file> <target>…): installs libraries, their headers, and the file that defines
# them.
function(attentive_install_targets file)
  set(headers "")
  foreach(target IN LISTS ARGN)
    get_target_property(sets ${target} INTERFACE_HEADER_SETS)
    if(sets)
      set(headers FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT library)
    endif()
  endforeach()
  install(TARGETS ${ARGN} EXPORT ${file}
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT library
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT library
    RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT library
    ${headers})
  install(EXPORT ${file} NAMESPACE attentive:: DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/attentive" COMPONENT library)
endfunction()

# attentive_install_app(<target>): installs an executable if it was built, so that building only the library
# is enough.
function(attentive_install_app target)
  if(ATTENTIVE_INSTALL)
    install(TARGETS ${target} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT apps OPTIONAL)
  endif()
endfunction()

# attentive_torch_minor(<out>): the major.minor version of this build's LibTorch, which a consumer must have too.
function(attentive_torch_minor out)
  get_target_property(version attentive::torch ATTENTIVE_VERSION)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" minor "${version}")
  set(${out} "${minor}" PARENT_SCOPE)
endfunction()

# attentive_write_config(<file> <library's type> <whether it has CUDA code> [NO_PREFIX]): writes the package's
# config file, which records the properties of the library's LibTorch; with NO_PREFIX, not where it is. Another
# LibTorch has another ABI, and a consumer's LibTorch must have everything that the library calls or loads:
#   runtime   libc10_cuda and the CUDA runtime: a static library's CUDA code calls them
#   whole     all of LibTorch with CUDA: a shared library loads what it was linked with
function(attentive_write_config file type cuda_code)
  foreach(name IN ITEMS PREFIX HALF CUDART)
    get_target_property(${name} attentive::torch ATTENTIVE_${name})
  endforeach()
  attentive_torch_minor(ATTENTIVE_BUILT_WITH_TORCH)
  set(ATTENTIVE_BUILT_WITH_PREFIX "${PREFIX}")
  set(ATTENTIVE_SIBLING_TORCH "")
  if(ATTENTIVE_WHEEL)
    set(ATTENTIVE_SIBLING_TORCH "../torch")
  endif()
  if(ATTENTIVE_WHEEL OR ARGN STREQUAL "NO_PREFIX")
    set(ATTENTIVE_BUILT_WITH_PREFIX "")
  endif()
  set(ATTENTIVE_IS_STATIC FALSE)
  if(type STREQUAL "STATIC_LIBRARY")
    set(ATTENTIVE_IS_STATIC TRUE)
  endif()
  set(ATTENTIVE_NEEDS "")
  if(NOT ATTENTIVE_IS_STATIC AND HALF STREQUAL "full" AND EXISTS "${PREFIX}/lib/libtorch_cuda.so")
    set(ATTENTIVE_NEEDS whole)
  elseif(cuda_code)
    set(ATTENTIVE_NEEDS runtime)
  endif()
  set(ATTENTIVE_BUILT_WITH_CUDA "")
  if(cuda_code AND CUDART MATCHES "libcudart\\.so\\.([0-9]+)")
    set(ATTENTIVE_BUILT_WITH_CUDA "${CMAKE_MATCH_1}")
  endif()
  configure_package_config_file("${ATTENTIVE_CMAKE_FOLDER}/attentive-config.cmake.in" "${file}"
    INSTALL_DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/attentive" NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
endfunction()
