#include "kernels/terms.h"

#include <array>

#include <ATen/ops/bitwise_and.h>

namespace attentive::kernels {
namespace {

// `read` is what the kernel reads of the caller's tensor: made for it, or that tensor's own memory.
at::Tensor apart(const at::Tensor& read, const at::Tensor& given, bool for_backward) {
  return for_backward && read.is_alias_of(given) ? read.clone() : read;
}

at::Tensor watchable(const at::Tensor& read, bool for_backward) {
  return for_backward && read.is_inference() ? read.clone() : read;
}

at::Tensor keep_of(const Problem& p, bool for_backward) {
  if (!p.key_keep.defined()) return p.keep.defined() ? watchable(p.keep, for_backward) : p.keep;
  const auto keys = p.key_keep.view({p.batch(), 1, 1, p.keys()});
  return p.keep.defined() ? at::bitwise_and(p.keep, keys) : apart(keys, p.key_keep, for_backward);
}

}  // namespace

Terms terms_of(const Problem& p, bool for_backward) {
  const std::array<int64_t, 4> pairs = {p.batch(), p.heads(), p.queries(), p.keys()};
  Terms terms;
  if (const auto keep = keep_of(p, for_backward); keep.defined()) terms.keep = keep.expand(pairs);
  if (p.bias.defined()) terms.bias = watchable(p.bias.detach().to(at::kFloat), for_backward).expand(pairs);
  if (p.alibi_slopes.defined()) {
    const auto slopes = p.alibi_slopes.detach().to(at::kFloat);
    terms.slopes = apart(slopes, p.alibi_slopes, for_backward).expand({p.batch(), p.heads()});
  }
  if (p.key_lengths.defined()) terms.lengths = apart(p.key_lengths.contiguous(), p.key_lengths, for_backward);
  if (p.sinks.defined())
    terms.sinks = apart(p.sinks.detach().to(at::kFloat).contiguous(), p.sinks, for_backward);
  return terms;
}

}  // namespace attentive::kernels
