#include <fstream>

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>

#include <attentive/io/safetensors.h>
#include <attentive/io/state_dict.h>
#include <attentive/modules/multi_head_attention.h>

#include "support/compare.h"
#include "support/temporary_folder.h"

using namespace attentive;
using attentive::test::bit_equal;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

const std::filesystem::path kData = std::string(ATTENTIVE_SOURCE_DIR) + "/tests/io/data";

MultiHeadAttention make(int64_t context_length = 4) {
  return MultiHeadAttention(3, 2, context_length, 0.0, 2);
}

// What the files in tests/io/data hold.
StateDict python_state() {
  const auto numbers = [](double first, at::IntArrayRef shape) {
    return (at::arange(6, at::kFloat) + first).slice(0, 0, c10::multiply_integers(shape)).view(shape);
  };
  return {{"mask", at::ones({4, 4}).triu(1)},       {"W_query.weight", numbers(0, {2, 3})},
          {"W_key.weight", numbers(10, {2, 3})},    {"W_value.weight", numbers(20, {2, 3})},
          {"out_proj.weight", numbers(30, {2, 2})}, {"out_proj.bias", numbers(40, {2})}};
}

StateDict snapshot(const MultiHeadAttention& module) {
  auto state = state_dict(*module);
  for (auto& [key, tensor] : state) tensor = tensor.clone();
  return state;
}

void check_equal(const StateDict& left, const StateDict& right) {
  REQUIRE(left.size() == right.size());
  for (const auto& [key, tensor] : left) {
    INFO(key);
    REQUIRE(right.count(key));
    CHECK(bit_equal(tensor, right.at(key)));
  }
}

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a Python state dict loads by name and its mask is checked, not stored", "[state_dict]") {
  auto module = make();
  const auto before = module->W_query->weight;
  const auto report = load_state_dict(*module, python_state());
  CHECK(report.empty());
  CHECK(report.to_string().empty());
  CHECK(before.is_same(module->W_query->weight));
  CHECK(before.requires_grad());
  auto expected = python_state();
  expected.erase("mask");
  check_equal(state_dict(*module), expected);
  CHECK_NOTHROW(load_state_dict(*module, expected));
}

TEST_CASE("nothing changes when a strict load fails, and every key is listed", "[state_dict][errors]") {
  auto module = make();
  const auto before = snapshot(module);
  auto state = python_state();
  state.erase("W_key.weight");
  state["W_value.weight"] = at::zeros({3, 2});
  state["extra"] = at::zeros({1});
  state["heads.0.mask"] = at::ones({4, 4}).triu(1);
  state["mask"] = at::ones({4, 4}).tril();
  CHECK(
      message_of([&] { load_state_dict(*module, state); }) ==
      "load_state_dict: the state dict does not fit attentive::MultiHeadAttentionImpl; nothing was changed:\n"
      "missing W_key.weight\n"
      "unexpected extra\n"
      "unexpected heads.0.mask\n"
      "misshapen W_value.weight: expected shape (2, 3), got (3, 2)\n"
      "misshapen mask: expected a causal mask with ones strictly above the diagonal and zeros elsewhere, got "
      "other "
      "numbers");
  check_equal(snapshot(module), before);
}

TEST_CASE("a load that is not strict takes what fits and reports the rest", "[state_dict]") {
  auto module = make();
  const auto before = snapshot(module);
  auto state = python_state();
  state.erase("W_key.weight");
  state["W_value.weight"] = at::zeros({3, 2});
  state["extra"] = at::zeros({1});
  const auto report = load_state_dict(*module, state, {.strict = false});
  CHECK(report.missing == std::vector<std::string>{"W_key.weight"});
  CHECK(report.unexpected == std::vector<std::string>{"extra"});
  CHECK(report.misshapen == std::vector<std::string>{"W_value.weight: expected shape (2, 3), got (3, 2)"});
  const auto after = snapshot(module);
  CHECK(bit_equal(after.at("W_query.weight"), state.at("W_query.weight")));
  CHECK(bit_equal(after.at("W_key.weight"), before.at("W_key.weight")));
  CHECK(bit_equal(after.at("W_value.weight"), before.at("W_value.weight")));
}

TEST_CASE("ignored keys are passed over on both sides", "[state_dict]") {
  auto module = make();
  auto state = python_state();
  state.erase("out_proj.weight");
  state.erase("out_proj.bias");
  state["optimizer.step"] = at::zeros({1});
  CHECK_THROWS_AS(load_state_dict(*module, state), c10::ValueError);
  CHECK(load_state_dict(*module, state, {.ignore = {"out_*", "*.step"}}).empty());
  state["0.step"] = at::zeros({1});
  CHECK(load_state_dict(*module, state, {.ignore = {"out_*", "*.*ep"}}).empty());
  CHECK_THROWS_AS(load_state_dict(*module, state, {.ignore = {"out_", "*step*x"}}), c10::ValueError);
  state["W_query.weight"] = at::zeros({7});
  CHECK(load_state_dict(*module, state, {.ignore = {"*"}}).empty());
}

TEST_CASE("masks of another size or pattern are refused", "[state_dict][errors]") {
  auto module = make();
  auto state = python_state();
  const auto refused = [&](const at::Tensor& mask, const std::string& reason) {
    state["mask"] = mask;
    CHECK_THROWS_MATCHES(load_state_dict(*module, state), c10::ValueError,
                         MessageMatches(ContainsSubstring("misshapen mask: " + reason)));
  };
  refused(at::ones({5, 5}).triu(1),
          "expected a causal mask of shape (4, 4), got Float tensor of shape (5, 5)");
  refused(at::ones({16}), "expected a causal mask of shape (4, 4), got Float tensor of shape (16,)");
  refused(at::ones({4, 4}).triu(0), "expected a causal mask with ones strictly above the diagonal");
  refused(at::ones({4, 4}).triu(1) * 2, "expected a causal mask with ones strictly above the diagonal");
  for (const auto type : {at::kBool, at::kHalf, at::kBFloat16, at::kDouble, at::kByte}) {
    state["mask"] = at::ones({4, 4}).triu(1).to(type);
    CHECK(load_state_dict(*module, state).empty());
  }
}

TEST_CASE("a module without a context limit accepts a causal mask of any size", "[state_dict]") {
  auto module = make(/*context_length=*/0);
  CHECK(load_state_dict(*module, python_state()).empty());
  CHECK_THROWS_MATCHES(
      state_dict(*module, {.causal_mask_buffers = true}), c10::ValueError,
      MessageMatches(ContainsSubstring("expected a limited context_length for the buffer \"mask\"")));
}

TEST_CASE("mask buffers are written on request, in the dtype of the parameters", "[state_dict]") {
  auto module = make();
  load_state_dict(*module, python_state());
  CHECK_FALSE(state_dict(*module).count("mask"));
  check_equal(state_dict(*module, {.causal_mask_buffers = true}), python_state());
  module->to(at::kHalf);
  CHECK(state_dict(*module, {.causal_mask_buffers = true}).at("mask").scalar_type() == at::kHalf);
}

TEST_CASE("masks are known inside other modules", "[state_dict]") {
  torch::nn::Sequential model(make(), make());
  const auto state = state_dict(*model, {.causal_mask_buffers = true});
  CHECK(state.count("0.mask"));
  CHECK(state.count("1.mask"));
  CHECK(load_state_dict(*model, state).empty());
}

TEST_CASE("a module that no shared_ptr holds can be loaded too", "[state_dict]") {
  MultiHeadAttentionImpl module(3, 2, 4, 0.0, 2);
  CHECK(load_state_dict(module, python_state()).empty());
}

TEST_CASE("tensors are cast to the parameters' dtype", "[state_dict]") {
  auto module = make();
  module->to(at::kDouble);
  load_state_dict(*module, python_state());
  CHECK(module->W_query->weight.scalar_type() == at::kDouble);
  CHECK(module->W_query->weight.equal(python_state().at("W_query.weight").to(at::kDouble)));
  auto state = python_state();
  state["W_query.weight"] = state["W_query.weight"].to(at::kComplexFloat);
  CHECK_THROWS_MATCHES(
      load_state_dict(*module, state), c10::ValueError,
      MessageMatches(ContainsSubstring("W_query.weight: expected dtype Double, got ComplexFloat")));
  state["W_query.weight"] = at::Tensor();
  CHECK_THROWS_MATCHES(load_state_dict(*module, state), c10::ValueError,
                       MessageMatches(ContainsSubstring("expected W_query.weight to be a tensor")));
}

TEST_CASE("two parameters of one module can be swapped through its own state dict", "[state_dict]") {
  auto module = make();
  load_state_dict(*module, python_state());
  auto state = state_dict(*module);
  std::swap(state.at("W_query.weight"), state.at("W_key.weight"));
  load_state_dict(*module, state);
  CHECK(module->W_query->weight.equal(python_state().at("W_key.weight")));
  CHECK(module->W_key->weight.equal(python_state().at("W_query.weight")));
}

TEST_CASE("buffers are loaded like parameters", "[state_dict]") {
  torch::nn::BatchNorm1d norm(3);
  auto state = state_dict(*norm);
  state["running_mean"] = at::arange(3, at::kFloat);
  load_state_dict(*norm, state);
  CHECK(norm->running_mean.equal(at::arange(3, at::kFloat)));
}

TEST_CASE("a plain dict of Python's torch.save is read", "[state_dict]") {
  check_equal(read_state_dict(kData / "plain_dict.pt"), python_state());
  check_equal(read_state_dict(kData / "parameters.pt"), python_state());
  for (const auto& [key, tensor] : read_state_dict(kData / "parameters.pt"))
    CHECK_FALSE(tensor.requires_grad());
}

TEST_CASE("a safetensors file is told by its content", "[state_dict]") {
  const TemporaryFolder folder;
  save_safetensors(folder / "weights.pt", python_state());
  check_equal(read_state_dict(folder / "weights.pt"), python_state());
}

TEST_CASE("files that LibTorch cannot read say what to write instead", "[state_dict][errors]") {
  const auto refused = [](const std::filesystem::path& path, const std::string& reason) {
    INFO(path.string());
    const auto message = message_of([&] { read_state_dict(path); });
    CHECK_THAT(message, ContainsSubstring("read_state_dict: " + path.string() + ": " + reason));
    CHECK_THAT(message, ContainsSubstring("torch.save(dict(module.state_dict()), path)"));
  };
  refused(kData / "ordered_dict.pt", "LibTorch cannot read this torch.save file");
  refused(kData / "legacy.pt", "a torch.save file in the format before PyTorch 1.6");
  refused(kData / "checkpoint.pt", "expected a tensor under \"model\"");
  refused(kData / "make_data.py", "neither a safetensors file nor a torch.save file");
  CHECK_THAT(message_of([] { read_state_dict(kData / "none"); }),
             ContainsSubstring("cannot open it: No such file"));
  CHECK_THAT(message_of([] { read_state_dict(kData); }), ContainsSubstring("cannot open it: Is a directory"));
}

TEST_CASE("a torch.save file cut anywhere is refused", "[state_dict][errors]") {
  const TemporaryFolder folder;
  std::ifstream in(kData / "plain_dict.pt", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  for (size_t size = 0; size < bytes.size(); size += 13) {
    std::ofstream(folder / "cut", std::ios::binary) << bytes.substr(0, size);
    CHECK_THROWS_AS(read_state_dict(folder / "cut"), c10::ValueError);
  }
}
