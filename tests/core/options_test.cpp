#include <string>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include <attentive/core/options.h>

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
  CHECK_FALSE(options.softcap);
  CHECK_FALSE(options.softmax_plus_one);
  CHECK(options.dropout_p == 0);
  CHECK(options.dropout_stream == DropoutStream::Any);
  CHECK(options.backend == Backend::Auto);
}
