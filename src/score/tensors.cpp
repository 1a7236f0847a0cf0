#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_not.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/div.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/index.h>
#include <ATen/ops/log.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>

#include <attentive/score/tensors.h>

#include "core/check.h"

namespace attentive::detail {
namespace {

const TensorEvaluation* evaluation_of(const TensorIndex& a, const TensorIndex& b) {
  return a.evaluation ? a.evaluation : b.evaluation;
}

// The divisor of indices, which must not be 0. Places of an evaluation that only lists tensors are not those
// of a call.
at::Tensor divisor(const TensorIndex& b) {
  if (b.evaluation && b.evaluation->listed) return at::where(b.pairs.eq(0), 1, b.pairs);
  TORCH_CHECK_VALUE(b.pairs.is_meta() || !b.pairs.eq(0).any().item<bool>(),
                    "score: an index is divided by 0");
  return b.pairs;
}

at::Tensor magnitude(const at::Tensor& x) {
  return at::maximum(x, -x);  // abs has no meta kernel
}

// at::where, which has no meta kernel.
at::Tensor choose(const at::Tensor& condition, const at::Tensor& yes, const at::Tensor& no) {
  if (!condition.is_meta()) return at::where(condition, yes, no);
  return yes + no + condition.to(c10::promoteTypes(yes.scalar_type(), no.scalar_type()));
}

// Lists a captured tensor, and checks that it has as many dimensions as there are indices. Returns zeros of
// the sizes of a lookup.
at::Tensor list(const std::shared_ptr<const CapturedTensor>& captured, const TensorArguments& arguments) {
  const auto& tensor = captured->tensor;
  TORCH_CHECK_VALUE(static_cast<size_t>(tensor.dim()) == arguments.indices.size(),
                    captured->indices ? "captured_indices" : "captured", ": expected ", tensor.dim(),
                    tensor.dim() == 1 ? " index" : " indices", " for a tensor of shape ",
                    shape_string(tensor.sizes()), ", got ", arguments.indices.size());
  auto& listed = *arguments.evaluation->listed;
  if (std::find(listed.begin(), listed.end(), captured) == listed.end()) listed.push_back(captured);
  at::DimVector sizes{1, 1, 1, 1};
  for (const auto& index : arguments.indices) sizes = at::infer_size_dimvector(sizes, index.pairs.sizes());
  return at::zeros(sizes, at::kLong);
}

// Checks one index of a lookup; out of range it becomes 0, which only a hidden pair may have.
at::Tensor checked(const TensorIndex& index, const at::Tensor& tensor, int64_t dimension,
                   const TensorEvaluation& evaluation) {
  const int64_t size = tensor.size(dimension);
  const auto beyond = index.pairs.lt(0).bitwise_or(index.pairs.ge(size));
  const auto read =
      evaluation.hidden.defined() ? beyond.bitwise_and(evaluation.hidden.bitwise_not()) : beyond;
  if (!read.is_meta() && read.any().item<bool>()) {
    const auto wrong = index.pairs.expand_as(read).masked_select(read)[0].item<int64_t>();
    throw_captured_range(tensor.sizes(), dimension, wrong);
  }
  return index.pairs.expand_as(beyond).masked_fill(beyond, 0);
}

at::Tensor look_up(const at::Tensor& tensor, const TensorArguments& arguments) {
  const auto& evaluation = *arguments.evaluation;
  TORCH_CHECK_VALUE(tensor.device() == evaluation.numbers.device(), "captured: expected a tensor on ",
                    evaluation.numbers.device(), " like q, got it on ", tensor.device());
  if (arguments.indices.empty()) return tensor.reshape({1, 1, 1, 1});
  c10::List<std::optional<at::Tensor>> indices;
  for (size_t d = 0; d < arguments.indices.size(); ++d) {
    const auto index = checked(arguments.indices[d], tensor, static_cast<int64_t>(d), evaluation);
    indices.push_back(index.to(tensor.device()));
  }
  return at::index(tensor, indices);
}

const at::Tensor& current(const CapturedTensor& captured, const TensorEvaluation& evaluation) {
  for (const auto& [owner, tensor] : evaluation.replaced) {
    if (owner == &captured) return tensor;
  }
  return captured.tensor;
}

// Where some numbers are all marked, of bools that broadcast with them to pairs.
at::Tensor narrowed(at::Tensor marks, at::IntArrayRef sizes) {
  while (marks.dim() > static_cast<int64_t>(sizes.size())) marks = marks.all(0);
  for (int64_t d = 1; d <= marks.dim(); ++d) {
    if (sizes[sizes.size() - static_cast<size_t>(d)] == 1 && marks.size(-d) != 1) marks = marks.all(-d, true);
  }
  return marks;
}

}  // namespace

// An operation with a gradient, as a node of the graph of an evaluation.
struct TensorOrigin {
  struct Operand {
    std::shared_ptr<TensorOrigin> origin;
    at::Tensor hidden;  // pairs in which the operation does not take it; undefined: none
  };
  std::vector<Operand> operands;
  at::DimVector sizes;
  // Pairs on whose number the result does not depend, once the evaluation has ended; undefined: none.
  std::shared_ptr<at::Tensor> hidden = std::make_shared<at::Tensor>();
  bool listed = false, reached = false;

  void hide(const at::Tensor& pairs) {
    const auto mine = pairs.defined() ? narrowed(pairs, sizes) : pairs;
    if (!reached) {
      *hidden = mine;
    } else if (hidden->defined()) {
      *hidden = mine.defined() ? hidden->bitwise_and(mine) : mine;
    }
    reached = true;
  }
};

namespace {

// Lists operations so that each follows those of its operands.
void list_operations(const std::shared_ptr<TensorOrigin>& origin, std::vector<TensorOrigin*>& to) {
  if (!origin || origin->listed) return;
  origin->listed = true;
  for (const auto& operand : origin->operands) list_operations(operand.origin, to);
  to.push_back(origin.get());
}

bool has_gradient(const TensorScore& x) {
  return at::GradMode::is_enabled() && x.pairs.requires_grad();
}

// An operand whose derivative depends on numbers. What the operation makes of a gradient of 0 and an infinite
// derivative reaches no pair that is hidden from the result.
at::Tensor shielded(const TensorScore& x, const TensorOrigin& by) {
  if (!has_gradient(x)) return x.pairs;
  const auto operand = x.pairs.expand(by.sizes);
  operand.register_hook([hidden = by.hidden](const at::Tensor& gradient) {
    return gradient.defined() && hidden->defined() ? gradient.masked_fill(*hidden, 0.0) : gradient;
  });
  return operand;
}

// A function of numbers per pair. `kShield`: whether a derivative may be no finite number.
template <bool kShield, class Function, class... Scores>
TensorScore apply(const Function& function, const Scores&... operands) {
  if (!(has_gradient(operands) || ...)) return TensorScore(function(operands.pairs...));
  auto origin = std::make_shared<TensorOrigin>();
  for (const TensorScore* operand : {&operands...}) {
    origin->sizes = at::infer_size_dimvector(origin->sizes, operand->pairs.sizes());
    origin->operands.push_back({operand->origin, {}});
  }
  auto result = kShield ? function(shielded(operands, *origin)...) : function(operands.pairs...);
  return TensorScore(std::move(result), std::move(origin));
}

}  // namespace

at::Tensor numbers_of(const TensorScore& result, const at::Tensor& hidden) {
  std::vector<TensorOrigin*> operations;
  list_operations(result.origin, operations);
  if (result.origin) result.origin->hide(hidden);
  std::for_each(operations.rbegin(), operations.rend(), [](TensorOrigin* operation) {
    const auto& from = *operation->hidden;
    for (const auto& [origin, also] : operation->operands) {
      if (origin) origin->hide(!from.defined() ? also : also.defined() ? from.bitwise_or(also) : from);
    }
  });
  return result.pairs;
}

void throw_captured_range(at::IntArrayRef sizes, int64_t dimension, int64_t index) {
  TORCH_CHECK_INDEX(false, "captured: expected index ", dimension, " of a tensor of shape ",
                    shape_string(sizes), " in [0, ", sizes[static_cast<size_t>(dimension)], "), got ", index);
}

TensorIndex::TensorIndex(int64_t number, int) : pairs(at::scalar_tensor(number, at::kLong)) {}

TensorScore::TensorScore(double number) : pairs(at::scalar_tensor(number, at::kDouble)) {}
TensorScore::TensorScore(const TensorIndex& indices)
    : pairs(indices.pairs.to(indices.evaluation ? indices.evaluation->numbers.dtype().toScalarType()
                                                : at::kDouble)) {}

TensorMask operator&(const TensorMask& a, const TensorMask& b) {
  return {at::bitwise_and(a.pairs, b.pairs)};
}
TensorMask operator|(const TensorMask& a, const TensorMask& b) {
  return {at::bitwise_or(a.pairs, b.pairs)};
}
TensorMask operator^(const TensorMask& a, const TensorMask& b) {
  return {at::bitwise_xor(a.pairs, b.pairs)};
}
TensorMask operator!(const TensorMask& a) {
  return {at::bitwise_not(a.pairs)};
}
TensorMask mask_of(bool result) {
  return {at::scalar_tensor(result, at::kBool)};
}

TensorIndex operator+(const TensorIndex& a, const TensorIndex& b) {
  return {a.pairs + b.pairs, evaluation_of(a, b)};
}
TensorIndex operator-(const TensorIndex& a, const TensorIndex& b) {
  return {a.pairs - b.pairs, evaluation_of(a, b)};
}
TensorIndex operator*(const TensorIndex& a, const TensorIndex& b) {
  return {a.pairs * b.pairs, evaluation_of(a, b)};
}
TensorIndex operator/(const TensorIndex& a, const TensorIndex& b) {
  return {at::div(a.pairs, divisor(b), "floor"), evaluation_of(a, b)};
}
TensorIndex operator%(const TensorIndex& a, const TensorIndex& b) {
  return {at::remainder(a.pairs, divisor(b)), evaluation_of(a, b)};
}
TensorIndex operator-(const TensorIndex& a) {
  return {-a.pairs, a.evaluation};
}
TensorIndex operator+(const TensorIndex& a) {
  return a;
}
#define ATTENTIVE_COMPARE(OP)                                          \
  TensorMask operator OP(const TensorIndex& a, const TensorIndex& b) { \
    return {a.pairs OP b.pairs};                                       \
  }                                                                    \
  TensorMask operator OP(const TensorScore& a, const TensorScore& b) { \
    return {a.pairs OP b.pairs};                                       \
  }
ATTENTIVE_COMPARISONS(ATTENTIVE_COMPARE)
#undef ATTENTIVE_COMPARE
TensorIndex abs(const TensorIndex& a) {
  return {magnitude(a.pairs), a.evaluation};
}
TensorIndex min(const TensorIndex& a, const TensorIndex& b) {
  return {at::minimum(a.pairs, b.pairs), evaluation_of(a, b)};
}
TensorIndex max(const TensorIndex& a, const TensorIndex& b) {
  return {at::maximum(a.pairs, b.pairs), evaluation_of(a, b)};
}
TensorIndex floor(const TensorIndex& a) {
  return a;
}
TensorIndex where(const TensorMask& condition, const TensorIndex& yes, const TensorIndex& no) {
  return {choose(condition.pairs, yes.pairs, no.pairs), evaluation_of(yes, no)};
}

#define ATTENTIVE_TENSOR_OPERATOR(OP, shield)                                                    \
  TensorScore operator OP(const TensorScore& a, const TensorScore& b) {                          \
    return apply<shield>([](const at::Tensor& x, const at::Tensor& y) { return x OP y; }, a, b); \
  }
ATTENTIVE_TENSOR_OPERATOR(+, false)
ATTENTIVE_TENSOR_OPERATOR(-, false)
ATTENTIVE_TENSOR_OPERATOR(*, true)
ATTENTIVE_TENSOR_OPERATOR(/, true)
#undef ATTENTIVE_TENSOR_OPERATOR
TensorScore operator-(const TensorScore& a) {
  return apply<false>([](const at::Tensor& x) { return -x; }, a);
}
TensorScore operator+(const TensorScore& a) {
  return a;
}
#define ATTENTIVE_TENSOR_FUNCTION(function)                                     \
  TensorScore function(const TensorScore& a) {                                  \
    return apply<true>([](const at::Tensor& x) { return at::function(x); }, a); \
  }
ATTENTIVE_SCORE_FUNCTIONS(ATTENTIVE_TENSOR_FUNCTION)
#undef ATTENTIVE_TENSOR_FUNCTION
TensorScore abs(const TensorScore& a) {
  return apply<false>(magnitude, a);
}
TensorScore floor(const TensorScore& a) {
  return apply<false>([](const at::Tensor& x) { return at::floor(x); }, a);
}
TensorScore pow(const TensorScore& a, const TensorScore& b) {
  return apply<true>([](const at::Tensor& x, const at::Tensor& y) { return at::pow(x, y); }, a, b);
}
TensorScore min(const TensorScore& a, const TensorScore& b) {
  return apply<false>([](const at::Tensor& x, const at::Tensor& y) { return at::minimum(x, y); }, a, b);
}
TensorScore max(const TensorScore& a, const TensorScore& b) {
  return apply<false>([](const at::Tensor& x, const at::Tensor& y) { return at::maximum(x, y); }, a, b);
}
TensorScore where(const TensorMask& condition, const TensorScore& yes, const TensorScore& no) {
  auto result = choose(condition.pairs, yes.pairs, no.pairs);
  if (!has_gradient(yes) && !has_gradient(no)) return TensorScore(std::move(result));
  auto origin = std::make_shared<TensorOrigin>();
  origin->sizes = result.sizes();
  origin->operands = {{yes.origin, condition.pairs.bitwise_not()}, {no.origin, condition.pairs}};
  return TensorScore(std::move(result), std::move(origin));
}

TensorScore look_up_numbers(const std::shared_ptr<const CapturedTensor>& captured,
                            const TensorArguments& arguments) {
  const auto& evaluation = *arguments.evaluation;
  if (evaluation.listed) {
    return TensorScore(list(captured, arguments).to(evaluation.numbers.dtype().toScalarType()));
  }
  return TensorScore(
      look_up(current(*captured, evaluation), arguments).to(evaluation.numbers.dtype().toScalarType()));
}

TensorIndex look_up_indices(const std::shared_ptr<const CapturedTensor>& captured,
                            const TensorArguments& arguments) {
  if (arguments.evaluation->listed) {
    return {list(captured, arguments), arguments.evaluation};
  }
  return {look_up(current(*captured, *arguments.evaluation), arguments).to(at::kLong), arguments.evaluation};
}

}  // namespace attentive::detail
