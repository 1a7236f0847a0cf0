#pragma once

// Calls of at::scaled_dot_product_attention with their gradients, for the tests of attentive::accelerate.

#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <attentive/accelerate.h>

namespace attentive::test {

/// One call. Tensors hold the numbers of the test; `run` makes leaves of them.
struct SdpaCase {
  std::string name;
  at::Tensor q, k, v;
  at::Tensor mask = {};  ///< undefined: none
  double dropout_p = 0.0;
  bool causal = false;
  std::optional<double> scale = {};
  bool grouped = false;
  bool mask_gradient = false;
};

struct SdpaShape {
  int64_t batch = 2, heads = 4, kv_heads = 4, queries = 33, keys = 33, dim = 16;
  int64_t value_dim = 16;
  bool by_token = false;  ///< whether tensors lie in memory as (B, T, H, D)
};

/// A call of random numbers without a mask.
SdpaCase random_call(const std::string& name, const SdpaShape& shape = {}, at::ScalarType type = at::kFloat);

/// bool (queries, keys) with some pairs hidden; with `empty_row`, query 4 sees no key.
at::Tensor some_pairs(int64_t queries, int64_t keys, bool empty_row = false);

/// About thirty kinds of call that the kernel computes.
std::vector<SdpaCase> sdpa_cases();

/// The call with floating tensors of another dtype.
SdpaCase cast(const SdpaCase& call, at::ScalarType type);

/// The output; then the gradients of q, k, v and the mask for a fixed incoming gradient. Draws dropout after
/// at::manual_seed(3). An error is its message without a backtrace.
struct SdpaResults {
  std::vector<at::Tensor> tensors;
  std::string error;
};
SdpaResults run(const SdpaCase& call, bool with_gradients = true);

/// The operator itself, without leaves.
at::Tensor sdpa(const SdpaCase& call);

/// |got - want| / |want| over all numbers, or |got - want| where that is 0; infinite if the shapes differ or a
/// NaN stands in one of them.
double distance(const at::Tensor& got, const at::Tensor& want);

/// The limit of `distance` from float64 for a dtype.
double limit_of(at::ScalarType type);

bool same_bits(const SdpaResults& a, const SdpaResults& b);

/// The reason of the one call that was left since the report was reset; the whole report if there is another
/// one.
std::string only_reason();

/// Runs a call with and without acceleration, checks that bits or errors are equal, and returns the reason
/// for which it was left to PyTorch.
std::string left_alone(const SdpaCase& call);

}  // namespace attentive::test
