#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/notebooks/chapter_3.h>

#include "modules/golden_check.h"
#include "support/compare.h"
#include "support/default_dtype.h"
#include "support/errors.h"
#include "support/module_suite.h"

using namespace attentive;
using namespace attentive::test;

namespace {

GoldenModule notebook_matrix_self_attention() {
  return {.make = [] { return MatrixSelfAttention(3, 2).ptr(); },
          .call = bind_one_input<MatrixSelfAttention>()};
}

}  // namespace

TEST_CASE("MatrixSelfAttention equals PyTorch", "[matrix_self_attention]") {
  check_golden("MatrixSelfAttention", notebook_matrix_self_attention(), at::kCPU);
}

TEST_CASE("MatrixSelfAttention equals PyTorch on CUDA", "[matrix_self_attention][cuda]") {
  check_golden("MatrixSelfAttention", notebook_matrix_self_attention(), cuda_or_skip());
}

TEST_CASE("MatrixSelfAttention is SelfAttentionV1 with other first numbers", "[matrix_self_attention]") {
  at::manual_seed(4);
  MatrixSelfAttention matrix(3, 2);
  at::manual_seed(4);
  SelfAttentionV1 v1(SelfAttentionV1Options(3, 2).init(MatrixInit::Normal));
  CHECK(bit_equal(matrix->W_V, v1->W_value));
  CHECK(bit_equal(matrix->forward(batch()), v1->forward(batch())));
  at::manual_seed(4);
  MatrixSelfAttention uniform(MatrixSelfAttentionOptions(3, 2).init(MatrixInit::Uniform));
  CHECK(uniform->W_Q.min().item<float>() >= 0.0f);
}

TEST_CASE("MatrixSelfAttention is a torch::nn citizen", "[matrix_self_attention]") {
  ModuleSuite<MatrixSelfAttention> suite;
  suite.make = [] { return MatrixSelfAttention(6, 4); };
  suite.input_shape = {2, 5, 6};
  suite.keys = {"W_Q", "W_K", "W_V"};
  suite.own_parameters = [](MatrixSelfAttention& m) {
    return std::vector<at::Tensor*>{&m->W_Q, &m->W_K, &m->W_V};
  };
  suite.has_dropout = false;
  suite.unbatched = true;
  suite.run();
}

TEST_CASE("MatrixSelfAttention names what is wrong", "[matrix_self_attention][errors]") {
  MatrixSelfAttention module(6, 4);
  CHECK(value_error([&] {
          module->forward(at::randn({2, 5, 4}));
        }) == "MatrixSelfAttention: expected x of shape (B, T, 6) or (T, 6), got (2, 5, 4)");
  CHECK(type_error([&] {
          module->forward(at::randn({5, 6}, at::kHalf));
        }) == "MatrixSelfAttention: expected x of dtype Float like the parameters, got Half");
  CHECK(value_error([] { MatrixSelfAttention bad(0, 4); }) ==
        "MatrixSelfAttention: expected d_model > 0, got 0");
  CHECK(value_error([] { MatrixSelfAttention bad(6, 0); }) == "MatrixSelfAttention: expected d_k > 0, got 0");
}

TEST_CASE("MatrixSelfAttention draws what Python draws in another default dtype", "[matrix_self_attention]") {
  const DefaultDtype wide(at::kDouble);
  at::manual_seed(123);
  // torch.set_default_dtype(torch.float64); torch.manual_seed(123); torch.randn(3, 2)
  const auto want = at::tensor({-0.11146711634581082, 0.12036294405744884, -0.36963450886574944,
                                -0.24041797675874255, -1.19692438460773976, 0.20926935685808373},
                               at::kDouble)
                        .view({3, 2});
  CHECK_WITHIN(MatrixSelfAttention(3, 2)->W_Q.detach(), want, {0.0, 1e-14});
}
