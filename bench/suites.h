#pragma once

#include <string_view>

#include "support/runner.h"

namespace bench {

void forward_suite(Runner& runner);
void forward_backward_suite(Runner& runner);
void dropout_suite(Runner& runner);
void window_suite(Runner& runner);
void variants_suite(Runner& runner);
void learned_suite(Runner& runner);
void half_suite(Runner& runner);
void score_suite(Runner& runner);
void gallery_suite(Runner& runner);
void decode_suite(Runner& runner);
#ifdef ATTENTIVE_BENCH_ACCELERATE
void accelerate_suite(Runner& runner);
#endif
void module_suite(Runner& runner);
void tiny_suite(Runner& runner);
void load_suite(Runner& runner);
void growth_suite(Runner& runner);
void threads_suite(Runner& runner);

// The GPU suites, in gpu_bench.cpp.
void gpu_grid_suite(Runner& runner);
void gpu_options_suite(Runner& runner);
void gpu_decode_suite(Runner& runner);

/// The device on which a suite runs by default; on another one, it runs only if it is named.
enum class Meant { Cpu, Gpu, Both };

struct Suite {
  std::string_view name;
  void (*run)(Runner&);
  Meant meant = Meant::Cpu;
};

inline constexpr Suite kSuites[] = {
    {"forward", forward_suite},
    {"forward-backward", forward_backward_suite},
    {"dropout", dropout_suite},
    {"window", window_suite},
    {"variants", variants_suite},
    {"learned", learned_suite},
    {"half", half_suite},
    {"scores", score_suite},
    {"gallery", gallery_suite},
    {"decode", decode_suite},
#ifdef ATTENTIVE_BENCH_ACCELERATE
    {"accelerate", accelerate_suite},
#endif
    {"gpu-grid", gpu_grid_suite, Meant::Gpu},
    {"gpu-options", gpu_options_suite, Meant::Gpu},
    {"gpu-decode", gpu_decode_suite, Meant::Gpu},
    {"module", module_suite, Meant::Both},
    {"tiny", tiny_suite},
    {"load", load_suite},
    {"growth", growth_suite},
    {"threads", threads_suite},
};

}  // namespace bench
