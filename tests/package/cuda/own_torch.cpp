// The consumer's own Torch program, without attentive.

#include <cstdio>

#include <ATen/Context.h>

extern "C" int launch_add_one(float* x);

int main(int argc, char**) {
  std::printf("CUDA devices seen by Torch: %d\n", at::hasCUDA());
  return argc > 1 ? launch_add_one(nullptr) : 0;  // linked, not run: there may be no GPU
}
