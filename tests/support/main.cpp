// The main function of every test program. ATEN_CPU_CAPABILITY may ask for instructions that this CPU lacks;
// PyTorch does not check that, and its first vectorised operation would crash. Such a run is skipped as a
// whole, with a message; so is one that limits the CPU to the instructions it has, if
// ATTENTIVE_TEST_SKIP_REPEATED is set: without the limit the same tests take the same code.

#include <cstdlib>
#include <iostream>
#include <string_view>

#include <catch2/catch_session.hpp>

#include "core/cpu_features.h"

namespace {

constexpr int kSkipped = 4;  // the exit status of Catch2 if all tests were skipped; ctest knows it

/// Why the run is skipped as a whole; empty if it is not.
std::string_view reason_to_skip() {
  const char* variable = std::getenv("ATEN_CPU_CAPABILITY");
  const std::string_view wanted = variable ? variable : "";
  const bool skip_repeated = std::getenv("ATTENTIVE_TEST_SKIP_REPEATED");
  const auto& cpu = attentive::this_cpu();
  if (wanted == "avx512") {
    if (!cpu.avx512) return "this CPU lacks AVX-512, which ATEN_CPU_CAPABILITY asks for";
    if (skip_repeated && !cpu.avx512_bf16)
      return "this CPU has no more than AVX-512: repeats the run without a limit";
  }
  if (wanted == "avx2") {
    if (!cpu.avx2) return "this CPU lacks AVX2, which ATEN_CPU_CAPABILITY asks for";
    if (skip_repeated && !cpu.avx512)
      return "this CPU has no more than AVX2: repeats the run without a limit";
  }
  return {};
}

}  // namespace

int main(int argc, char* argv[]) {
  if (const std::string_view reason = reason_to_skip(); !reason.empty()) {
    std::cout << "skipped: " << reason << '\n';
    return kSkipped;
  }
  return Catch::Session().run(argc, argv);
}
