#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <attentive/functional/recorded_attention.h>

#include "core/check.h"
#include "core/kept_tensors.h"
#include "kernels/band.h"
#include "kernels/grouped_products.h"
#include "kernels/problem.h"
#include "kernels/reference/backend.h"
#include "kernels/reference/visibility.h"

namespace attentive {
namespace {

constexpr const char* kRecordedAttention = "RecordedAttention";

namespace reference = kernels::reference;
using kernels::Problem;

// Makes results normal tensors of full precision, whatever mode the caller is in.
class Computing {
  KeptTensors kept_;
  c10::impl::ExcludeDispatchKeyGuard no_autocast_{c10::autocast_dispatch_keyset};
};

// The recorded call as a problem in the dtype of its results. Its values are empty, since the weights do not
// depend on them.
Problem problem_of_record(const RecordedAttention& call) {
  check_defined(kRecordedAttention, "q", call.q);
  check_defined(kRecordedAttention, "k", call.k);
  const auto type = call.q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  Problem problem;
  problem.q = call.q.to(type);
  problem.k = call.k.to(type);
  problem.v = at::empty({problem.batch(), problem.kv_heads(), problem.keys(), 0}, problem.k.options());
  problem.keep = call.keep;
  problem.bias = call.bias;
  problem.key_keep = call.key_keep;
  problem.key_lengths = call.key_lengths;
  problem.alibi_slopes = call.alibi_slopes;
  problem.sinks = call.sinks;
  problem.scale = call.options.scale;
  problem.band = kernels::band_of(call.options, problem.queries(), problem.keys());
  problem.softcap = call.options.softcap;
  problem.score = call.score;
  problem.mask = call.mask_mod;
  problem.normalise = call.normalise == Normalise::Softmax;
  problem.captured = call.captured;
  problem.batch_offset = call.sequence.value_or(0);
  problem.head_offset = call.first_head;
  return problem;
}

// The call of one query head alone, with the key head of its group.
RecordedAttention only(const RecordedAttention& call, int64_t head) {
  check_defined(kRecordedAttention, "q", call.q);
  TORCH_CHECK_VALUE(head >= 0 && head < call.heads(), kRecordedAttention, ": expected a head in [0, ",
                    call.heads(), "), got ", head);
  const auto of_head = [&](const at::Tensor& x, int64_t dim) {
    return x.defined() && x.size(dim) > 1 ? x.narrow(dim, head, 1) : x;
  };
  auto one = call;
  one.q = call.q.narrow(1, head, 1);
  one.k = call.k.narrow(1, head / (call.heads() / call.k.size(1)), 1);
  one.keep = of_head(call.keep, 1);
  one.bias = of_head(call.bias, 1);
  one.alibi_slopes = of_head(call.alibi_slopes, 1);
  one.sinks = of_head(call.sinks, 0);
  one.first_head = call.first_head + head;
  return one;
}

// The visible pairs: bool, broadcasts to (B, H, L, S); undefined if every pair is visible.
at::Tensor visible_pairs(const Problem& problem) {
  return reference::visible_pairs(problem, {0, problem.queries(), 0, problem.keys()});
}

at::Tensor products(const Problem& problem) {
  const auto stacked = kernels::stack_groups(problem.q, problem.kv_heads());
  const auto all = kernels::unstack_groups(at::matmul(stacked, problem.k.transpose(2, 3)), problem.heads());
  const auto visible = visible_pairs(problem);
  return visible.defined() ? all.masked_fill(visible.bitwise_not(), 0.0) : all;
}

at::Tensor shares(const Problem& problem, double eps) {
  const auto shares_of_sum = products(problem);
  const auto sums = shares_of_sum.sum(3, /*keepdim=*/true) + eps;
  const auto empty = sums.eq(0);
  return (shares_of_sum / sums.masked_fill(empty, 1.0)).masked_fill(empty, 0.0);
}

}  // namespace

int64_t RecordedAttention::heads() const {
  return q.size(1);
}

double RecordedAttention::scale() const {
  if (linear) return 1.0;
  return options.scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(3))));
}

at::Tensor RecordedAttention::weights() const {
  const Computing guard;
  auto problem = problem_of_record(*this);
  if (linear) return shares(problem, eps);
  problem.weights = Weights::Clean;
  return reference::run(problem).weights;
}

at::Tensor RecordedAttention::scores() const {
  const Computing guard;
  const auto problem = problem_of_record(*this);
  return linear ? products(problem) : reference::scores(problem);
}

at::Tensor RecordedAttention::visible() const {
  const Computing guard;
  const auto problem = problem_of_record(*this);
  auto pairs = visible_pairs(problem);
  if (!pairs.defined()) pairs = at::ones({1, 1, 1, 1}, problem.q.options().dtype(at::kBool));
  return pairs.expand({problem.batch(), problem.heads(), problem.queries(), problem.keys()});
}

at::Tensor RecordedAttention::logsumexp() const {
  TORCH_CHECK_VALUE(!linear, kRecordedAttention, ": expected a softmax for logsumexp, got ", path,
                    ", which is linear attention: its weights are shares of a sum of products");
  TORCH_CHECK_VALUE(normalise == Normalise::Softmax, kRecordedAttention,
                    ": expected a softmax for logsumexp, got ", path, " with Normalise::None");
  const Computing guard;
  auto problem = problem_of_record(*this);
  problem.logsumexp = true;
  return reference::run(problem).logsumexp;
}

at::Tensor RecordedAttention::weights(int64_t head) const {
  return only(*this, head).weights().select(1, 0);
}

at::Tensor RecordedAttention::scores(int64_t head) const {
  return only(*this, head).scores().select(1, 0);
}

at::Tensor RecordedAttention::visible(int64_t head) const {
  return only(*this, head).visible().select(1, 0);
}

at::Tensor RecordedAttention::logsumexp(int64_t head) const {
  return only(*this, head).logsumexp().select(1, 0);
}

}  // namespace attentive
