// Tests of the features that every module and its holder inherit, on a module that has no others.

#include <sstream>

#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/arg.h>

#include <attentive/modules/module.h>

#include "support/compare.h"
#include "support/errors.h"

using namespace attentive;

namespace {

struct GainOptions {
  explicit GainOptions(int64_t width) : width_(width) {}
  TORCH_ARG(int64_t, width);
  TORCH_ARG(double, factor) = 2;
  ATTENTIVE_OPTIONS(width_, factor_);
};

class GainImpl : public Module<GainImpl> {
 public:
  static constexpr const char* kName = "Gain";
  explicit GainImpl(int64_t width) : GainImpl(GainOptions(width)) {}
  explicit GainImpl(GainOptions options_) : options(options_) { build(); }

  void reset() override { weight = register_parameter("weight", at::randn({options.width()})); }
  at::Tensor forward(const at::Tensor& x) { return options.factor() * weight * x; }

  GainOptions options;
  at::Tensor weight;
};
using Gain = ModuleHolder<GainImpl>;

}  // namespace

TEST_CASE("RandomStateGuard puts the random state back", "[module]") {
  at::manual_seed(5);
  const auto want = at::randn({4});
  at::manual_seed(5);
  {
    const RandomStateGuard guard;
    CHECK(bit_equal(at::randn({4}), want));
  }
  CHECK(bit_equal(at::randn({4}), want));
}

TEST_CASE("a clone has the same numbers, memory of its own and draws nothing", "[module]") {
  const Gain module(4);
  at::manual_seed(5);
  const auto want = at::randn({4});
  at::manual_seed(5);
  const Gain copy(std::dynamic_pointer_cast<GainImpl>(module->clone()));
  CHECK(bit_equal(at::randn({4}), want));
  CHECK(bit_equal(copy->weight, module->weight));
  const at::NoGradGuard no_grad;
  copy->weight.add_(1);
  CHECK_FALSE(bit_equal(copy->weight, module->weight));
}

TEST_CASE("a module prints its name and every option", "[module]") {
  std::ostringstream stream;
  stream << *Gain(GainOptions(3).factor(0.5));
  CHECK(stream.str() == "attentive::Gain(width=3, factor=0.5)");
}

TEST_CASE("a module whose parameters find no memory says its name", "[module][errors]") {
  CHECK(test::error_of<c10::OutOfMemoryError>([] { Gain(int64_t{1} << 55); }).starts_with("Gain: "));
}

TEST_CASE("a holder makes, shares and calls its module", "[module]") {
  Gain module(3);
  const Gain same = module;
  CHECK(same.get() == module.get());
  CHECK(same.ptr() == module.ptr());
  const auto x = at::ones({3});
  CHECK(bit_equal(module(x), module->forward(x)));
}

TEST_CASE("an empty holder says by name that it is empty", "[module][errors]") {
  Gain empty(nullptr);
  const Gain& fixed = empty;
  const std::string message =
      "Gain: expected a holder with a module, got an empty one, made from nullptr; assign Gain(...) to it "
      "first";
  CHECK(empty.is_empty());
  CHECK(test::value_error([&] { empty->forward(at::ones({3})); }) == message);
  CHECK(test::value_error([&] { empty(at::ones({3})); }) == message);
  CHECK(test::value_error([&] { (void)*fixed; }) == message);
  CHECK(test::value_error([&] { (void)fixed.get(); }) == message);
  CHECK(test::value_error([&] { (void)fixed.ptr(); }) == message);
  empty = Gain(3);
  CHECK(fixed->weight.numel() == 3);
}
