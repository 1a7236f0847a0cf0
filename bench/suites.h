#pragma once

#include <array>
#include <string_view>

#include "support/runner.h"

namespace bench {

void forward_suite(Runner& runner);
void forward_backward_suite(Runner& runner);
void dropout_suite(Runner& runner);
void window_suite(Runner& runner);
void variants_suite(Runner& runner);
void decode_suite(Runner& runner);
void module_suite(Runner& runner);
void tiny_suite(Runner& runner);
void load_suite(Runner& runner);
void growth_suite(Runner& runner);
void threads_suite(Runner& runner);

struct Suite {
  std::string_view name;
  void (*run)(Runner&);
};

inline constexpr std::array<Suite, 11> kSuites = {{
    {"forward", forward_suite},
    {"forward-backward", forward_backward_suite},
    {"dropout", dropout_suite},
    {"window", window_suite},
    {"variants", variants_suite},
    {"decode", decode_suite},
    {"module", module_suite},
    {"tiny", tiny_suite},
    {"load", load_suite},
    {"growth", growth_suite},
    {"threads", threads_suite},
}};

}  // namespace bench
