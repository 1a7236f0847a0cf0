// Packed sequences without padding: their offsets are checked, and the call becomes one problem.

#include <memory>
#include <utility>
#include <vector>

#include <c10/core/ScalarType.h>

#include "core/check.h"
#include "functional/problem_builder.h"

namespace attentive {
namespace {

constexpr const char* kAttentionVarlen = "attention_varlen";

// Checks the cumulative lengths and returns the ends of the sequences.
std::vector<int64_t> read_ends(const char* name, const at::Tensor& cu_seqlens, int64_t tokens) {
  check_defined(kAttentionVarlen, name, cu_seqlens);
  TORCH_CHECK_TYPE(cu_seqlens.scalar_type() == at::kInt || cu_seqlens.scalar_type() == at::kLong,
                   kAttentionVarlen, ": expected ", name, " of dtype Int or Long, got ",
                   describe(cu_seqlens));
  TORCH_CHECK_VALUE(cu_seqlens.dim() == 1 && cu_seqlens.size(0) >= 1, kAttentionVarlen, ": expected ", name,
                    " of shape (N + 1,), got ", shape_string(cu_seqlens.sizes()));
  TORCH_CHECK_VALUE(cu_seqlens.is_cpu(), kAttentionVarlen, ": expected ", name, " on the CPU, got it on ",
                    cu_seqlens.device());
  const auto values = cu_seqlens.to(at::kLong).contiguous();
  std::vector<int64_t> ends(values.const_data_ptr<int64_t>(),
                            values.const_data_ptr<int64_t>() + values.numel());
  TORCH_CHECK_VALUE(ends.front() == 0, kAttentionVarlen, ": expected ", name, " to start at 0, got ",
                    ends.front());
  for (size_t n = 1; n < ends.size(); ++n) {
    TORCH_CHECK_VALUE(ends[n] >= ends[n - 1], kAttentionVarlen, ": expected ", name,
                      " never to decrease, got ", ends[n - 1], " before ", ends[n]);
  }
  TORCH_CHECK_VALUE(ends.back() == tokens, kAttentionVarlen, ": expected ", name, " to end at ", tokens,
                    " (the packed tokens), got ", ends.back());
  return ends;
}

void check_packed(const char* name, const at::Tensor& x) {
  check_floating(kAttentionVarlen, name, x);
  TORCH_CHECK_VALUE(x.dim() == 3, kAttentionVarlen, ": expected ", name, " of shape (tokens, H, D), got ",
                    shape_string(x.sizes()));
  TORCH_CHECK_VALUE(x.size(1) > 0, kAttentionVarlen, ": expected at least one head, got ", name, " of shape ",
                    shape_string(x.sizes()));
}

}  // namespace

PackedCall packed_call(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const at::Tensor& cu_seqlens_q, const at::Tensor& cu_seqlens_k,
                       const AttentionOptions& options, const AttentionExtras& extras) {
  check_packed("q", q);
  check_packed("k", k);
  check_packed("v", v);
  TORCH_CHECK_VALUE(extras.mask.empty(), kAttentionVarlen,
                    ": expected no mask (its shape has no meaning for packed sequences)");
  TORCH_CHECK_VALUE(!extras.block_mask.classes(), kAttentionVarlen,
                    ": expected a mask function as block_mask, got the tiles of BlockMask::kept, which hold "
                    "for one length (packed sequences have lengths of their own)");
  TORCH_CHECK_VALUE(extras.weights == Weights::None, kAttentionVarlen,
                    ": expected no weights to be requested (packed sequences have no (L, S) matrix)");
  TORCH_CHECK_VALUE(!extras.alibi_slopes.defined() || extras.alibi_slopes.dim() == 1, kAttentionVarlen,
                    ": expected alibi_slopes of shape (H,), got ", describe(extras.alibi_slopes));
  auto ends_q = read_ends("cu_seqlens_q", cu_seqlens_q, q.size(0));
  auto ends_k = read_ends("cu_seqlens_k", cu_seqlens_k, k.size(0));
  TORCH_CHECK_VALUE(ends_q.size() == ends_k.size(), kAttentionVarlen,
                    ": expected as many sequences in cu_seqlens_q and cu_seqlens_k, got ", ends_q.size() - 1,
                    " and ", ends_k.size() - 1);
  // A call without any sequence is computed as one with a single empty sequence, so that its empty results
  // have a graph.
  const bool none = ends_q.size() == 1;
  for (auto* ends : {&ends_q, &ends_k}) {
    if (none) ends->push_back(0);
  }

  const auto heads_first = [](const at::Tensor& x) { return x.transpose(0, 1).unsqueeze(0); };
  PackedCall call{
      normalize(kAttentionVarlen, heads_first(q), heads_first(k), heads_first(v), options, extras).problem,
      none, none ? Backend::Auto : options.backend};
  std::vector<kernels::Sequence> sequences;
  for (size_t n = 0; n + 1 < ends_q.size(); ++n) {
    const int64_t queries = ends_q[n + 1] - ends_q[n], keys = ends_k[n + 1] - ends_k[n];
    sequences.push_back({ends_q[n], queries, ends_k[n], keys, kernels::band_of(options, queries, keys)});
  }
  call.problem.sequences = std::make_shared<const std::vector<kernels::Sequence>>(std::move(sequences));
  return call;
}

}  // namespace attentive
