// Compares the bits of the native CPU kernel with recorded ones, for every table of vector code that this CPU
// can run: a change that should not affect the arithmetic must not change any. Compilers fuse products and
// sums differently, so each has a separate record (recorded_bits.json). After a change of the arithmetic,
// write a new record: ATTENTIVE_RECORD_BITS=1 kernels_test "[recorded]", once per compiler.

#include <cstdlib>
#include <cstring>
#include <fstream>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/attention.h>

#include "kernels/simd/selection.h"
#include "kernels/simd_wide.h"
#include "support/covering_array.h"
#include "support/files.h"

using namespace attentive;
using namespace attentive::kernels::cpu;

namespace {

#if defined(__clang__)
constexpr auto kCompiler = "clang";
constexpr int kRelease = __clang_major__;
#else
constexpr auto kCompiler = "g++";
constexpr int kRelease = __GNUC__;
#endif

const auto kPath = test::source_folder() + "/tests/kernels/recorded_bits.json";

// Numbers of 24 random bits in [-1.5, 1.5), equal on all machines, whereas LibTorch's generators depend on
// the CPU.
at::Tensor numbers(at::IntArrayRef sizes, at::ScalarType type, uint64_t seed) {
  auto x = at::empty(sizes, at::kFloat);
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  auto* out = x.mutable_data_ptr<float>();
  for (int64_t n = 0; n < x.numel(); ++n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    out[n] = static_cast<float>(static_cast<int32_t>(state >> 40) - (1 << 23)) * 0x1.8p-23F;
  }
  return x.to(type);
}

// Adds a tensor to a hash: FNV-1a over its bytes, in the order of its indices.
void add_to(uint64_t* hash, const at::Tensor& x) {
  if (!x.defined()) return;
  const auto flat = x.detach().contiguous();
  const auto* bytes = static_cast<const unsigned char*>(flat.const_data_ptr());
  for (size_t n = 0; n < flat.nbytes(); ++n) *hash = (*hash ^ bytes[n]) * 0x100000001b3u;
}

struct Case {
  const char* name;
  int64_t B = 1, H = 2, Hkv = 2, L = 70, S = 70, D = 16, Dv = 16;
  AttentionOptions options = {};
  const char* terms = "";           // letters: see extras_of
  Weights weights = Weights::None;  // unless None, no gradients are computed
  bool gradients = true;
};

// Makes the extras named by the letters of `terms`: k keep mask, b bias with some -inf, c column mask, l
// lengths, a ALiBi, s sinks.
AttentionExtras extras_of(const Case& test_case) {
  const auto has = [&](char term) { return std::strchr(test_case.terms, term) != nullptr; };
  AttentionExtras extras;
  if (has('k')) {
    const auto keep = numbers({test_case.H, test_case.S, test_case.L}, at::kFloat, 11).gt(-0.7);
    extras.mask = Mask::per_head(keep.transpose(1, 2));  // its columns are L apart
  }
  if (has('b')) {
    const auto bias = numbers({test_case.L, test_case.S}, at::kFloat, 12);
    extras.mask = Mask::bias(bias.masked_fill(bias.lt(-1.2), -std::numeric_limits<double>::infinity()));
  }
  if (has('c')) extras.mask = Mask::key_keep(numbers({test_case.B, test_case.S}, at::kFloat, 13).gt(-0.9));
  if (has('l')) {
    auto lengths = at::empty({test_case.B}, at::kLong);
    for (int64_t b = 0; b < test_case.B; ++b)
      lengths.mutable_data_ptr<int64_t>()[b] = test_case.S - 7 - 20 * b;
    extras.mask = Mask::key_lengths(lengths);
  }
  if (has('a')) extras.alibi_slopes = numbers({test_case.H}, at::kFloat, 14).abs() * 0.1;
  if (has('s')) extras.sinks = numbers({test_case.H}, at::kFloat, 15) * 2;
  return extras;
}

constexpr auto kCausal = Causal::BottomRight;

std::vector<Case> cases() {
  return {
      {.name = "plain"},
      {.name = "one tile and odd sizes", .L = 33, .S = 47, .D = 13, .Dv = 9},
      {.name = "several blocks", .L = 290, .S = 331, .D = 64, .Dv = 64},
      {.name = "several tiles of keys", .H = 1, .Hkv = 1, .L = 40, .S = 2100, .D = 24, .Dv = 40},
      {.name = "wide heads", .H = 1, .Hkv = 1, .L = 50, .S = 60, .D = 256, .Dv = 129},
      {.name = "causal", .L = 300, .S = 300, .D = 64, .Dv = 64, .options = {.causal = kCausal}},
      {.name = "causal, more keys", .L = 65, .S = 200, .options = {.causal = kCausal}},
      {.name = "causal, fewer keys", .L = 90, .S = 50, .options = {.causal = kCausal}},
      {.name = "causal, top-left", .L = 60, .S = 130, .options = {.causal = Causal::TopLeft}},
      {.name = "grouped heads",
       .B = 2,
       .H = 6,
       .Hkv = 2,
       .L = 130,
       .S = 140,
       .D = 32,
       .Dv = 32,
       .options = {.causal = kCausal}},
      {.name = "window",
       .L = 400,
       .S = 400,
       .D = 32,
       .Dv = 32,
       .options = {.causal = kCausal, .window = {50, 0}}},
      {.name = "window on both sides", .L = 260, .S = 290, .options = {.window = {40, 25}}},
      {.name = "wide window", .H = 1, .Hkv = 1, .L = 700, .S = 700, .options = {.window = {600, 10}}},
      {.name = "keep mask", .L = 150, .S = 170, .terms = "k"},
      {.name = "keep mask and causal", .L = 150, .S = 150, .options = {.causal = kCausal}, .terms = "k"},
      {.name = "bias", .L = 150, .S = 170, .terms = "b"},
      {.name = "bias and causal", .L = 150, .S = 150, .options = {.causal = kCausal}, .terms = "b"},
      {.name = "column mask", .B = 3, .L = 70, .S = 90, .terms = "c"},
      {.name = "lengths", .B = 3, .L = 70, .S = 90, .terms = "l"},
      {.name = "lengths and causal", .B = 2, .L = 90, .S = 90, .options = {.causal = kCausal}, .terms = "l"},
      {.name = "ALiBi", .L = 180, .S = 180, .options = {.causal = kCausal}, .terms = "a"},
      {.name = "ALiBi, softcap and bias", .L = 80, .S = 90, .options = {.softcap = 3.0}, .terms = "ab"},
      {.name = "softcap", .L = 140, .S = 150, .options = {.softcap = 2.0}},
      {.name = "scale", .L = 40, .S = 50, .options = {.scale = -0.7}},
      {.name = "sinks", .L = 90, .S = 90, .options = {.causal = kCausal}, .terms = "s"},
      {.name = "gradient of a sink", .L = 1, .S = 90, .terms = "s"},
      {.name = "dropout", .L = 200, .S = 300, .D = 64, .Dv = 64, .options = {.dropout_p = 0.1}},
      {.name = "dropout, causal, grouped",
       .B = 2,
       .H = 4,
       .Hkv = 2,
       .L = 150,
       .S = 150,
       .options = {.causal = kCausal, .dropout_p = 0.4}},
      {.name = "dropout in a window with ALiBi",
       .L = 300,
       .S = 300,
       .options = {.causal = kCausal, .window = {70, 0}, .dropout_p = 0.2},
       .terms = "a"},
      {.name = "dropout with a mask", .L = 150, .S = 170, .options = {.dropout_p = 0.2}, .terms = "k"},
      {.name = "one query",
       .B = 2,
       .H = 8,
       .Hkv = 2,
       .L = 1,
       .S = 700,
       .D = 64,
       .Dv = 64,
       .gradients = false},
      {.name = "one query over parts",
       .H = 2,
       .Hkv = 1,
       .L = 1,
       .S = 2603,
       .D = 128,
       .Dv = 128,
       .gradients = false},
      {.name = "few queries",
       .H = 4,
       .Hkv = 1,
       .L = 5,
       .S = 1500,
       .D = 24,
       .Dv = 20,
       .options = {.causal = kCausal},
       .gradients = false},
      {.name = "few queries, options",
       .H = 2,
       .Hkv = 2,
       .L = 7,
       .S = 1300,
       .D = 64,
       .Dv = 64,
       .options = {.causal = kCausal, .window = {900, 0}, .softcap = 5.0, .dropout_p = 0.3},
       .terms = "as",
       .gradients = false},
      {.name = "few queries, bias", .L = 6, .S = 300, .terms = "b", .gradients = false},
      {.name = "few queries, mask", .B = 2, .L = 6, .S = 300, .terms = "k", .gradients = false},
      {.name = "few queries, lengths", .B = 2, .L = 3, .S = 300, .terms = "l", .gradients = false},
      {.name = "inference",
       .L = 200,
       .S = 200,
       .D = 40,
       .Dv = 40,
       .options = {.causal = kCausal},
       .gradients = false},
      {.name = "weights", .L = 70, .S = 300, .options = {.causal = kCausal}, .weights = Weights::Clean},
      {.name = "weights after dropout",
       .H = 4,
       .Hkv = 2,
       .L = 70,
       .S = 290,
       .options = {.dropout_p = 0.3},
       .terms = "b",
       .weights = Weights::Dropped},
      {.name = "weights with options",
       .L = 30,
       .S = 45,
       .options = {.window = {9, 5}, .softcap = 2.0},
       .terms = "as",
       .weights = Weights::Clean},
  };
}

std::string bits_of(const Case& test_case, at::ScalarType type) {
  const auto q = numbers({test_case.B, test_case.L, test_case.H, test_case.D}, type, 1).transpose(1, 2),
             k = numbers({test_case.B, test_case.Hkv, test_case.S, test_case.D}, type, 2),
             v = numbers({test_case.B, test_case.S, test_case.Hkv, test_case.Dv}, type, 3).transpose(1, 2);
  auto options = test_case.options;
  options.backend = Backend::Native;
  auto extras = extras_of(test_case);
  extras.logsumexp = true;
  extras.weights = test_case.weights;
  const bool differentiate = test_case.gradients && test_case.weights == Weights::None;
  at::manual_seed(17);
  std::vector<at::Tensor> leaves = {q, k, v};
  if (extras.sinks.defined()) leaves.push_back(extras.sinks);
  for (const auto& leaf : leaves) leaf.requires_grad_(differentiate);
  const auto result = attention(q, k, v, options, extras);
  uint64_t hash = 0xcbf29ce484222325u;
  for (const auto& x : {result.output, result.logsumexp, result.weights}) add_to(&hash, x);
  if (differentiate) {
    const auto grad_output = numbers(result.output.sizes(), type, 4),
               grad_logsumexp = numbers(result.logsumexp.sizes(), at::kFloat, 5);
    for (const auto& x :
         torch::autograd::grad({result.output, result.logsumexp}, leaves, {grad_output, grad_logsumexp}))
      add_to(&hash, x);
  }
  return fmt::format("{:016x}", hash);
}

struct Table {
  std::string name;
  Selection selection;
};

// A run with limited instructions checks the code that it uses.
std::vector<Table> tables() {
  const auto& cpu = this_cpu();
  std::vector<Table> result = {{"portable", {portable::code(), Bf16Product::Widened}},
                               {"wide", {wide::code(), Bf16Product::Widened}},
                               {"units", {portable::code(), Bf16Product::Widened, false, portable_units()}}};
  if (cpu.avx2) result.push_back({"avx2", {avx2::code(), Bf16Product::Widened}});
  if (cpu.avx512) result.push_back({"avx512", {avx512::code(), Bf16Product::Widened}});
  if (cpu.avx512_bf16) {
    result.push_back({"avx512_bf16", {avx512_bf16::code(), Bf16Product::Widened}});
    result.push_back({"avx512_bf16, pairs", {avx512_bf16::code(), Bf16Product::Pairs}});
  }
  if (select(cpu, "").units)  // AMX computes the bits of the record
    result.push_back({"units", {portable::code(), Bf16Product::Widened, false, amx_units()}});
  if (test::limited_instructions())
    std::erase_if(result, [](const Table& table) { return table.selection.code != &vector_code(); });
  return result;
}

nlohmann::json read_record() {
  std::ifstream file(kPath);
  return file ? nlohmann::json::parse(file) : nlohmann::json::object();
}

}  // namespace

TEST_CASE("recorded bits: the kernel computes what it computed", "[native][recorded]") {
#if !defined(__x86_64__)
  SKIP("the record is of x86 processors");
#endif
  const auto compiler = fmt::format("{} {}", kCompiler, kRelease);
  auto record = read_record();
  const bool write = std::getenv("ATTENTIVE_RECORD_BITS") != nullptr;
  if (!write && !record.contains(compiler)) SKIP("no record of " << compiler);
  for (const auto& table : tables()) {
    const SelectionGuard guard(table.selection);
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      for (const auto& one : cases()) {
        const auto bits = bits_of(one, type);
        auto& recorded = record[compiler][table.name][type == at::kFloat ? "float32" : "bfloat16"][one.name];
        if (write) recorded = bits;
        INFO(table.name << ", " << c10::toString(type) << ", " << one.name);
        CHECK(recorded == bits);
      }
    }
  }
  if (write) std::ofstream(kPath) << record.dump(1) << '\n';
}
