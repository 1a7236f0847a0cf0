// The vector code of width 16 without AVX-512's intrinsics, which any CPU runs: so the wide algorithms are
// tested where there is no AVX-512, emulators included. ATTENTIVE_TEST_KERNELS=wide runs all tests on it.

#include "kernels/simd_wide.h"

#include <cstdlib>
#include <optional>
#include <string_view>

#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>

#define ATTENTIVE_SIMD_NAMESPACE wide
#define ATTENTIVE_SIMD_WIDTH 16
#include "kernels/native_cpu/simd_impl.h"
#include "kernels/simd/selection.h"

namespace {

namespace cpu = attentive::kernels::cpu;

class WideKernels : public Catch::EventListenerBase {
 public:
  using EventListenerBase::EventListenerBase;

  void testRunStarting(const Catch::TestRunInfo&) override {
    const char* variable = std::getenv("ATTENTIVE_TEST_KERNELS");
    if (variable && std::string_view(variable) == "wide") {
      guard_.emplace(cpu::Selection{&wide_kernels(), cpu::Bf16Product::Widened});
    }
  }
  void testRunEnded(const Catch::TestRunStats&) override { guard_.reset(); }

 private:
  std::optional<cpu::SelectionGuard> guard_;
};

CATCH_REGISTER_LISTENER(WideKernels)

}  // namespace

const cpu::Simd& wide_kernels() {
  static constexpr cpu::Simd table = cpu::wide::make_table("wide");
  return table;
}
