// Every case of tests/parity that real PyTorch wrote for torch.nn.MultiheadAttention, run through ours.

#include <catch2/catch_test_macros.hpp>

#include <attentive/compat/multihead_attention.h>
#include <attentive/core/guards.h>

#include "compat/recorded_case.h"

using namespace attentive;
using test::RecordedCase;
using test::value_or;

namespace {

compat::MultiheadAttentionOptions module_options(const nlohmann::json& o) {
  compat::MultiheadAttentionOptions options(o.at("embed_dim"), o.at("num_heads"));
  options.dropout(value_or(o, "dropout", 0.0))
      .bias(value_or(o, "bias", true))
      .add_bias_kv(value_or(o, "add_bias_kv", false))
      .add_zero_attn(value_or(o, "add_zero_attn", false))
      .batch_first(value_or(o, "batch_first", false));
  if (value_or<int64_t>(o, "kdim", 0) > 0) options.kdim(o["kdim"].get<int64_t>());
  if (value_or<int64_t>(o, "vdim", 0) > 0) options.vdim(o["vdim"].get<int64_t>());
  return options;
}

std::string run(const RecordedCase& c) {
  at::manual_seed(static_cast<uint64_t>(c.seed("init_seed")));
  compat::MultiheadAttention module(module_options(c.options));
  if (const auto why = test::compare_initial(c, *module); !why.empty()) return why;
  module->to(c.type());
  load_state_dict(*module, c.state);
  module->train(c.train());

  test::Leaves leaf(c);
  const auto query = leaf("query");
  const auto key = leaf("key", query);
  const auto value = leaf("value", query);
  const auto padding = leaf("key_padding_mask");
  const auto mask = leaf("attn_mask");
  const DropoutStreamGuard stream(DropoutStream::Aten);
  at::manual_seed(static_cast<uint64_t>(c.seed("forward_seed")));
  const auto [output, weights] =
      module->forward(query, key, value, padding, value_or(c.call, "need_weights", true), mask,
                      value_or(c.call, "average_attn_weights", true), value_or(c.call, "is_causal", false));
  return test::compare(c, *module, leaf, output, weights);
}

}  // namespace

TEST_CASE("MultiheadAttention equals PyTorch on every recorded case", "[compat][multihead_attention]") {
  const auto paths = test::case_files("parity/torch/mha-*.safetensors");
  REQUIRE(paths.size() >= 150);
  for (const auto& path : paths) {
    INFO(path);
    CHECK(run(RecordedCase(path)) == "");
  }
}

TEST_CASE("MultiheadAttention drops what PyTorch drops for a seed", "[compat][multihead_attention]") {
  // PyTorch has two CPU streams, by vendor and build: this machine's is one of them.
  const auto paths = test::case_files("parity/dropout/torch.nn.MultiheadAttention-*.safetensors");
  REQUIRE(paths.size() == 2);
  CHECK((run(RecordedCase(paths[0])).empty() != run(RecordedCase(paths[1])).empty()));
}

TEST_CASE("a recorded case that is changed fails", "[compat][multihead_attention]") {
  const RecordedCase c(test::case_files("parity/torch/mha-defaults.safetensors").at(0));
  REQUIRE(run(c) == "");
  auto broken = c;
  broken.call["average_attn_weights"] = false;
  CHECK(run(broken).rfind("weights", 0) == 0);
  broken = c;
  broken.state["in_proj_weight"] = c.state.at("in_proj_weight") * 1.0001;
  CHECK(run(broken).rfind("output", 0) == 0);
  broken = c;
  broken.file.tensors["grad.input.key"] = c.tensor("grad.input.key") * 1.01;
  CHECK(run(broken).rfind("grad.input.key", 0) == 0);
}
