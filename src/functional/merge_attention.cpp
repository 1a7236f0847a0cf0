#include <limits>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <attentive/functional/merge_attention.h>

#include "core/check.h"

namespace attentive {
namespace {

constexpr const char* kMergeAttention = "merge_attention";

// Sizes are read as symbols, since a compiler traces this function with sizes that it does not know.
void check_parts(const std::vector<AttentionResult>& parts) {
  TORCH_CHECK_VALUE(!parts.empty(), kMergeAttention, ": expected one part or more, got none");
  const auto& first = parts[0].output;
  for (size_t n = 0; n < parts.size(); ++n) {
    const auto &output = parts[n].output, &logsumexp = parts[n].logsumexp;
    check_floating(kMergeAttention, "output", output);
    check_floating(kMergeAttention, "logsumexp", logsumexp);
    TORCH_CHECK_TYPE(output.scalar_type() == first.scalar_type(), kMergeAttention,
                     ": expected outputs of one dtype, got ", first.scalar_type(), " and, in part ", n, ", ",
                     output.scalar_type());
    const auto sizes = output.sym_sizes();
    TORCH_CHECK_VALUE(sizes.size() >= 2 && sizes == first.sym_sizes(), kMergeAttention,
                      ": expected outputs of one shape (..., Tq, Dv), got ", first.sym_sizes(),
                      " and, in part ", n, ", ", sizes);
    TORCH_CHECK_VALUE(logsumexp.sym_sizes() == sizes.slice(0, sizes.size() - 1), kMergeAttention,
                      ": expected a logsumexp (..., Tq) for an output of shape ", sizes,
                      ", got one of shape ", logsumexp.sym_sizes());
    TORCH_CHECK_VALUE(output.device() == first.device() && logsumexp.device() == first.device(),
                      kMergeAttention, ": expected all parts on ", first.device(), ", got an output on ",
                      output.device(), " and a logsumexp on ", logsumexp.device());
  }
}

}  // namespace

AttentionResult merge_attention(const std::vector<AttentionResult>& parts) {
  check_parts(parts);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto type = parts[0].output.scalar_type(), sums = c10::promoteTypes(type, at::kFloat);
  auto wide = at::kFloat;
  for (const auto& part : parts) wide = c10::promoteTypes(wide, part.logsumexp.scalar_type());
  std::vector<at::Tensor> given;
  given.reserve(parts.size());
  for (const auto& part : parts) given.push_back(part.logsumexp.to(wide));
  const auto logsumexps = at::stack(given);  // (parts, ..., Tq)

  // The difference of infinities is replaced before anything is computed from it, so that no gradient is NaN.
  const auto top = logsumexps.detach().amax(0);
  const auto empty = top.eq(-kInfinity);
  const auto differences = logsumexps - top.masked_fill(empty, 0.0);
  const auto hidden = differences.eq(-kInfinity);
  const auto sizes = differences.masked_fill(hidden.bitwise_or(logsumexps.eq(kInfinity)), 0.0)
                         .exp()
                         .masked_fill(hidden, 0.0);
  const auto total = sizes.sum(0).masked_fill(empty, 1.0);
  const auto shares = (sizes / total).to(sums).unsqueeze(-1);
  at::Tensor output;
  for (size_t n = 0; n < parts.size(); ++n) {
    const auto i = static_cast<int64_t>(n);
    const auto part = parts[n].output.to(sums).masked_fill(hidden[i].unsqueeze(-1), 0.0) * shares[i];
    output = output.defined() ? output + part : part;
  }
  return {output.to(type), {}, total.log() + top};
}

}  // namespace attentive
