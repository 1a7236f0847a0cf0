// One program of sources that were compiled with different flags: each has its own copy of the code of every
// instruction set, and none takes that of another one.

#include <catch2/catch_test_macros.hpp>

#include "score/drawn_scores.h"

namespace attentive::test {

DrawnFunctions functions_plain(const DrawnTensors& tensors);
DrawnFunctions functions_unoptimised(const DrawnTensors& tensors);
DrawnFunctions functions_optimised(const DrawnTensors& tensors);
#ifdef ATTENTIVE_TEST_NATIVE
DrawnFunctions functions_native(const DrawnTensors& tensors);
#endif
#ifdef ATTENTIVE_TEST_GXX
DrawnFunctions functions_gxx(const DrawnTensors& tensors);
#endif

}  // namespace attentive::test

using namespace attentive::test;

TEST_CASE("scores of sources that were compiled with different flags equal the reference in one program",
          "[score][flags]") {
  for (size_t number = 0; number < 3; ++number) {
    check_functions(functions_plain, number);
    check_functions(functions_unoptimised, number);
    check_functions(functions_optimised, number);
#ifdef ATTENTIVE_TEST_NATIVE
    check_functions(functions_native, number);
#endif
#ifdef ATTENTIVE_TEST_GXX
    check_functions(functions_gxx, number);
#endif
  }
}
