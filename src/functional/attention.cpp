#include <vector>

#include <attentive/functional/attention.h>

#include "functional/dispatch.h"
#include "functional/problem_builder.h"
#include "functional/recording.h"

namespace attentive {
namespace {

// Restores the leading sizes of the caller's q in a rank-4 result (rank 3 for logsumexp).
at::Tensor restore(const at::Tensor& tensor, const at::DimVector& leading, int64_t trailing) {
  if (!tensor.defined() || leading.size() == 2) return tensor;
  std::vector<int64_t> sizes(leading.begin(), leading.end());  // g++ 12 warns about copies of a SmallVector
  for (int64_t d = tensor.dim() - trailing; d < tensor.dim(); ++d) sizes.push_back(tensor.size(d));
  return tensor.reshape(sizes);
}

}  // namespace

AttentionResult attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const AttentionOptions& options, const AttentionExtras& extras) {
  const auto call = normalize("attention", q, k, v, options, extras);
  const auto result = dispatch("attention", options.backend, call.problem);
  if (recording::wanted()) [[unlikely]]
    recording::attention(extras.caller, call.problem, options);
  return {restore(result.output, call.leading, 2), restore(result.weights, call.leading, 2),
          restore(result.logsumexp, call.leading, 1)};
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionOptions& options, const Mask& mask) {
  AttentionExtras extras;
  extras.mask = mask;
  return attention(q, k, v, options, extras).output;
}

}  // namespace attentive
