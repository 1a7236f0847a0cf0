#include "operators/shapes.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>

#include "operators/compute.h"
#include "operators/layouts.h"

namespace attentive::operators {
namespace {

using at::Tensor;

Tensor shape_of_key(const CallArguments& call, const at::TensorOptions& options) {
  if (call.options.dropout_p <= 0.0) return nothing(options.dtype(at::kLong));
  const bool aten = call.options.dropout_stream == DropoutStream::Aten;
  return at::empty(dropout_key_sizes(call.options), options.dtype(aten ? at::kByte : at::kLong));
}

}  // namespace

Results shapes_of_results(Kind kind, const CallArguments& call) {
  const auto& q = call.q;
  TORCH_CHECK_VALUE(q.dim() >= 2 && call.k.dim() == q.dim() && call.v.dim() == q.dim(),
                    "attention: expected q, k and v of one rank of at least 2, got ", q.dim(), ", ",
                    call.k.dim(), " and ", call.v.dim());
  const auto wide = q.options().dtype(wide_type(q)), floats = q.options().dtype(at::kFloat);
  Results results;
  results.dropout_key = shape_of_key(call, q.options());
  if (kind == Kind::Packed) {
    const auto tokens = q.sym_size(0), heads = q.sym_size(1);
    results.output = at::empty_symint({tokens, heads, call.v.sym_size(-1)}, q.options());
    results.logsumexp = call.logsumexp ? at::empty_symint({heads, tokens}, wide) : nothing(wide);
    results.statistics = call.for_backward ? at::empty_symint({2, heads, tokens}, floats) : nothing(floats);
    return results;
  }
  results.output = output_like(q, call.v);
  c10::SymDimVector rows(q.sym_sizes());
  rows.pop_back();
  auto pairs = rows;
  pairs.push_back(call.k.sym_size(-2));
  results.weights =
      call.weights == Weights::None ? nothing(q.options()) : at::empty_symint(pairs, q.options());
  results.logsumexp = call.logsumexp ? at::empty_symint(rows, wide) : nothing(wide);
  results.statistics = nothing(floats);
  if (call.for_backward) {
    // Dimensions before the heads are one batch, and there is one head where q has no dimension for it.
    c10::SymInt batch = 1;
    const auto rank = q.dim();
    for (int64_t d = 0; d < (rank >= 4 ? rank - 3 : rank - 2); ++d) batch = batch * q.sym_size(d);
    results.statistics =
        at::empty_symint({2, batch, rank >= 4 ? q.sym_size(-3) : c10::SymInt(1), q.sym_size(-2)}, floats);
  }
  return results;
}

Gradients shapes_of_gradients(const BackwardArguments& arguments) {
  const auto& call = arguments.call;
  const auto of_term = [&](bool wanted, const Tensor& term) {
    return wanted ? at::empty_like(term) : nothing(call.q.options());
  };
  return {at::empty_like(call.q),
          at::empty_like(call.k),
          at::empty_like(call.v),
          of_term(arguments.want_bias, call.bias),
          of_term(arguments.want_alibi_slopes, call.alibi_slopes),
          of_term(arguments.want_sinks, call.sinks)};
}

}  // namespace attentive::operators
