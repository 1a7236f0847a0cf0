// The vector code of width 16 without AVX-512 intrinsics, which any CPU can run, so that the wide algorithms
// are also tested on CPUs without AVX-512 and on emulators. ATTENTIVE_TEST_KERNELS=wide runs all tests on it.

#include "kernels/simd_wide.h"

#include <cstdlib>
#include <optional>
#include <string_view>

#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>

#define ATTENTIVE_SIMD_NAMESPACE wide
#define ATTENTIVE_SIMD_WIDTH 16
#include "kernels/native_cpu/tables.h"
#include "kernels/simd/selection.h"

namespace {

namespace cpu = attentive::kernels::cpu;

class WideKernels : public Catch::EventListenerBase {
 public:
  using EventListenerBase::EventListenerBase;

  void testRunStarting(const Catch::TestRunInfo&) override {
    const char* variable = std::getenv("ATTENTIVE_TEST_KERNELS");
    if (variable && std::string_view(variable) == "wide") {
      guard_.emplace(cpu::Selection{cpu::wide::code(), cpu::Bf16Product::Widened});
    }
  }
  void testRunEnded(const Catch::TestRunStats&) override { guard_.reset(); }

 private:
  std::optional<cpu::SelectionGuard> guard_;
};

CATCH_REGISTER_LISTENER(WideKernels)

}  // namespace
