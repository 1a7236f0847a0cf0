#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/notebooks/chapter_3.h>

#include "support/compare.h"

using namespace attentive;

TEST_CASE("a matrix is drawn with the very draws of Python's function", "[matrix_init]") {
  const auto seeded = [](auto draw) {
    at::manual_seed(123);
    return draw();
  };
  const auto drawn = [&](MatrixInit init) { return seeded([=] { return draw_matrix(3, 2, init); }); };
  CHECK(bit_equal(drawn(MatrixInit::Uniform), seeded([] { return at::rand({3, 2}); })));
  CHECK(bit_equal(drawn(MatrixInit::Normal), seeded([] { return at::randn({3, 2}); })));
  const double bound = 1 / std::sqrt(3.0);
  CHECK(bit_equal(drawn(MatrixInit::KaimingUniform), seeded([=] {
                    return at::empty({3, 2}).uniform_(-bound, bound);
                  })));
}

TEST_CASE("the bound of KaimingUniform is that of d_in inputs", "[matrix_init]") {
  at::manual_seed(1);
  const auto matrix = draw_matrix(64, 500, MatrixInit::KaimingUniform);
  CHECK(matrix.sizes() == at::IntArrayRef({64, 500}));
  CHECK(matrix.abs().max().item<float>() <= 0.125f);
  CHECK(matrix.abs().max().item<float>() > 0.12f);
}

TEST_CASE("a matrix is drawn on the CPU without a gradient", "[matrix_init]") {
  const auto matrix = draw_matrix(3, 2, MatrixInit::Normal);
  CHECK(matrix.is_cpu());
  CHECK_FALSE(matrix.requires_grad());
  CHECK(matrix.scalar_type() == at::kFloat);
}

TEST_CASE("every initial value has a name", "[matrix_init]") {
  CHECK(to_string(MatrixInit::Uniform) == "uniform");
  CHECK(to_string(MatrixInit::Normal) == "normal");
  CHECK(to_string(MatrixInit::KaimingUniform) == "kaiming_uniform");
}
