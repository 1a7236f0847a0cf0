# ATTENTIVE_WHEEL: this build fills a Python wheel (python/pyproject.toml). The wheel is unpacked beside that of PyTorch on
# another machine, so nothing in it names a folder of this one, and it asks the loader for no library that PyTorch has not
# loaded.

option(ATTENTIVE_WHEEL "Build for a Python wheel" OFF)
mark_as_advanced(ATTENTIVE_WHEEL)
if(NOT ATTENTIVE_WHEEL)
  return()
endif()

if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  message(FATAL_ERROR " attentive: a wheel is compiled with g++, because objects of clang need another OpenMP runtime than PyTorch's; say -DCMAKE_CXX_COMPILER=g++")
endif()
set(ATTENTIVE_PYTHON "${Python_EXECUTABLE}" CACHE FILEPATH "The Python that builds the wheel, whose Torch is used")
set(ATTENTIVE_TORCH cpu CACHE STRING "The wheel serves PyTorch's builds with and without CUDA" FORCE)
set(ATTENTIVE_CUDA OFF CACHE STRING "" FORCE)
set(ATTENTIVE_INSTALL_TORCH OFF CACHE STRING "" FORCE)
set(ATTENTIVE_PACKAGE ON CACHE BOOL "" FORCE)  # no installed file names a folder of this machine

# From <site-packages>/attentive/lib to <site-packages>/torch/lib.
set(CMAKE_INSTALL_LIBDIR lib)
set(CMAKE_INSTALL_RPATH "$ORIGIN/../../torch/lib")

# attentive_install_wheel(): installs the Python module that says with which PyTorch the library was built.
function(attentive_install_wheel)
  attentive_torch_minor(ATTENTIVE_BUILT_WITH_TORCH)
  configure_file("${PROJECT_SOURCE_DIR}/python/_build.py.in" "${PROJECT_BINARY_DIR}/_build.py" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/_build.py" DESTINATION . COMPONENT library)
endfunction()
