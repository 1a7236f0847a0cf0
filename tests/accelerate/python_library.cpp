// A library that Python loads with torch.ops.load_library. It accelerates calls of every size from then on,
// and offers the switch and the report as operators.

#include <string>

#include <torch/library.h>

#include <attentive/accelerate.h>

#include "accelerate/sdpa_call.h"

namespace {

void start(bool exact) {
  attentive::accelerate_sdpa(
      {.dropout = exact ? attentive::SdpaDropout::Exact : attentive::SdpaDropout::Ours});
}

int64_t taken() {
  return attentive::sdpa_report().taken;
}

std::string report() {
  return attentive::to_string(attentive::sdpa_report());
}

}  // namespace

TORCH_LIBRARY(attentive_accelerate_test, library) {
  static const attentive::accelerate::EverySizeGuard every_size;
  start(false);
  library.def("start(bool exact) -> ()", start);
  library.def("stop() -> ()", attentive::stop_accelerating_sdpa);
  library.def("reset() -> ()", attentive::reset_sdpa_report);
  library.def("taken() -> int", taken);
  library.def("report() -> str", report);
}
