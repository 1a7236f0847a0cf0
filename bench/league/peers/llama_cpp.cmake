# llama-cpp-python asks for llama.cpp's helpers of programs as well. A normal variable comes before its cached one.
set(LLAMA_BUILD_COMMON OFF)
