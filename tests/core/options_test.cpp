#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <torch/arg.h>

#include <attentive/core/mask.h>
#include <attentive/core/option_list.h>
#include <attentive/core/options.h>
#include <attentive/functional/attention.h>
#include <attentive/functional/explain.h>

#include "support/compare.h"

using namespace attentive;

namespace {

template <class Enum>
void check_names(const std::vector<std::pair<Enum, std::string_view>>& names) {
  for (const auto& [value, name] : names) CHECK(to_string(value) == name);
  CHECK(to_string(static_cast<Enum>(names.size())) == "unknown");  // no value is missing above
}

}  // namespace

TEST_CASE("every value of the options has the name that messages and files use", "[options]") {
  check_names<Causal>(
      {{Causal::None, "none"}, {Causal::BottomRight, "bottom-right"}, {Causal::TopLeft, "top-left"}});
  check_names<DropoutStream>(
      {{DropoutStream::Any, "any"}, {DropoutStream::Aten, "aten"}, {DropoutStream::Counter, "counter"}});
  check_names<Backend>({{Backend::Auto, "auto"},
                        {Backend::Reference, "reference"},
                        {Backend::Torch, "torch"},
                        {Backend::Native, "native"}});
  check_names<Align>(
      {{Align::BottomRight, "bottom-right"}, {Align::TopLeft, "top-left"}, {Align::Lengths, "lengths"}});
  check_names<Weights>({{Weights::None, "none"}, {Weights::Clean, "clean"}, {Weights::Dropped, "dropped"}});
}

TEST_CASE("a window is bounded by either side", "[options]") {
  CHECK_FALSE(Window{}.bounded());
  CHECK(Window{0, -1}.bounded());
  CHECK(Window{-1, 0}.bounded());
  CHECK(Window{255, 0}.bounded());
}

TEST_CASE("the causal option is a Causal to and fro", "[options]") {
  AttentionOptions options{.causal = Causal::TopLeft};
  const Causal causal = options.causal;
  CHECK(causal == Causal::TopLeft);
  options.causal = Causal::BottomRight;
  CHECK(options.causal == Causal::BottomRight);
}

TEST_CASE("options that nobody set ask for nothing but attention", "[options]") {
  constexpr AttentionOptions options;
  CHECK_FALSE(options.scale);
  CHECK(options.causal == Causal::None);
  CHECK_FALSE(options.window.bounded());
  CHECK(options.align == Align::BottomRight);
  CHECK_FALSE(options.softcap);
  CHECK_FALSE(options.softmax_plus_one);
  CHECK(options.dropout_p == 0);
  CHECK(options.dropout_stream == DropoutStream::Any);
  CHECK(options.backend == Backend::Auto);
}

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
  CHECK(names(AttentionOptions()) == std::vector<std::string>{"scale", "causal", "window", "align", "softcap",
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

TEST_CASE("guards nest, fall back and give way to a forced backend", "[guard]") {
  const auto x = at::randn({1, 2, 4, 8});
  CHECK(BackendGuard::current() == Backend::Auto);
  {
    const BackendGuard guard(Backend::Reference);
    CHECK(explain(x, x, x).chosen == Backend::Reference);
    CHECK(explain(x, x, x, {.backend = Backend::Torch}).chosen == Backend::Torch);
    {
      const BackendGuard inner(Backend::Torch);
      CHECK(explain(x, x, x).chosen == Backend::Torch);
      CHECK(explain(x, x, x, {.softcap = 1.0}).chosen != Backend::Torch);
    }
    CHECK(BackendGuard::current() == Backend::Reference);
  }
  CHECK(BackendGuard::current() == Backend::Auto);
  const DropoutStreamGuard stream(DropoutStream::Aten);
  CHECK(DropoutStreamGuard::current() == DropoutStream::Aten);
  at::manual_seed(8);
  const auto guarded = attention(x, x, x, {.dropout_p = 0.5});
  at::manual_seed(8);
  CHECK(bit_equal(attention(x, x, x, {.dropout_p = 0.5, .dropout_stream = DropoutStream::Aten}), guarded));
}

TEST_CASE("guards are of one thread", "[guard]") {
  const BackendGuard backend(Backend::Reference);
  const DropoutStreamGuard stream(DropoutStream::Counter);
  Backend other_backend = Backend::Native;
  DropoutStream other_stream = DropoutStream::Aten;
  std::thread([&] {
    other_backend = BackendGuard::current();
    other_stream = DropoutStreamGuard::current();
    const BackendGuard thread_guard(Backend::Torch);
  }).join();
  CHECK(other_backend == Backend::Auto);
  CHECK(other_stream == DropoutStream::Any);
  CHECK(BackendGuard::current() == Backend::Reference);
}

TEST_CASE("an exception takes guards back", "[guard]") {
  const BackendGuard backend(Backend::Torch);
  try {
    const BackendGuard inner(Backend::Reference);
    const DropoutStreamGuard stream(DropoutStream::Counter);
    throw std::runtime_error("");
  } catch (const std::runtime_error&) {
  }
  CHECK(BackendGuard::current() == Backend::Torch);
  CHECK(DropoutStreamGuard::current() == DropoutStream::Any);
}

TEST_CASE("a stream that the options name outweighs the guard", "[guard]") {
  const auto x = at::randn({1, 2, 4, 8});
  const auto drop = [&](DropoutStream stream) {
    at::manual_seed(8);
    return attention(x, x, x, {.dropout_p = 0.5, .dropout_stream = stream, .backend = Backend::Reference});
  };
  const auto counter = drop(DropoutStream::Counter), aten = drop(DropoutStream::Aten);
  CHECK_FALSE(bit_equal(counter, aten));
  const DropoutStreamGuard guard(DropoutStream::Aten);
  CHECK(bit_equal(drop(DropoutStream::Counter), counter));
  CHECK(bit_equal(drop(DropoutStream::Any), aten));
}

using attentive::Mask;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

TEST_CASE("a bare bool tensor means keep", "[mask]") {
  const Mask mask = at::ones({2, 3}, at::kBool);
  CHECK(mask.keep_terms().size() == 1);
  CHECK_FALSE(mask.empty());
  CHECK(Mask().empty());
}

TEST_CASE("a bare floating tensor is refused and both readings are named", "[mask][errors]") {
  CHECK_THROWS_MATCHES(Mask(at::rand({2, 3})), c10::TypeError,
                       MessageMatches(ContainsSubstring("Mask::keep") && ContainsSubstring("Mask::bias")));
}
