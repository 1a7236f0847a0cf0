// Stands in for LibTorch: reports how many threads it would use.

#include <omp.h>

int threads_of_torch() {
  int threads = 0;
#pragma omp parallel
#pragma omp single
  threads = omp_get_num_threads();
  return threads;
}
