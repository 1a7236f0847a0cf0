#include <algorithm>
#include <fstream>
#include <map>
#include <string>

#include <ATen/ops/_nested_tensor_from_tensor_list.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/quantize_per_tensor.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>

#include <attentive/core/module_state.h>
#include <attentive/files/safetensors.h>
#include <attentive/files/state_dict.h>
#include <attentive/files/torch_file.h>
#include <attentive/modules/multi_head_attention.h>

#include "files/dtypes.h"
#include "files/small_states.h"
#include "support/autocast.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/files.h"

using namespace attentive;
using attentive::test::check_equal;
using attentive::test::make;
using attentive::test::snapshot;
using attentive::test::value_error;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

const std::filesystem::path kData = test::source_folder() + "/tests/files/data";

// The contents of the files in tests/files/data.
StateDict python_state() {
  const auto numbers = [](double first, at::IntArrayRef shape) {
    return (at::arange(6, at::kFloat) + first).slice(0, 0, c10::multiply_integers(shape)).view(shape);
  };
  return {{"mask", at::ones({4, 4}).triu(1)},       {"W_query.weight", numbers(0, {2, 3})},
          {"W_key.weight", numbers(10, {2, 3})},    {"W_value.weight", numbers(20, {2, 3})},
          {"out_proj.weight", numbers(30, {2, 2})}, {"out_proj.bias", numbers(40, {2})}};
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
      value_error([&] { load_state_dict(*module, state); }) ==
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
  torch::nn::Sequential model;
  for (int i = 0; i < 2; ++i) model->push_back(make());
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

TEST_CASE("what Python's torch.save wrote of a module is read", "[state_dict]") {
  for (const auto* name :
       {"ordered_dict.pt", "plain_dict.pt", "parameters.pt", "legacy.pt", "checkpoint.pt"}) {
    INFO(name);
    for (const bool map : {false, true}) {
      const auto state = read_state_dict(kData / name, {.file = {.map = map}});
      check_equal(state, python_state());
      for (const auto& [key, tensor] : state) CHECK_FALSE(tensor.requires_grad());
    }
  }
}

TEST_CASE("a checkpoint's state dict and plain values are told apart", "[state_dict]") {
  const auto file = read_state_dict_file(kData / "checkpoint.pt");
  CHECK(file.entry == "model");
  CHECK(file.prefix.empty());
  CHECK(file.values.at("step").as<int64_t>() == 3);
  CHECK(file.values.at("model").as<FileValue::Dict>().items.empty());
  const auto whole = read_state_dict_file(kData / "ordered_dict.pt");
  CHECK(whole.entry.empty());
  CHECK(whole.values.kind() == "OrderedDict");
}

TEST_CASE("several state dicts are listed, and one of them is named", "[state_dict][errors]") {
  const auto message = value_error([] { read_state_dict(kData / "several.pt"); });
  CHECK_THAT(message, ContainsSubstring("name the state dict by its entry: \"generator\", \"ema/model\""));
  const auto file = read_state_dict_file(kData / "several.pt", {.entry = "ema/model"});
  check_equal(file.state, python_state());
  CHECK(file.entry == "ema/model");
  CHECK(file.values.at("epoch").as<int64_t>() == 7);
  CHECK(file.values.at("betas").as<FileValue::Tuple>().items[1].as<double>() == 0.95);
  for (const auto* entry : {"ema", "epoch", "model", "/generator", "generator/"}) {
    CHECK_THAT(value_error([&] { read_state_dict(kData / "several.pt", {.entry = entry}); }),
               ContainsSubstring("no state dict under \"" + std::string(entry) +
                                 "\"; there is one under: \"generator\", \"ema/model\""));
  }
}

TEST_CASE("which entry of a checkpoint is its state dict", "[state_dict]") {
  const TemporaryFolder folder;
  using Entries = FileValue::Dict;
  const FileValue state = Entries{{{"w", at::ones({2})}}};
  const auto entry_of = [&](const FileValue& value) {
    save_torch(folder / "file.pt", value);
    try {
      return read_state_dict_file(folder / "file.pt").entry;
    } catch (const c10::ValueError&) {
      return std::string("refused");
    }
  };
  for (const auto* name : {"state_dict", "model", "model_state_dict"}) {
    CHECK(entry_of(Entries{
              {{"epoch", 1}, {name, state}, {"optimizer", Entries{{{"state", Entries{{{0, state}}}}}}}}}) ==
          name);
  }
  CHECK(entry_of(Entries{{{"model", state}, {"ema", state}}}) == "model");
  CHECK(entry_of(Entries{{{"model", state}, {"state_dict", state}}}) == "refused");
  CHECK(entry_of(Entries{{{"net", state}}}) == "refused");
  CHECK(entry_of(Entries{{{"model", Entries{{{"state_dict", state}}}}}}) == "refused");
  // Plain values next to the tensors are accepted; tensors nested further are not.
  CHECK(entry_of(Entries{{{"w", at::ones({2})}, {"version", Entries{{{"a", 1}}}}}}).empty());
  CHECK(entry_of(Entries{{{"w", at::ones({2})}, {"model", state}}}) == "model");
  CHECK(entry_of(Entries{{{"w", at::ones({2})}, {"list", FileValue::List{{at::ones({2})}}}}}) == "refused");
  CHECK(entry_of(Entries{{{0, at::ones({2})}}}) == "refused");
  CHECK(entry_of(Entries{}) == "refused");
  CHECK(entry_of(at::ones({2})) == "refused");
}

TEST_CASE("values come without tensors", "[state_dict]") {
  const TemporaryFolder folder;
  using Entries = FileValue::Dict;
  save_torch(
      folder / "file.pt",
      Entries{{{"w", at::ones({2})}, {"p", FileValue::Parameter{at::ones({2}), true}}, {"epoch", 3}}, true});
  const auto values = read_state_dict_file(folder / "file.pt").values;
  REQUIRE(values.as<Dict>().items.size() == 1);
  CHECK(values.kind() == "OrderedDict");
  CHECK(values.at("epoch").as<int64_t>() == 3);
  save_torch(folder / "file.pt",
             Entries{{{"model", Entries{{{"w", at::ones({2})}}}},
                      {"rng", FileValue::Tuple{{1, at::ones({2}), FileValue::List{{at::ones({2})}}}}}}});
  const auto rng = read_state_dict_file(folder / "file.pt").values.at("rng").as<FileValue::Tuple>().items;
  REQUIRE(rng.size() == 3);
  CHECK(rng[0].as<int64_t>() == 1);
  CHECK(rng[1].is<FileValue::None>());
  CHECK(rng[2].as<FileValue::List>().items[0].is<FileValue::None>());
}

TEST_CASE("the prefix of a wrapper is reported and can be taken off", "[state_dict]") {
  const TemporaryFolder folder;
  const auto with = [&](const std::string& prefix, const std::string& one_more = "") {
    StateDict state;
    for (const auto& [key, tensor] : python_state()) state.emplace(prefix + key, tensor);
    if (!one_more.empty()) state.emplace(one_more, at::ones({1}));
    save_torch(folder / "file.pt", state);
    return read_state_dict_file(folder / "file.pt");
  };
  const auto file = with("module.");
  CHECK(file.prefix == "module.");
  CHECK(file.state.count("module.W_key.weight"));
  check_equal(without_prefix(file.state, file.prefix), python_state());
  CHECK(with("").prefix.empty());
  CHECK(with("_orig_mod.module.").prefix == "_orig_mod.module.");
  CHECK(with("module.", "other").prefix.empty());
  CHECK(with("modules.").prefix.empty());
  CHECK_THAT(
      value_error([&] { without_prefix(with("module.", "other").state, "module."); }),
      ContainsSubstring("without_prefix: expected every key to begin with \"module.\", got \"other\""));
  auto module = make();
  CHECK_THAT(value_error([&] { load_state_dict(*module, file.state); }),
             ContainsSubstring("\nevery key begins with \"module.\", which a wrapper put there: "
                               "attentive::without_prefix(state, \"module.\") takes it off"));
}

TEST_CASE("what wrappers put into the middle of names is reported and can be taken off", "[state_dict]") {
  StateDict wrapped;
  const char* const parts[] = {"_orig_mod.", "_checkpoint_wrapped_module.", "module.",
                               "_fsdp_wrapped_module."};
  size_t i = 0;
  for (const auto& [key, tensor] : python_state()) {
    auto name = key;
    wrapped.emplace(name.insert(key.find('.') + 1, parts[i++ % 4]), tensor);
  }
  REQUIRE(i >= 4);
  check_equal(without_wrappers(wrapped), python_state());
  CHECK(without_wrappers(StateDict{{"modules._orig_mod", at::ones({1})}}).count("modules._orig_mod") == 1);
  auto module = make();
  const auto message = value_error([&] { load_state_dict(*module, wrapped); });
  CHECK_THAT(message, ContainsSubstring(" without what a wrapper put there: "
                                        "attentive::without_wrappers(state) takes it off"));
  load_state_dict(*module, without_wrappers(wrapped));
  wrapped.insert(*python_state().begin());
  CHECK_THAT(value_error([&] { without_wrappers(wrapped); }),
             ContainsSubstring("without_wrappers: expected one key for each name, got a second one, "));
}

TEST_CASE("a safetensors file is told by its content", "[state_dict]") {
  const TemporaryFolder folder;
  save_safetensors(folder / "weights.pt", python_state());
  check_equal(read_state_dict(folder / "weights.pt"), python_state());
}

TEST_CASE("what is no state dict is refused with its path", "[state_dict][errors]") {
  const auto refused = [](const std::filesystem::path& path, const std::string& reason) {
    INFO(path.string());
    CHECK_THAT(value_error([&] { read_state_dict(path); }),
               ContainsSubstring("read_state_dict: " + path.string() + ": " + reason));
  };
  refused(kData / "make_data.py", "neither a safetensors file nor a torch.save file");
  refused(kData, "the folder holds no state dict under a name that is known");
  refused(kData / "none", "cannot open it: No such file");
  CHECK_THAT(value_error([] { read_state_dict(kData / "from_python.safetensors", {.entry = "model"}); }),
             ContainsSubstring("a safetensors file has no entries, so none under \"model\""));
  const auto values = read_state_dict_file(kData / "from_python.safetensors").values;
  CHECK_THAT(values.at("written by").as<std::string>(), ContainsSubstring("safetensors"));
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

// Which tensors may be loaded into a module, and that nothing changes if one of them may not.

namespace {

// Values that no new module has.
StateDict ones() {
  auto state = snapshot(make());
  for (auto& [key, tensor] : state) tensor.fill_(1);
  return state;
}

struct MaskAlone : torch::nn::Module, CausalMaskBuffer {
  int64_t context_length() const override { return 4; }
};

}  // namespace

TEST_CASE("a tensor that cannot be copied is refused before anything changes", "[state_dict][errors]") {
  auto module = make();
  const auto before = snapshot(module);
  const auto square = at::ones({2, 2});
  std::map<std::string, at::Tensor> bad = {
      {"expected plain numbers, got a quantized tensor (QInt8); dequantize() it first",
       at::quantize_per_tensor(square, 0.1, 0, at::kQInt8)},
      {"expected a tensor with data, got one on the meta device", square.to(at::kMeta)},
      {"expected a dense tensor, got a sparse one", square.to_sparse()},
      {"expected a dense tensor, got a nested one", at::_nested_tensor_from_tensor_list({square, square})},
      {"expected dtype Float, got Bits8", at::empty({2, 2}, at::kBits8)},
      {"expected dtype Float, got ComplexFloat", square.to(at::kComplexFloat)}};
  if (const auto* four_bits = find_torch_dtype("float4_e2m1fn_x2")) {  // LibTorch has it since 2.8
    bad["expected dtype Float, got Float4_e2m1fn_x2"] = at::empty({2, 2}, four_bits->dtype);
  }
  for (const auto& [reason, tensor] : bad) {
    // Comes after W_key in the order of names, so that an unchecked load would already have changed
    // something.
    StateDict state = ones();
    state["out_proj.weight"] = tensor;
    CHECK_THAT(value_error([&] { load_state_dict(*module, state); }),
               ContainsSubstring("nothing was changed:\nmisshapen out_proj.weight: " + reason));
    check_equal(snapshot(module), before);
    // A bad mask changes nothing either.
    state = ones();
    state["mask"] = tensor;
    CHECK_THAT(value_error([&] { load_state_dict(*module, state); }),
               ContainsSubstring("misshapen mask: expected "));
    check_equal(snapshot(module), before);
    const auto report = load_state_dict(*make(), {{"out_proj.weight", tensor}}, {.strict = false});
    CHECK(report.misshapen == std::vector<std::string>{"out_proj.weight: " + reason});
  }
}

TEST_CASE("a module without data or with inference tensors is told from one to load into", "[state_dict]") {
  auto module = make();
  module->out_proj->bias = module->out_proj->register_parameter("other", at::empty({2}, at::kMeta));
  auto state = ones();
  state["out_proj.other"] = at::zeros({2});
  CHECK_THAT(value_error([&] { load_state_dict(*module, state); }),
             ContainsSubstring(
                 "misshapen out_proj.other: expected a module with data, but it is on the meta device"));

  auto served = [] {
    const c10::InferenceMode inference;
    return make();
  }();
  CHECK(served->W_query->weight.is_inference());
  load_state_dict(*served, ones());
  CHECK(bit_equal(served->W_query->weight, ones().at("W_query.weight")));
}

TEST_CASE("every dtype that converts is loaded as Python loads it", "[state_dict]") {
  const auto numbers = at::tensor({0.0f, 1.0f, 2.0f, 4.0f}).view({2, 2});
  for (const auto type :
       {at::kDouble, at::kHalf, at::kBFloat16, at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kByte, at::kChar,
        at::kShort, at::kInt, at::kLong, at::kUInt16, at::kUInt32, at::kUInt64}) {
    INFO(c10::toString(type));
    auto module = make();
    auto state = ones();
    state["out_proj.weight"] = numbers.to(type);
    load_state_dict(*module, state);
    CHECK(bit_equal(module->out_proj->weight, numbers));
  }
}

TEST_CASE("the default dtype does not decide what a mask is", "[state_dict]") {
  const test::DefaultDtype wide(at::kDouble);
  auto module = make();
  auto state = ones();
  state["mask"] = at::ones({4, 4}, at::kFloat).triu(1);
  load_state_dict(*module, state);
  CHECK(module->W_query->weight.scalar_type() == at::kDouble);
  CHECK(state_dict(*module, {.causal_mask_buffers = true}).at("mask").scalar_type() == at::kDouble);
  const MaskAlone without_parameters;
  CHECK(state_dict(without_parameters, {.causal_mask_buffers = true}).at("mask").scalar_type() == at::kFloat);
}

TEST_CASE("names of Hugging Face's GPT-2 are told from others, and long lists are cut",
          "[state_dict][errors]") {
  auto module = make();
  StateDict state;
  for (int64_t n = 0; n < 12; ++n) {
    for (const std::string name : {"attn.c_attn.weight", "attn.c_attn.bias", "mlp.c_fc.weight"})
      state["transformer.h." + std::to_string(n) + "." + name] = at::zeros({1});
  }
  const auto message = value_error([&] { load_state_dict(*module, state); });
  CHECK(message.starts_with(
      "load_state_dict: the state dict does not fit attentive::MultiHeadAttentionImpl; nothing was changed. "
      "These are "
      "the names of Hugging Face's GPT-2: attentive::from_python_names(\"gpt2\", state) translates them:\n"));
  CHECK_THAT(message, ContainsSubstring("\nunexpected transformer.h.0.attn.c_attn.bias\n"));
  CHECK(message.ends_with("\n... and 26 more unexpected"));
  CHECK(std::count(message.begin(), message.end(), '\n') == 5 + 10 + 1);
  // The report is not abridged.
  const auto report = load_state_dict(*module, state, {.strict = false});
  CHECK(report.unexpected.size() == 36);
  const auto text = report.to_string();
  CHECK(std::count(text.begin(), text.end(), '\n') == 36 + 5 - 1);
  // Without GPT-2's names, there is no hint.
  CHECK_THAT(value_error([&] {
               load_state_dict(*module, {{"h.0.attn.weight", at::zeros({1})}});
             }),
             !ContainsSubstring("from_python_names"));
}
