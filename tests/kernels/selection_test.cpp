#include "kernels/simd/selection.h"

#include <string>
#include <vector>

#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <attentive/functional/attention.h>

#include "kernels/attention/units.h"
#include "kernels/gemm/products.h"
#include "kernels/simd_wide.h"
#include "support/compare.h"

using namespace attentive;
using namespace attentive::kernels::cpu;
using namespace attentive::test;

namespace {

// A processor of this architecture, its features, and the code that it gets with ATEN_CPU_CAPABILITY unset,
// "avx512", "avx2" and "default". (The tables of other architectures are not compiled.)
struct Processor {
  std::string name;
  CpuFeatures features;
  const char* kernels;
  Bf16Product bf16;
  std::vector<const char*> limited;
};

std::vector<Processor> processors() {
  using enum Bf16Product;
#if defined(__aarch64__)
  return {
      {"Cortex-A57, Neoverse N1 (NEON)", {.neon = true}, "neon", Widened, {"neon", "neon", "neon"}},
      {"Neoverse V1 and later (NEON with bfmmla)",
       {.neon = true, .neon_bf16 = true},
       "neon_bf16",
       Pairs,
       {"neon_bf16", "neon_bf16", "neon"}},
  };
#else
  return {
      {"Nehalem (SSE4.2)", {}, "portable", Widened, {"portable", "portable", "portable"}},
      {"Haswell, Zen 1 to 3 (AVX2)", {.avx2 = true}, "avx2", Widened, {"avx2", "avx2", "portable"}},
      {"Skylake to Ice Lake servers (AVX-512)",
       {.avx2 = true, .avx512 = true},
       "avx512",
       Widened,
       {"avx512", "avx2", "portable"}},
      {"Cooper Lake (slow pairs)",
       {.avx2 = true, .avx512 = true, .avx512_bf16 = true},
       "avx512_bf16",
       Widened,
       {"avx512", "avx2", "portable"}},
      {"Zen 4 and 5 (fast pairs)",
       {.avx2 = true, .avx512 = true, .avx512_bf16 = true, .fast_pairs = true},
       "avx512_bf16",
       Pairs,
       {"avx512", "avx2", "portable"}},
      {"Sapphire Rapids (AMX)",
       {.avx2 = true,
        .avx512 = true,
        .avx512_bf16 = true,
        .avx512_fp16 = true,
        .avx512_vbmi = true,
        .amx = true},
       "avx512_bf16",
       MatrixUnit,
       {"avx512", "avx2", "portable"}},
  };
#endif
}

// Returns a feature of another CPU that this CPU lacks; empty if this CPU can run the same code. `fast_pairs`
// does not matter.
std::string lacking(const CpuFeatures& wanted) {
  const auto& here = this_cpu();
  if (wanted.avx2 && !here.avx2) return "AVX2";
  if (wanted.avx512 && !here.avx512) return "AVX-512";
  if (wanted.avx512_bf16 && !here.avx512_bf16) return "AVX-512's bfloat16 products";
  if (wanted.amx && !here.amx) return "AMX";
  if (wanted.neon_bf16 && !here.neon_bf16) return "NEON's bfloat16 products";
  return "";
}

}  // namespace

TEST_CASE("selection: each kind of processor gets its kernels", "[selection][short]") {
  for (const auto& processor : processors()) {
    INFO(processor.name);
    const auto chosen = select(processor.features, "");
    CHECK(std::string(chosen.code->name) == processor.kernels);
    CHECK(chosen.bf16 == processor.bf16);
    CHECK(chosen.library_f16 == processor.features.avx512_fp16);
    const std::vector<std::string> limits = {"avx512", "avx2", "default"};
    for (size_t i = 0; i < limits.size(); ++i) {
      INFO(limits[i]);
      const auto limited = select(processor.features, limits[i]);
      CHECK(std::string(limited.code->name) == processor.limited[i]);
      const bool same = limited.code == chosen.code;
      CHECK(limited.bf16 == (same ? processor.bf16 : Bf16Product::Widened));
      CHECK(limited.library_f16 == (same && chosen.library_f16));
    }
  }
}

#if defined(__x86_64__)
TEST_CASE("selection: attention in units needs AMX, float16 and permutations of bytes",
          "[selection][short]") {
  const CpuFeatures every = processors().back().features;
  CHECK(select(every, "").units == amx_units());
  REQUIRE(amx_units() != nullptr);
  CHECK(select(every, "avx512").units == nullptr);
  for (bool CpuFeatures::*feature :
       {&CpuFeatures::avx512_fp16, &CpuFeatures::avx512_vbmi, &CpuFeatures::amx}) {
    auto without = every;
    without.*feature = false;
    CHECK(select(without, "").units == nullptr);
  }
}
#endif

TEST_CASE("selection: Native takes float32 and the half types on every kind of processor",
          "[selection][short]") {
  const auto all = processors();
  const auto& processor = all[GENERATE_COPY(range(size_t{0}, all.size()))];
  INFO(processor.name);
  if (const auto set = lacking(processor.features); !set.empty()) SKIP(processor.name << ": no " << set);
  const auto chosen = select(processor.features, "");
  const SelectionGuard guard(chosen);
  REQUIRE(&vector_code() == chosen.code);
  CHECK(has_gemm_bf16() == (processor.bf16 != Bf16Product::Widened));
  at::manual_seed(3);
  const auto q = at::randn({2, 4, 70, 24}), k = at::randn({2, 2, 90, 24}), v = at::randn({2, 2, 90, 20});
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto call = [&](Backend backend, at::ScalarType dtype) {
      const auto as = [&](const at::Tensor& x) { return x.to(type).to(dtype); };
      return attention(as(q), as(k), as(v), {.causal = Causal::BottomRight, .backend = backend});
    };
    INFO(c10::toString(type));
    CHECK(difference(call(Backend::Native, type), call(Backend::Reference, at::kDouble),
                     tolerance_of(type)) == "");
  }
}

TEST_CASE("selection: a forced one ends with its scope", "[selection][short]") {
  const auto* before = &vector_code();
  {
    const SelectionGuard guard({portable::code(), Bf16Product::Widened});
    CHECK(&vector_code() == portable::code());
    {
      const SelectionGuard inner({wide::code(), Bf16Product::Widened});
      CHECK(&vector_code() == wide::code());
    }
    CHECK(&vector_code() == portable::code());
  }
  CHECK(&vector_code() == before);
}
