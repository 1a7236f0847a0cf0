# LibTorch provider: defines the imported target attentive::torch.

if(NOT TARGET torch)
  find_package(Python3 QUIET COMPONENTS Interpreter)
  if(Python3_EXECUTABLE)
    execute_process(
      COMMAND "${Python3_EXECUTABLE}" -c
              "import importlib.util as u,os;s=u.find_spec('torch');print(os.path.dirname(s.origin) if s else '')"
      OUTPUT_VARIABLE _attentive_python_torch OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(_attentive_python_torch)
      list(APPEND CMAKE_PREFIX_PATH "${_attentive_python_torch}/share/cmake")
    endif()
  endif()
  # Torch's own CUDA set-up stops as soon as this target exists; nothing here needs a toolkit.
  add_library(torch::cudart INTERFACE IMPORTED GLOBAL)
  set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
  find_package(Torch 2.11 REQUIRED)
  unset(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL)
endif()

if(NOT TARGET attentive::torch)
  add_library(attentive::torch INTERFACE IMPORTED GLOBAL)
  get_target_property(_attentive_torch_cpu torch_cpu IMPORTED_LOCATION_RELEASE)
  get_filename_component(_attentive_site "${_attentive_torch_cpu}/../../.." ABSOLUTE)
  if(ATTENTIVE_TORCH STREQUAL "cpu"
     OR (TARGET torch_cuda AND IS_DIRECTORY "${_attentive_site}/torch" AND NOT IS_DIRECTORY "${_attentive_site}/nvidia/cudnn"))
    target_link_libraries(attentive::torch INTERFACE torch_cpu c10)
    target_include_directories(attentive::torch INTERFACE ${TORCH_INCLUDE_DIRS})
  else()
    target_link_libraries(attentive::torch INTERFACE torch)
    foreach(_d cu13 cudnn nccl nvshmem cusparselt)
      if(IS_DIRECTORY "${_attentive_site}/nvidia/${_d}/lib")
        target_link_options(attentive::torch INTERFACE "LINKER:-rpath-link,${_attentive_site}/nvidia/${_d}/lib")
      endif()
    endforeach()
  endif()
endif()
