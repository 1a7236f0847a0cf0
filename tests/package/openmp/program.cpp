// The program loads a single OpenMP runtime, that of the LibTorch next to it, and one setting affects both.

#include <cstdio>
#include <filesystem>
#include <omp.h>

#include "support/openmp_runtimes.h"

int threads_of_torch();

int main() {
  omp_set_num_threads(3);
  int threads = 0;
#pragma omp parallel
#pragma omp single
  threads = omp_get_num_threads();
  const int of_torch = threads_of_torch();

  bool is_own = false;
  const auto loaded = attentive::test::loaded_openmp_runtimes();
  for (const auto& file : loaded) {
    std::printf("loaded %s\n", file.c_str());
    is_own = std::filesystem::path(file).filename() == "libgomp-0123abcd.so.1";
  }
  std::printf("threads: %d here, %d in LibTorch\n", threads, of_torch);
  return loaded.size() == 1 && is_own && threads == 3 && of_torch == 3 ? 0 : 1;
}
