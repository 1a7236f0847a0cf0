#include <ATen/ops/ones.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/parity/case.h>

#include "parity/changed_case.h"

using namespace attentive;
using attentive::test::changed;
using attentive::test::different;
using attentive::test::kCases;
using attentive::test::refused;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::string kEncoder = kCases + "torch/encoder-options_read.safetensors";
const std::string kDecoder = kCases + "torch/decoder-options_read.safetensors";

template <class File>
void set_option(File& file, const std::string& name, const std::string& value) {
  auto& options = file.metadata["options"];
  const auto from = options.find("\"" + name + "\": ");
  REQUIRE(from != std::string::npos);
  const auto begin = from + name.size() + 4, end = options.find_first_of(",}", begin);
  options.replace(begin, end - begin, value);
}

}  // namespace

TEST_CASE("a transformer layer's case passes and every number of it counts", "[case][layers]") {
  for (const auto& path : {kEncoder, kDecoder}) {
    const auto file = load_safetensors(path);
    for (const auto& [name, tensor] : file.tensors) {
      INFO(path << " " << name);
      const auto& key = name;
      const auto report = changed(path, [&](SafetensorsFile& f) {
        auto& number = f.tensors.at(key);
        if (number.is_floating_point()) number.flatten()[0] += 0.5;
      });
      CHECK(report.passed() == !tensor.is_floating_point());
      if (name.rfind("expected.", 0) == 0 || name.rfind("grad.", 0) == 0)
        CHECK(different(report) == std::vector<std::string>{name});
    }
  }
}

TEST_CASE("a transformer layer's options mean what Python's do", "[case][layers]") {
  for (const auto& path : {kEncoder, kDecoder}) {
    INFO(path);
    for (const auto& [name, other] : {std::pair<std::string, std::string>("activation", "\"gelu\""),
                                      {"activation", "\"silu\""},
                                      {"activation", "\"tanh\""},
                                      {"layer_norm_eps", "0.5"},
                                      {"norm_first", "true"},
                                      {"nhead", "1"}}) {
      INFO(name << " " << other);
      const auto set = [key = name, value = other](auto& f) { set_option(f, key, value); };
      CHECK_FALSE(changed(path, set).passed());
    }
    // null selects Python's default.
    CHECK(changed(path, [](auto& f) { set_option(f, "activation", "null"); }).passed());
  }
}

TEST_CASE("mistakes in a transformer layer's case are named", "[case][layers][errors]") {
  CHECK(refused(kEncoder, [](auto& f) { set_option(f, "activation", "\"swish\""); }) ==
        "case: expected option activation to be one of relu, gelu, silu, tanh, got \"swish\"");
  CHECK(refused(kEncoder, [](auto& f) { set_option(f, "activation", "1"); }) ==
        "case: expected option activation to be one of relu, gelu, silu, tanh, got 1");
  CHECK_THAT(refused(kEncoder, [](auto& f) { set_option(f, "nhead", "3"); }),
             ContainsSubstring("case: compat::TransformerEncoderLayer: expected nhead to divide"));
  CHECK(refused(kEncoder, [](auto& f) { f.metadata["call"] = R"({"is_causal": true})"; }) ==
        "case: compat::TransformerEncoderLayer: expected a src_mask with is_causal, which is a hint about "
        "it, "
        "got none");
  CHECK_THAT(
      refused(kEncoder, [](auto& f) { f.metadata["call"] = R"({"tgt_is_causal": true})"; }),
      ContainsSubstring("case: unknown call argument tgt_is_causal of torch.nn.TransformerEncoderLayer"));
  CHECK_THAT(refused(kEncoder, [](auto& f) { f.tensors["input.memory"] = at::ones({1}); }),
             ContainsSubstring(
                 "case: unknown input memory of torch.nn.TransformerEncoderLayer; known: src, src_mask"));
  CHECK_THAT(refused(kDecoder, [](auto& f) { f.tensors.erase("state.norm3.weight"); }),
             ContainsSubstring("missing norm3.weight"));
  CHECK_THAT(refused(kDecoder,
                     [](auto& f) {
                       f.tensors.erase("input.memory");
                       f.tensors.erase("grad.input.memory");
                     }),
             ContainsSubstring("case: missing tensor input.memory"));
}

TEST_CASE("NaN in a layer's expected output never passes", "[case][layers]") {
  const auto report =
      changed(kEncoder, [](auto& f) { f.tensors["expected.output"][0][0][0] = std::nan(""); });
  CHECK(different(report) == std::vector<std::string>{"expected.output"});
}
