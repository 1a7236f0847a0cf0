#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <torch/arg.h>

#include <attentive/core/option_list.h>

using namespace attentive;

namespace {

struct ExampleOptions {
  TORCH_ARG(int64_t, d_in) = 1;
  TORCH_ARG(bool, bias) = true;
  TORCH_ARG(double, a_long_name_of_a_member) = 0.5;
  ATTENTIVE_OPTIONS(d_in_, bias_,  // over two lines
                    a_long_name_of_a_member_);
};

struct Unlisted {
  int64_t d_in = 1;
};

template <class Options>
std::vector<std::string> names(const Options& options) {
  std::vector<std::string> result;
  each_option(options, [&](std::string_view name, const auto&) { result.emplace_back(name); });
  return result;
}

}  // namespace

TEST_CASE("options are visited by name, in the order of declaration", "[option_list]") {
  CHECK(names(ExampleOptions()) == std::vector<std::string>{"d_in", "bias", "a_long_name_of_a_member"});
  CHECK(names(Window()) == std::vector<std::string>{"left", "right"});
  CHECK(names(AttentionOptions()) == std::vector<std::string>{"scale", "causal", "window", "softcap",
                                                              "softmax_plus_one", "dropout_p",
                                                              "dropout_stream", "backend"});
}

TEST_CASE("a visit reads and writes the members themselves", "[option_list]") {
  ExampleOptions options;
  each_option(options, [](std::string_view, auto& value) { value = 0; });
  CHECK(options.d_in() == 0);
  CHECK_FALSE(options.bias());
  Window window;
  each_option(window, [](std::string_view name, int64_t& value) { value = name == "left" ? 3 : 4; });
  CHECK(window.left == 3);
  CHECK(window.right == 4);
}

TEST_CASE("only structs whose options are listed list them", "[option_list]") {
  STATIC_REQUIRE(ListsOptions<ExampleOptions>);
  STATIC_REQUIRE(ListsOptions<const ExampleOptions>);
  STATIC_REQUIRE(ListsOptions<const Window>);
  STATIC_REQUIRE(ListsOptions<AttentionOptions>);
  STATIC_REQUIRE_FALSE(ListsOptions<Unlisted>);
  STATIC_REQUIRE_FALSE(ListsOptions<int64_t>);
}
