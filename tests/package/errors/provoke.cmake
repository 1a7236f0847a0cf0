# Provokes the errors of the configuration one by one, with LibTorch folders and a python3 made for this
# purpose, and checks that each one is reported as expected.
#   cmake -DATTENTIVE_SOURCE=… -DWORK=… -DGENERATOR=… -DMAKE_PROGRAM=… -DCOMPILER=… -DPREFIX=<an installed attentive>
#         -P provoke.cmake

cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}/bin")
foreach(tool IN ITEMS bash cat cp ldd sh sleep)
  find_program(path_of_${tool} ${tool} REQUIRED)
  file(CREATE_LINK "${path_of_${tool}}" "${WORK}/bin/${tool}" SYMBOLIC)
endforeach()
set(PYTHON "${CMAKE_CURRENT_LIST_DIR}/python3")

# --- what is made for it ---------------------------------------------------------------------------------------------

function(fake_torch name version)
  set(torch "${WORK}/${name}/torch")
  file(WRITE "${torch}/share/cmake/Torch/TorchConfig.cmake" "message(FATAL_ERROR \"must not be run\")\n")
  file(WRITE "${torch}/share/cmake/Torch/TorchConfigVersion.cmake" "set(PACKAGE_VERSION \"${version}\")\n")
  file(WRITE "${torch}/include/ATen/core/Tensor.h" "")
  foreach(library IN ITEMS c10 torch torch_cpu)
    file(WRITE "${torch}/lib/lib${library}.so" "")
  endforeach()
endfunction()

# A shared library that needs another one, which is gone.
function(fake_library library needs)
  file(WRITE "${WORK}/empty.cpp" "")
  cmake_path(GET library PARENT_PATH folder)
  file(MAKE_DIRECTORY "${folder}")
  execute_process(COMMAND "${COMPILER}" -shared -fPIC "-Wl,-soname,${needs}" "${WORK}/empty.cpp" -o "${WORK}/${needs}"
                  COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND "${COMPILER}" -shared -fPIC -Wl,--no-as-needed "${WORK}/empty.cpp" "${WORK}/${needs}"
                          -o "${library}" COMMAND_ERROR_IS_FATAL ANY)
  file(REMOVE "${WORK}/${needs}")
endfunction()

fake_torch(good 2.11.0)
fake_torch(newest 2.15.3)
fake_torch(oldest 2.7.0)
fake_torch(old 2.6.3)
fake_torch(too_new 2.16.0)
fake_torch(two_thirteen 2.13.0)
fake_torch(headless 2.11.0)
file(REMOVE_RECURSE "${WORK}/headless/torch/include")
fake_torch(static 2.11.0)
file(REMOVE "${WORK}/static/torch/lib/libtorch_cpu.so")
foreach(version IN ITEMS 2.7.0 2.7.1 2.8.0 2.10.0 2.11.0 2.14.1 2.15.0)
  fake_torch(bare_${version} ${version})
  fake_library("${WORK}/bare_${version}/torch/lib/libtorch_cpu.so" libabsent.so.1)
endforeach()
fake_torch(half 2.11.0)
file(MAKE_DIRECTORY "${WORK}/half/nvidia/cudnn/lib") # a toolkit on this machine may hold a libcudnn: not the wheel's
fake_library("${WORK}/half/torch/lib/libtorch_cuda.so" libcudnn.so.9)

# LibTorch whose CUDA runtime is found, of two releases, and nvcc of two.
function(fake_cuda_torch name release)
  fake_torch(${name} 2.11.0)
  set(lib "${WORK}/${name}/torch/lib")
  set(runtime "libcudart.so.${release}")
  execute_process(COMMAND "${COMPILER}" -shared -fPIC "-Wl,-soname,${runtime}" "${WORK}/empty.cpp" -o "${lib}/${runtime}"
                  COMMAND_ERROR_IS_FATAL ANY)
  foreach(library IN ITEMS c10_cuda torch_cuda)
    execute_process(COMMAND "${COMPILER}" -shared -fPIC -Wl,--no-as-needed "-Wl,-rpath,${lib}" "${WORK}/empty.cpp"
                            "${lib}/${runtime}" -o "${lib}/lib${library}.so" COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
endfunction()
fake_cuda_torch(with_cuda 13)
fake_cuda_torch(with_cuda12 12)
foreach(release IN ITEMS 12.4 13.0)
  file(WRITE "${WORK}/nvcc_${release}" "#!/bin/sh\necho 'Cuda compilation tools, release ${release}, V${release}.1'\n")
  file(CHMOD "${WORK}/nvcc_${release}" PERMISSIONS OWNER_READ OWNER_EXECUTE)
endforeach()
file(WRITE "${WORK}/nvcc_broken" "#!/bin/sh\nexit 1\n")
file(CHMOD "${WORK}/nvcc_broken" PERMISSIONS OWNER_READ OWNER_EXECUTE)

# --- how it is asked -------------------------------------------------------------------------------------------------

# ask(<name> [FAIL] LINE <regex> [ENV …] [ARGS …]): configures, and requires one
# matching line "attentive: …".
function(ask name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "FAIL" "LINE;ASK" "ENV;ARGS")
  if(NOT ARG_ASK)
    set(ARG_ASK torch)
  endif()
  set(command "${CMAKE_COMMAND}" -E env --unset=CMAKE_PREFIX_PATH --unset=Torch_ROOT --unset=DEB_BUILD_ARCH
    "PATH=${WORK}/bin" "XDG_CACHE_HOME=${WORK}/cache_${name}" "FAKE_LOG=${WORK}/log_${name}" ${ARG_ENV}
    "${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/project" -B "${WORK}/build_${name}" -G "${GENERATOR}"
      "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}" -DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF
      "-DATTENTIVE_SOURCE=${ATTENTIVE_SOURCE}" "-DASK=${ARG_ASK}" ${ARG_ARGS})
  execute_process(COMMAND ${command} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)

  set(fault "")
  string(REPLACE ";" "," lines "${output}") # CMake's lists are split at semicolons
  string(REGEX MATCHALL "attentive: [^\n]*" lines "${lines}")
  list(FILTER lines EXCLUDE REGEX "^attentive: (installing|passed over|waiting|CMAKE_PREFIX_PATH names)")
  list(LENGTH lines count)
  if(ARG_FAIL AND status EQUAL 0)
    set(fault "configured, should have failed")
  elseif(NOT ARG_FAIL AND NOT status EQUAL 0)
    set(fault "failed")
  elseif(NOT output MATCHES "${ARG_LINE}")
    set(fault "said something else than ${ARG_LINE}")
  elseif(NOT count EQUAL 1 AND NOT ARG_ASK MATCHES "^(package|two|cuda|nccl|components)$")
    set(fault "said ${count} lines instead of one")
  endif()
  if(fault)
    string(REPLACE "\n" "\n  " output "${output}")
    message(SEND_ERROR " ${name}: ${fault}:\n  ${output}")
  else()
    foreach(line IN LISTS lines)
      message(STATUS "${name}: ${line}")
    endforeach()
  endif()
endfunction()

function(pip_runs name wanted)
  set(runs "")
  if(EXISTS "${WORK}/log_${name}")
    file(STRINGS "${WORK}/log_${name}" runs)
  endif()
  list(LENGTH runs count)
  if(NOT count EQUAL wanted)
    message(SEND_ERROR "${name}: pip ran ${count} times instead of ${wanted}")
  endif()
endfunction()

set(with_python "-DATTENTIVE_PYTHON=${PYTHON}")
set(good_wheel "FAKE_WHEEL=${WORK}/good/torch")

# --- a LibTorch somebody named ---------------------------------------------------------------------------------------

ask(torch_dir LINE "LibTorch 2\\.11\\.0 \\(whole: a CPU build\\) from Torch_DIR: [^\n]*/good/torch"
    ARGS "-DTorch_DIR=${WORK}/good/torch/share/cmake/Torch")
ask(prefix_path LINE "2\\.15\\.3 [^\n]* from CMAKE_PREFIX_PATH" ARGS "-DCMAKE_PREFIX_PATH=${WORK}/newest/torch")
ask(prefix_environment LINE "2\\.11\\.0 [^\n]* from CMAKE_PREFIX_PATH"
    ENV "CMAKE_PREFIX_PATH=/nowhere:${WORK}/good/torch/share/cmake")
ask(prefix_path_wrong LINE "Warning[^\n]*\n *attentive: CMAKE_PREFIX_PATH names /path/to/libtorch, which does not exist"
    ENV "FAKE_TORCH=${WORK}/good/torch" ARGS "-DATTENTIVE_PYTHON=${PYTHON}" -DCMAKE_PREFIX_PATH=/path/to/libtorch)
ask(torch_dir_wrong FAIL LINE "attentive: Torch_DIR names [^\n]*, which holds no TorchConfig.cmake; give the folder"
    ARGS "-DTorch_DIR=${WORK}/nowhere")
ask(oldest LINE "LibTorch 2\\.7\\.0 \\(whole: a CPU build\\) from Torch_DIR: [^\n]*/oldest/torch"
    ARGS "-DTorch_DIR=${WORK}/oldest/torch/share/cmake/Torch")
ask(too_old FAIL LINE "is 2\\.6\\.3, supported are 2\\.7\\.0 to 2\\.15\\.x; install one: python3 -m pip install torch==2\\.11\\.0"
    ARGS "-DTorch_DIR=${WORK}/old/torch/share/cmake/Torch")
ask(too_new FAIL LINE "is 2\\.16\\.0, supported are 2\\.7\\.0 to 2\\.15\\.x; install one"
    ARGS "-DTorch_DIR=${WORK}/too_new/torch/share/cmake/Torch")
ask(no_headers FAIL LINE "has no C\\+\\+ headers; install the wheel of PyPI: python3 -m pip install torch=="
    ARGS "-DTorch_DIR=${WORK}/headless/torch/share/cmake/Torch")
ask(no_library FAIL LINE "has no lib/libtorch_cpu.so; [^\n]*: python3 -m pip install torch=="
    ARGS "-DTorch_DIR=${WORK}/static/torch/share/cmake/Torch")
# The further wheels that each wheel of PyPI loads.
foreach(pair IN ITEMS "2.7.0|-cu12==12.6" "2.7.1|-cu12==12.6" "2.8.0|-cu12==12.8" "2.10.0|-cu12==12.8"
                      "2.11.0|==13.0" "2.14.1|==13.0" "2.15.0|==13.2")
  string(REGEX MATCH "^([^|]+)\\|(.*)$" _ "${pair}")
  set(version "${CMAKE_MATCH_1}")
  set(suffix "${CMAKE_MATCH_2}.\\*")
  ask(no_runtime_${version} FAIL
    LINE "lacks libabsent.so.1; [^\n]*: python3 -m pip install 'nvidia-cuda-runtime${suffix}' 'nvidia-cuda-cupti${suffix}'"
    ARGS "-DTorch_DIR=${WORK}/bare_${version}/torch/share/cmake/Torch")
endforeach()
ask(another_version FAIL LINE "is 2\\.11\\.0, ATTENTIVE_TORCH_VERSION asks for 2\\.15\\.0; give the path"
    ARGS "-DTorch_DIR=${WORK}/good/torch/share/cmake/Torch" -DATTENTIVE_TORCH_VERSION=2.15.0)
ask(two_torches FAIL ASK two LINE "attentive: it uses the LibTorch at [^\n]*/good/torch, this project the one at [^\n]*; find yours first"
    ARGS "-DTorch_DIR=${WORK}/good/torch/share/cmake/Torch" "-DSECOND=${WORK}/newest/torch/lib/libtorch.so")

# --- whole or half ---------------------------------------------------------------------------------------------------

set(half "-DTorch_DIR=${WORK}/half/torch/share/cmake/Torch")
ask(half LINE "CPU half: NVIDIA libraries incomplete: libcudnn.so.9 missing" ARGS "${half}")
ask(half_wanted LINE "CPU half: ATTENTIVE_TORCH=cpu" ARGS "${half}" -DATTENTIVE_TORCH=cpu)
ask(half_refused FAIL LINE "ATTENTIVE_TORCH=cuda, but [^\n]* cannot run CUDA \\([^\n]*libcudnn[^\n]*\\); install it with its dependencies"
    ARGS "${half}" -DATTENTIVE_TORCH=cuda)
ask(half_misspelt FAIL LINE "ATTENTIVE_TORCH is \"gpu\"; say auto, cpu or cuda" ARGS "${half}" -DATTENTIVE_TORCH=gpu)

# --- CUDA code of our own --------------------------------------------------------------------------------------------

set(with_cuda "-DTorch_DIR=${WORK}/with_cuda/torch/share/cmake/Torch")
set(nvcc "-DATTENTIVE_NVCC=${WORK}/nvcc_13.0")
set(no_nvcc -DCMAKE_FIND_ROOT_PATH=/nowhere -DCMAKE_FIND_ROOT_PATH_MODE_PROGRAM=ONLY)
ask(cuda_auto ASK cuda LINE "attentive: CUDA code for sm_80 and sm_90, by nvcc 13\\.0" ARGS "${with_cuda}" "${nvcc}")
ask(cuda_on ASK cuda LINE "attentive: CUDA code for" ARGS "${with_cuda}" "${nvcc}" -DATTENTIVE_CUDA=ON)
ask(cuda_off ASK cuda LINE "attentive: no CUDA code: ATTENTIVE_CUDA=OFF" ARGS "${with_cuda}" "${nvcc}" -DATTENTIVE_CUDA=OFF)
ask(cuda_no_nvcc ASK cuda LINE "attentive: no CUDA code: there is no nvcc; install a CUDA toolkit" ARGS "${with_cuda}" ${no_nvcc})
ask(cuda_on_no_nvcc FAIL ASK cuda
    LINE "attentive: ATTENTIVE_CUDA=ON, but there is no nvcc; install a CUDA toolkit [^\n]*, or say ATTENTIVE_CUDA=AUTO"
    ARGS "${with_cuda}" ${no_nvcc} -DATTENTIVE_CUDA=ON)
ask(cuda_on_broken_nvcc FAIL ASK cuda LINE "nvcc_broken does not run; name another with -DATTENTIVE_NVCC="
    ARGS "${with_cuda}" "-DATTENTIVE_NVCC=${WORK}/nvcc_broken" -DATTENTIVE_CUDA=ON)
ask(cuda_on_older_nvcc FAIL ASK cuda LINE "nvcc_12.4 is of CUDA 12.4, LibTorch of CUDA 13; install a toolkit of that one"
    ARGS "${with_cuda}" "-DATTENTIVE_NVCC=${WORK}/nvcc_12.4" -DATTENTIVE_CUDA=ON)
ask(cuda_on_cpu_build FAIL ASK cuda LINE "this LibTorch does not run on NVIDIA GPUs; install the whole one"
    ARGS "-DTorch_DIR=${WORK}/good/torch/share/cmake/Torch" "${nvcc}" -DATTENTIVE_CUDA=ON)
ask(cuda_on_half FAIL ASK cuda LINE "only the CPU half of LibTorch is linked, [^\n]*; for NVIDIA GPUs, configure with -DATTENTIVE_TORCH=cuda"
    ARGS "${with_cuda}" "${nvcc}" -DATTENTIVE_CUDA=ON -DATTENTIVE_TORCH=cpu)
ask(cuda_misspelt FAIL ASK cuda LINE "ATTENTIVE_CUDA is \"yes\"; say AUTO, ON or OFF"
    ARGS "${with_cuda}" "${nvcc}" -DATTENTIVE_CUDA=yes)

# --- NCCL ------------------------------------------------------------------------------------------------------------

set(nccl -DATTENTIVE_DISTRIBUTED=ON -DATTENTIVE_NVCC=${WORK}/toolkit/bin/nvcc)
foreach(header IN ITEMS cublasLt cusolverDn cusparse)
  file(WRITE "${WORK}/toolkit/include/${header}.h" "")
endforeach()
file(WRITE "${WORK}/toolkit/include/cuda_runtime_api.h" "#define CUDART_VERSION  13000\n")
file(WRITE "${WORK}/toolkit/include/crt/host_defines.h" "")
set(macros "${WORK}/with_cuda/torch/include/caffe2/core/macros.h")
ask(nccl_off ASK nccl LINE "attentive: no NCCL: ATTENTIVE_NCCL=OFF" ARGS "${with_cuda}" ${nccl} -DATTENTIVE_NCCL=OFF)
ask(nccl_misspelt FAIL ASK nccl LINE "ATTENTIVE_NCCL is \"yes\"; say AUTO, ON or OFF" ARGS "${with_cuda}" -DATTENTIVE_NCCL=yes)
ask(nccl_without_component FAIL ASK nccl LINE "ATTENTIVE_NCCL=ON, but the component distributed is not built; say -DATTENTIVE_BUILD_DISTRIBUTED=ON"
    ARGS "${with_cuda}" -DATTENTIVE_NCCL=ON)
ask(nccl_cpu_build ASK nccl LINE "attentive: no NCCL: this LibTorch does not run on NVIDIA GPUs; install the whole one"
    ARGS "-DTorch_DIR=${WORK}/good/torch/share/cmake/Torch" ${nccl})
ask(nccl_on_half FAIL ASK nccl LINE "ATTENTIVE_NCCL=ON, but only the CPU half of LibTorch is linked, [^\n]*; for NVIDIA GPUs, configure with -DATTENTIVE_TORCH=cuda, or say ATTENTIVE_NCCL=AUTO"
    ARGS "${with_cuda}" ${nccl} -DATTENTIVE_NCCL=ON -DATTENTIVE_TORCH=cpu)
file(WRITE "${macros}" "{\"USE_GLOO\", \"ON\"}\n")
ask(nccl_torch_without ASK nccl LINE "no NCCL: the LibTorch at [^\n]*/with_cuda/torch was built without NCCL" ARGS "${with_cuda}" ${nccl})
file(APPEND "${macros}" "{\"USE_NCCL\", \"1\"}\n")
file(WRITE "${WORK}/nccl_2.27/nccl.h" "#define NCCL_MAJOR 2\n#define NCCL_MINOR 27\n")
ask(nccl_by_folder ASK nccl LINE "attentive: NCCL between GPUs, by ${WORK}/nccl_2.27/nccl.h"
    ARGS "${with_cuda}" ${nccl} "-DATTENTIVE_NCCL_INCLUDE=${WORK}/nccl_2.27")
file(WRITE "${WORK}/with_cuda/torch-2.11.0.dist-info/METADATA" "Requires-Dist: nvidia-nccl-cu13==2.28.9; platform_system == \"Linux\"\n")
ask(nccl_of_another_release FAIL ASK nccl
    LINE "LibTorch was built with NCCL 2.28, ${WORK}/nccl_2.27/nccl.h is of 2.27; name the folder of another with -DATTENTIVE_NCCL_INCLUDE="
    ARGS "${with_cuda}" ${nccl} -DATTENTIVE_NCCL=ON "-DATTENTIVE_NCCL_INCLUDE=${WORK}/nccl_2.27")
file(WRITE "${WORK}/toolkit/include/nccl.h" "#define NCCL_MAJOR 2\n#define NCCL_MINOR 28\n")
ask(nccl_auto ASK nccl LINE "attentive: NCCL between GPUs, by ${WORK}/toolkit/include/nccl.h" ARGS "${with_cuda}" ${nccl})
ask(nccl_on ASK nccl LINE "attentive: NCCL between GPUs" ARGS "${with_cuda}" ${nccl} -DATTENTIVE_NCCL=ON)

# --- the Torch of python3 --------------------------------------------------------------------------------------------

ask(python LINE "2\\.11\\.0 [^\n]* from [^\n]*python3: [^\n]*/good/torch" ENV "FAKE_TORCH=${WORK}/good/torch"
    ARGS "${with_python}")
ask(python_old FAIL LINE "is 2\\.6\\.3, supported are" ENV "FAKE_TORCH=${WORK}/old/torch"
    ARGS "${with_python}" -DATTENTIVE_INSTALL_TORCH=OFF)
ask(python_passed_over LINE "passed over: [^\n]* 2\\.6\\.3" ENV "FAKE_TORCH=${WORK}/old/torch" "${good_wheel}"
    ARGS "${with_python}")

# --- nothing there: install ------------------------------------------------------------------------------------------

ask(nothing FAIL LINE "found no LibTorch; install one with python3 -m pip install torch==" ARGS "${with_python}"
    -DATTENTIVE_INSTALL_TORCH=OFF)
ask(subproject FAIL LINE "found no LibTorch; [^\n]*-DATTENTIVE_INSTALL_TORCH=ON" ARGS "${with_python}" -DSUBPROJECT=ON)
pip_runs(subproject 0)
ask(package_build FAIL LINE "found no LibTorch" ENV DEB_BUILD_ARCH=amd64 ARGS "${with_python}")
pip_runs(package_build 0)
ask(subproject_asked LINE "from the per-user cache" ENV "${good_wheel}"
    ARGS "${with_python}" -DSUBPROJECT=ON -DATTENTIVE_INSTALL_TORCH=ON)
ask(no_python FAIL LINE "neither a LibTorch nor a python3 [^\n]*; apt-get install python3")
ask(no_pip FAIL LINE "has neither pip nor venv [^\n]*; apt-get install python3-venv" ENV FAKE_NO_PIP=1
    ARGS "${with_python}")
ask(no_wheel FAIL LINE "there is no wheel of torch 2\\.11\\.0 for Python 3\\.11 on [^\n]*; use another Python"
    ENV "FAKE_PIP_ERROR=ERROR: Could not find a version that satisfies the requirement torch==2.11.0" ARGS "${with_python}")
ask(no_network FAIL LINE "pip cannot reach its package index; check the network"
    ENV "FAKE_PIP_ERROR=WARNING: Retrying after connection broken by NewConnectionError: ERROR: No matching distribution"
    ARGS "${with_python}")
ask(no_space FAIL LINE "no space left for LibTorch in [^\n]*; free some"
    ENV "FAKE_PIP_ERROR=ERROR: Could not install packages due to an OSError: No space left on device" ARGS "${with_python}")
ask(pip_other FAIL LINE "pip could not install torch 2\\.11\\.0: ERROR: something; name a LibTorch"
    ENV "FAKE_PIP_ERROR=ERROR: something" ARGS "${with_python}")
ask(wheel_without_headers FAIL LINE "unusable wheel: [^\n]* has no C\\+\\+ headers"
    ENV "FAKE_WHEEL=${WORK}/headless/torch" ARGS "${with_python}")
if(IS_DIRECTORY "${WORK}/cache_wheel_without_headers/attentive/libtorch-2.11.0-cpu-cp311")
  message(SEND_ERROR "wheel_without_headers: the unusable wheel stayed in the cache")
endif()

# The second build folder takes what the first installed.
ask(cache LINE "from the per-user cache: [^\n]*/attentive/libtorch-2.11.0-cpu-cp311/torch" ENV "${good_wheel}"
    ARGS "${with_python}")
file(REMOVE_RECURSE "${WORK}/build_cache")
ask(cache LINE "from the per-user cache" ENV "${good_wheel}" ARGS "${with_python}")
pip_runs(cache 1)

# A subproject takes it too, unless that is forbidden; it fetches none.
file(REMOVE_RECURSE "${WORK}/build_cache")
ask(cache LINE "from the per-user cache" ARGS "${with_python}" -DSUBPROJECT=ON)
file(REMOVE_RECURSE "${WORK}/build_cache")
ask(cache FAIL LINE "found no LibTorch" ARGS "${with_python}" -DSUBPROJECT=ON -DATTENTIVE_INSTALL_TORCH=OFF)
file(REMOVE_RECURSE "${WORK}/build_cache")
ask(cache FAIL LINE "found no LibTorch" ENV DEB_BUILD_ARCH=amd64 ARGS "${with_python}")
pip_runs(cache 1)

# Two at the same time install once. The one that installs goes on when the other has said that it waits.
file(WRITE "${WORK}/both.sh" [=[
"$@" -B build_parallel1 > parallel1 2>&1 &
"$@" -B build_parallel2 > parallel2 2>&1 && wait $!
status=$?
cat parallel1 parallel2
exit $status
]=])
execute_process(
  COMMAND "${CMAKE_COMMAND}" -E env "PATH=${WORK}/bin" "XDG_CACHE_HOME=${WORK}/cache_parallel"
    "FAKE_LOG=${WORK}/log_parallel" "${good_wheel}" "FAKE_OTHER=${WORK}/parallel" --unset=CMAKE_PREFIX_PATH
    sh "${WORK}/both.sh" "${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}/project" -G "${GENERATOR}"
    "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}" "-DATTENTIVE_SOURCE=${ATTENTIVE_SOURCE}" -DASK=torch "${with_python}"
  WORKING_DIRECTORY "${WORK}" RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT status EQUAL 0 OR NOT output MATCHES "waiting for another configure run")
  message(SEND_ERROR "parallel: ${status}\n${output}")
endif()
pip_runs(parallel 1)

# A GPU driver that answers means the whole wheel.
file(WRITE "${WORK}/bin/nvidia-smi" "#!/bin/sh\necho 'GPU 0: a card (UUID: GPU-0)'\n")
file(CHMOD "${WORK}/bin/nvidia-smi" PERMISSIONS OWNER_READ OWNER_EXECUTE)
ask(gpu LINE "libtorch-2.11.0-full-cp311" ENV "${good_wheel}" ARGS "${with_python}")
file(STRINGS "${WORK}/log_gpu" run)
if(run MATCHES "--no-deps")
  message(SEND_ERROR "gpu: the full wheel was installed without its dependencies")
endif()

# --- other dependencies, and the installed package -------------------------------------------------------------------

ask(dependencies FAIL ASK dependencies LINE "missing fmt 9, nlohmann_json 3.10, Catch2 3; apt-get install libfmt-dev nlohmann-json3-dev catch2 \\(on Debian 12"
    ARGS -DATTENTIVE_BUILD_TESTS=ON -DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON -DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON
         -DCMAKE_DISABLE_FIND_PACKAGE_Catch2=ON)
# The libraries of the component tokenizers: none is found here, where no folder of the system is searched.
ask(tokenizers_auto ASK tokenizers LINE "no tokenizers of Python's models: there is no pcre2; apt-get install libpcre2-dev")
ask(tokenizers_off ASK tokenizers LINE "no tokenizers of Python's models: ATTENTIVE_BUILD_TOKENIZERS=OFF"
    ARGS -DATTENTIVE_BUILD_TOKENIZERS=OFF)
ask(tokenizers_on FAIL ASK tokenizers
    LINE "ATTENTIVE_BUILD_TOKENIZERS=ON, but there is no utf8proc; apt-get install libutf8proc-dev, or say ATTENTIVE_BUILD_TOKENIZERS=AUTO"
    ARGS -DATTENTIVE_BUILD_TOKENIZERS=ON "-DATTENTIVE_PCRE2_INCLUDE=${WORK}" "-DATTENTIVE_PCRE2_LIBRARY=${WORK}/empty.cpp")
ask(tokenizers_word FAIL ASK tokenizers LINE "ATTENTIVE_BUILD_TOKENIZERS is \"yes\"; say AUTO, ON or OFF"
    ARGS -DATTENTIVE_BUILD_TOKENIZERS=yes)
ask(viz_auto ASK viz LINE "no pictures of attention: there is no zlib; apt-get install zlib1g-dev")
ask(viz_on FAIL ASK viz LINE "ATTENTIVE_BUILD_VIZ=ON, but there is no zlib; apt-get install zlib1g-dev, or say ATTENTIVE_BUILD_VIZ=AUTO"
    ARGS -DATTENTIVE_BUILD_VIZ=ON)
# Which components are built, and what keeps one out.
ask(components_unknown FAIL ASK components LINE "ATTENTIVE_COMPONENTS names io; the components are attention, files, models"
    ARGS -DATTENTIVE_COMPONENTS=io)
ask(components_one ASK components LINE "components attention\n" ARGS -DATTENTIVE_COMPONENTS=attention)
ask(components_needs ASK components LINE "components attention, files, models\n" ARGS -DATTENTIVE_COMPONENTS=models)
ask(components_parity ASK components LINE "components attention, files, models, parity\n" ARGS -DATTENTIVE_COMPONENTS=parity)
ask(components_off FAIL ASK components LINE "ATTENTIVE_COMPONENTS needs files, but ATTENTIVE_BUILD_FILES=OFF"
    ARGS -DATTENTIVE_COMPONENTS=models -DATTENTIVE_BUILD_FILES=OFF)
ask(components_lack FAIL ASK components LINE "ATTENTIVE_COMPONENTS needs viz, but there is no zlib; apt-get install zlib1g-dev"
    ARGS -DATTENTIVE_COMPONENTS=viz)
ask(components_without_needed FAIL ASK components LINE "ATTENTIVE_BUILD_MODELS=ON, but the component files is not built"
    ARGS -DATTENTIVE_BUILD_FILES=OFF -DATTENTIVE_BUILD_MODELS=ON)

# A part of LibTorch that the component distributed needs.
file(WRITE "${WORK}/no_gloo/include/caffe2/core/macros.h" "  {\"USE_GLOO\", \"OFF\"},")
foreach(header IN ITEMS TCPStore reducer logger ProcessGroupGloo)
  ask(distributed_without_${header} ASK distributed
      LINE "no training in several processes: the LibTorch at ${WORK}/no_gloo has no header torch/csrc/distributed/c10d/${header}.hpp; name another"
      ARGS -DTORCH_VERSION=2.11.0 "-DTORCH_PREFIX=${WORK}/no_gloo")
  file(WRITE "${WORK}/no_gloo/include/torch/csrc/distributed/c10d/${header}.hpp" "")
endforeach()
ask(distributed_auto ASK distributed LINE "no training in several processes: the LibTorch at ${WORK}/no_gloo was built without Gloo; name another"
    ARGS -DTORCH_VERSION=2.11.0 "-DTORCH_PREFIX=${WORK}/no_gloo")
ask(distributed_on FAIL ASK distributed
    LINE "ATTENTIVE_BUILD_DISTRIBUTED=ON, but LibTorch 2.9.1 is older than 2.11; name another LibTorch with -DTorch_DIR=<torch>/share/cmake/Torch, or say ATTENTIVE_BUILD_DISTRIBUTED=AUTO"
    ARGS -DATTENTIVE_BUILD_DISTRIBUTED=ON -DTORCH_VERSION=2.9.1 "-DTORCH_PREFIX=${WORK}/no_gloo")
ask(package_other_torch FAIL ASK package
    LINE "attentive was built with LibTorch [0-9.]+, but [^\n]*/two_thirteen/torch is 2\\.13\\.0; name one of"
    ARGS "-DCMAKE_PREFIX_PATH=${PREFIX}" "-DTorch_DIR=${WORK}/two_thirteen/torch/share/cmake/Torch")

# --- what the installed package records of its build -----------------------------------------------------------------

# recorded(<name> <library's type> <CUDA code> <LibTorch of the build> [ARGS …]): packages
# are named by their folders.
function(recorded name type cuda_code torch)
  ask(${name} ASK record LINE "from Torch_DIR"
      ARGS "-DTorch_DIR=${WORK}/${torch}/torch/share/cmake/Torch" "-DRECORD=${WORK}/${name}" -DTYPE=${type}_LIBRARY
           -DCUDA_CODE=${cuda_code} ${ARGN})
endfunction()
# consumer(<package> <LibTorch> [FAIL] LINE … [ARGS …])
function(consumer package torch)
  cmake_parse_arguments(PARSE_ARGV 2 ARG "FAIL" "LINE" "ARGS")
  set(fail "")
  if(ARG_FAIL)
    set(fail FAIL)
  endif()
  string(REPLACE ";" "_" name "${package}_for_${torch}_${ARG_ARGS}")
  ask("${name}" ${fail} ASK package LINE "${ARG_LINE}"
      ARGS "-Dattentive_DIR=${WORK}/${package}" "-DTorch_DIR=${WORK}/${torch}/torch/share/cmake/Torch" ${ARG_ARGS})
endfunction()

recorded(static_with_code STATIC ON with_cuda)
consumer(static_with_code with_cuda LINE "2\\.11\\.0 \\(full")
consumer(static_with_code with_cuda LINE "links [^\n]*/libc10_cuda\\.so;[^\n]*/libcudart\\.so\\.13" ARGS -DATTENTIVE_TORCH=cpu)
consumer(static_with_code good FAIL
  LINE "attentive holds CUDA code, which the LibTorch at [^\n]*/good/torch cannot link: it has no CUDA runtime; name one for CUDA 13 with -DTorch_DIR=[^\n]*, or rebuild attentive with -DATTENTIVE_CUDA=OFF")
consumer(static_with_code with_cuda12 FAIL
  LINE "attentive holds CUDA code of CUDA 13, but the LibTorch at [^\n]*/with_cuda12/torch runs on [^\n]*/libcudart\\.so\\.12; name one for CUDA 13")

# The Torch of python3 was not asked for: where it does not fit, the one of the build is taken.
ask(static_with_code_beside_python ASK package LINE "from the build of attentive: [^\n]*/with_cuda/torch"
    ENV "FAKE_TORCH=${WORK}/good/torch" ARGS "-Dattentive_DIR=${WORK}/static_with_code" "${with_python}")

recorded(static_without_code STATIC OFF with_cuda)
ask(static_without_code_beside_python ASK package LINE "python3: [^\n]*/good/torch"
    ENV "FAKE_TORCH=${WORK}/good/torch" ARGS "-Dattentive_DIR=${WORK}/static_without_code" "${with_python}")
consumer(static_without_code good LINE "2\\.11\\.0 \\(full: a CPU build")
consumer(static_without_code half LINE "2\\.11\\.0 \\(cpu: NVIDIA libraries incomplete")

# A static library with the component tokenizers: only a consumer that requests the component needs its libraries;
# a shared library needs none.
recorded(static_with_tokenizers STATIC OFF good ARGS -DBUILT=tokenizers)
consumer(static_with_tokenizers good LINE "2\\.11\\.0 \\(full: a CPU build")
consumer(static_with_tokenizers good FAIL LINE "the component tokenizers of attentive: there is no pcre2; apt-get install libpcre2-dev"
         ARGS -DCOMPONENTS=tokenizers)
consumer(static_without_code good FAIL LINE "attentive has no component tokenizers; it has attention, files, models, text" ARGS -DCOMPONENTS=tokenizers)
consumer(static_without_code good LINE "links " ARGS -DLINKS=attentive::models)
consumer(static_without_code good FAIL
  LINE "attentive: user links attentive::viz, which is not there: build attentive with '-DATTENTIVE_COMPONENTS=viz', and ask for it by find_package\\(attentive COMPONENTS viz\\)"
  ARGS -DLINKS=attentive::viz)
consumer(static_without_code good FAIL LINE "user links attentive::attentive, which is not there: [^\n]*COMPONENTS models text\\)"
  ARGS -DLINKS=attentive::attentive -DCOMPONENTS=files)
recorded(static_with_viz STATIC OFF good ARGS -DBUILT=viz)
consumer(static_with_viz good LINE "2\\.11\\.0 \\(full: a CPU build")
consumer(static_with_viz good FAIL LINE "the component viz of attentive: there is no zlib; apt-get install zlib1g-dev" ARGS -DCOMPONENTS=viz)
consumer(static_with_viz good FAIL LINE "attentive has no component tokenizers; it has attention, files, models, text, viz" ARGS -DCOMPONENTS=tokenizers)
recorded(shared_with_tokenizers SHARED OFF good ARGS -DBUILT=tokenizers)
consumer(shared_with_tokenizers good LINE "2\\.11\\.0 \\(full: a CPU build" ARGS -DCOMPONENTS=tokenizers)

# A static distributed that calls LibTorch's NCCL.
foreach(header IN ITEMS TCPStore reducer logger ProcessGroupGloo)
  file(WRITE "${WORK}/with_cuda/torch/include/torch/csrc/distributed/c10d/${header}.hpp" "")
endforeach()
recorded(static_with_nccl STATIC OFF with_cuda ARGS -DBUILT=distributed -DATTENTIVE_NCCL_CODE=ON)
consumer(static_with_nccl with_cuda LINE "2\\.11\\.0 \\(full" ARGS -DCOMPONENTS=distributed)
consumer(static_with_nccl with_cuda LINE "2\\.11\\.0 \\(cpu" ARGS -DATTENTIVE_TORCH=cpu)
consumer(static_with_nccl with_cuda FAIL
  LINE "the component distributed of attentive: it holds NCCL, and of the LibTorch at [^\n]*/with_cuda/torch only the CPU half is linked; name a whole one"
  ARGS -DCOMPONENTS=distributed -DATTENTIVE_TORCH=cpu)

recorded(shared_of_whole SHARED OFF with_cuda)
consumer(shared_of_whole with_cuda LINE "2\\.11\\.0 \\(full")
consumer(shared_of_whole good FAIL
  LINE "this shared attentive loads the whole LibTorch with CUDA, but of the one at [^\n]*/good/torch only the CPU half would be linked \\(a CPU build\\); name a whole one with -DTorch_DIR=[^\n]*, or rebuild attentive with -DATTENTIVE_TORCH=cpu")
consumer(shared_of_whole half FAIL LINE "only the CPU half would be linked \\(NVIDIA libraries incomplete: libcudnn.so.9 missing\\)")

recorded(shared_with_code SHARED ON with_cuda)
consumer(shared_with_code with_cuda12 FAIL LINE "attentive holds CUDA code of CUDA 13, but")
recorded(shared_of_half SHARED OFF with_cuda -DATTENTIVE_TORCH=cpu)
consumer(shared_of_half good LINE "2\\.11\\.0 \\(full: a CPU build")
consumer(shared_of_half with_cuda LINE "2\\.11\\.0 \\(full: its NVIDIA")

# The OpenMP runtime of a static library's compiler must be one that the consumer's compiler links.
foreach(type IN ITEMS STATIC SHARED)
  foreach(compiler IN ITEMS Clang GNU)
    recorded(${type}_by_${compiler} ${type} OFF good ARGS -DCMAKE_CXX_COMPILER_ID=${compiler})
    foreach(consumer IN ITEMS Clang GNU)
      if("${type}_${compiler}_${consumer}" STREQUAL "STATIC_Clang_GNU")
        consumer(${type}_by_${compiler} good FAIL LINE "built with clang, and g\\+\\+ does not link clang's OpenMP runtime; compile with"
                 ARGS -DCMAKE_CXX_COMPILER_ID=${consumer})
      else()
        consumer(${type}_by_${compiler} good LINE "LibTorch 2\\.11\\.0" ARGS -DCMAKE_CXX_COMPILER_ID=${consumer})
      endif()
    endforeach()
  endforeach()
endforeach()
