# Install rules and the exported package: find_package(attentive CONFIG) gives attentive::attentive and attentive::train.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME library) # what a consumer needs, without the apps
set(_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/attentive")

install(TARGETS attentive attentive_train EXPORT attentive-targets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}"
  FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(EXPORT attentive-targets NAMESPACE attentive:: DESTINATION "${_package_dir}")

# What the library was built with: another LibTorch has another ABI.
get_target_property(ATTENTIVE_BUILT_WITH_TORCH attentive::torch ATTENTIVE_VERSION)
string(REGEX MATCH "^[0-9]+\\.[0-9]+" ATTENTIVE_BUILT_WITH_TORCH "${ATTENTIVE_BUILT_WITH_TORCH}")
get_target_property(ATTENTIVE_BUILT_WITH_PREFIX attentive::torch ATTENTIVE_PREFIX)
get_target_property(_type attentive TYPE)
set(ATTENTIVE_IS_STATIC FALSE)
if(_type STREQUAL "STATIC_LIBRARY")
  set(ATTENTIVE_IS_STATIC TRUE)
endif()

configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/attentive-config.cmake.in"
  "${PROJECT_BINARY_DIR}/attentive-config.cmake" INSTALL_DESTINATION "${_package_dir}"
  NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/attentive-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/attentive-config.cmake"
  "${PROJECT_BINARY_DIR}/attentive-config-version.cmake"
  "${CMAKE_CURRENT_LIST_DIR}/attentive_torch_target.cmake"
  DESTINATION "${_package_dir}")
