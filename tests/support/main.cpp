// The main function of every test program. ATEN_CPU_CAPABILITY may ask for instructions that this CPU lacks;
// PyTorch does not check that, and its first vectorised operation would crash. Such a run is skipped as a
// whole, with a message.

#include <cstdlib>
#include <iostream>
#include <string_view>

#include <catch2/catch_session.hpp>

#include "core/cpu_features.h"

namespace {

constexpr int kSkipped = 4;  // the exit status of Catch2 if all tests were skipped; ctest knows it

const char* lacking() {
  const char* variable = std::getenv("ATEN_CPU_CAPABILITY");
  const std::string_view wanted = variable ? variable : "";
  const auto& cpu = attentive::this_cpu();
  if (wanted == "avx512" && !cpu.avx512) return "AVX-512";
  if (wanted == "avx2" && !cpu.avx2) return "AVX2";
  return nullptr;
}

}  // namespace

int main(int argc, char* argv[]) {
  if (const char* set = lacking()) {
    std::cout << "skipped: this CPU lacks " << set << ", which ATEN_CPU_CAPABILITY asks for\n";
    return kSkipped;
  }
  return Catch::Session().run(argc, argv);
}
