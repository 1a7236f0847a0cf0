#include <limits>
#include <optional>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <attentive/distributed/context_attention.h>
#include <attentive/functional/merge_attention.h>

#include "core/check.h"
#include "distributed/connection.h"
#include "distributed/context_parts.h"
#include "distributed/same_call.h"
#include "functional/attention_part.h"

namespace attentive {
namespace {

using distributed::Connection;
using distributed::kContextAttention;

// The state of one call; the tensors are this process's parts in the dtype of the call.
struct ContextCall {
  std::shared_ptr<Connection> connection;
  WholeAttention whole;
  at::Tensor q, k, v;
  int tag = 0;  // identifies its messages

  int64_t rank() const { return connection->environment().rank; }
  int64_t size() const { return connection->environment().size; }
  distributed::Messages messages() const { return {connection, tag}; }
  // The dtype of sums: float64 for float64, float32 for every other dtype.
  at::ScalarType sum_dtype() const { return whole.dtype() == at::kDouble ? at::kDouble : at::kFloat; }
  bool needs_gradient() const {
    return at::GradMode::is_enabled() && (q.requires_grad() || k.requires_grad() || v.requires_grad());
  }
  // Summarizes which gradients are needed: that decides which messages the backward pass sends.
  std::string gradients() const {
    if (!at::GradMode::is_enabled()) return "none";
    return fmt::format("q {}, k {}, v {}, sinks {}, bias {}, slopes {}", q.requires_grad(), k.requires_grad(),
                       v.requires_grad(), whole.sinks().defined() && whole.sinks().requires_grad(),
                       whole.bias_needs_gradient(), whole.slopes_need_gradient());
  }
};

int64_t checked_dim(const char* caller, const at::Tensor& x, int64_t dim) {
  TORCH_CHECK_VALUE(x.defined(), caller, ": expected a tensor, got an undefined one");
  TORCH_CHECK_VALUE(dim >= -x.dim() && dim < x.dim(), caller, ": expected a dimension of a tensor of rank ",
                    x.dim(), ", got ", dim);
  return dim < 0 ? dim + x.dim() : dim;
}

void check_cut(const char* caller, int64_t length, int64_t parts, const char* what) {
  TORCH_CHECK_VALUE(length % parts == 0, caller, ": expected ", what, " to be a multiple of ", parts,
                    ", got ", length);
}

void check_method(const ContextCall& call, const AttentionExtras& extras, ContextMethod method) {
  check_cut(kContextAttention, call.q.size(2), 2, "the tokens of a process");
  const auto& device = call.connection->device();
  TORCH_CHECK_VALUE(call.connection->takes(call.q.device()), kContextAttention,
                    ": expected tensors on the CPU", device.is_cpu() ? "" : " or on " + device.str(),
                    ", got them on ", call.q.device());
  TORCH_CHECK_VALUE(extras.weights == Weights::None, kContextAttention,
                    ": expected no request for weights: no process has all of them");
  TORCH_CHECK_VALUE(!call.whole.has_aten_dropout(), kContextAttention,
                    ": expected DropoutStream::Counter: ATen's draws depend on where they are made");
  if (method == ContextMethod::Heads) {
    for (const auto& [name, x] : {std::pair{"q", call.q}, std::pair{"k", call.k}}) {
      TORCH_CHECK_VALUE(x.size(1) % call.size() == 0, kContextAttention, ": expected the heads of ", name,
                        " to be a multiple of the ", call.size(),
                        " processes with ContextMethod::Heads, got ", x.size(1),
                        "; Gather and Ring take any number");
    }
  }
  if (method == ContextMethod::Ring) {
    TORCH_CHECK_VALUE(!call.whole.has_dropout(), kContextAttention,
                      ": expected dropout_p = 0 with ContextMethod::Ring; Gather and Heads take it");
    TORCH_CHECK_VALUE(
        !call.whole.bias_needs_gradient(), kContextAttention,
        ": expected a bias without a gradient with ContextMethod::Ring; Gather and Heads take it");
    TORCH_CHECK_VALUE(
        !call.whole.slopes_need_gradient(), kContextAttention,
        ": expected alibi_slopes without a gradient with ContextMethod::Ring; Gather and Heads take them");
  }
}

// Describes what must be the same in all processes.
std::string text_of(const ContextCall& call, const AttentionExtras& extras, ContextMethod method) {
  return fmt::format("method: {}\ndevice: {}\n{}logsumexp: {}\ngradients: {}\n", to_string(method),
                     c10::DeviceTypeName(call.q.device().type(), /*lower_case=*/true), call.whole.text(),
                     extras.logsumexp, call.gradients());
}

// Every process draws a key, so that the generators stay in step, and then all use rank 0's key.
void agree_on_dropout(ContextCall& call) {
  if (!call.whole.has_dropout()) return;
  auto key = at::tensor({static_cast<int64_t>(call.whole.draw_dropout_key())}, at::kLong);
  call.connection->broadcast(kContextAttention, key, 0);
  call.whole.set_dropout_key(static_cast<uint64_t>(key.item<int64_t>()));
}

at::Tensor flat(std::initializer_list<at::Tensor> tensors) {
  std::vector<at::Tensor> pieces;
  for (const auto& tensor : tensors) pieces.push_back(tensor.reshape({-1}));
  return at::cat(pieces);
}

// Extracts one tensor from the rows of all ranks and reassembles its whole sequence. `sizes` are those of one
// part, (B, heads, tokens, features); in each row its elements begin at column `begin`.
at::Tensor sequence_in(const at::Tensor& rows, int64_t begin, at::IntArrayRef sizes) {
  std::vector<at::Tensor> parts;
  for (int64_t rank = 0; rank < rows.size(0); ++rank)
    parts.push_back(rows[rank].narrow(0, begin, c10::multiply_integers(sizes)).view(sizes));
  return distributed::in_order(parts, 2);
}

AttentionResult by_gather(const ContextCall& call) {
  const bool wide = call.needs_gradient() && call.sum_dtype() != call.whole.dtype();
  const auto rows = distributed::gather_rows(call.messages(), flat({call.k, call.v}),
                                             wide ? call.sum_dtype() : call.whole.dtype());
  const auto k = sequence_in(rows, 0, call.k.sizes()), v = sequence_in(rows, call.k.numel(), call.v.sizes());
  std::vector<at::Tensor> outputs, logsumexps;
  const auto chunks = distributed::chunks_of(call.rank(), call.size());
  for (int64_t half = 0; half < 2; ++half) {
    const auto q = distributed::half_of(call.q, half, 2);
    const PartPlace place{.query = chunks[half] * q.size(2)};
    const auto part =
        wide ? call.whole.part_with_wide_gradients(q, k, v, place) : call.whole.part(q, k, v, place);
    outputs.push_back(part.output);
    logsumexps.push_back(part.logsumexp);
  }
  return {at::cat(outputs, 2), {}, at::cat(logsumexps, 2)};
}

// Exchanges token parts for heads: (W, n) rows that hold some heads of each process's q, k and v -> rows that
// hold those heads for the whole sequence, and back.
at::Tensor heads_by_process(const at::Tensor& x, int64_t size) {
  const int64_t heads = x.size(1) / size;
  return x.unflatten(1, {size, heads}).transpose(0, 1).reshape({size, -1});
}

at::Tensor from_heads(const ContextCall& call, const at::Tensor& whole) {
  std::vector<at::Tensor> parts;
  for (int64_t rank = 0; rank < call.size(); ++rank)
    parts.push_back(distributed::part_of(whole, rank, call.size(), 2).reshape({-1}));
  const auto rows = distributed::exchange_rows(call.messages(), at::stack(parts));
  const int64_t tokens = whole.size(2) / call.size();
  return rows.view({call.size(), whole.size(0), whole.size(1), tokens, whole.size(3)})
      .transpose(0, 1)
      .flatten(1, 2);
}

AttentionResult by_heads(const ContextCall& call, bool with_logsumexp) {
  const int64_t size = call.size();
  const auto rows = distributed::exchange_rows(
      call.messages(), at::cat({heads_by_process(call.q, size), heads_by_process(call.k, size),
                                heads_by_process(call.v, size)},
                               1));
  int64_t begin = 0;
  const auto next = [&](const at::Tensor& x) {
    auto sizes = x.sizes().vec();
    sizes[1] /= size;
    const auto whole = sequence_in(rows, begin, sizes);
    begin += x.numel() / size;
    return whole;
  };
  const auto q = next(call.q), k = next(call.k), v = next(call.v);
  const auto result = call.whole.part(q, k, v, {.head = call.rank() * q.size(1)});
  AttentionResult here{from_heads(call, result.output), {}, {}};
  if (with_logsumexp) here.logsumexp = from_heads(call, result.logsumexp.unsqueeze(3)).squeeze(3);
  return here;
}

AttentionResult by_ring(const ContextCall& call) {
  const auto dtype = call.sum_dtype();
  auto result = distributed::ring_attention(call.messages(), call.whole, call.q.to(dtype), call.k.to(dtype),
                                            call.v.to(dtype));
  if (call.whole.sinks().defined()) {
    // A sink acts as one more logit, whose value is 0, in the rows that see a key.
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const auto logits = call.whole.sinks()
                            .to(dtype)
                            .view({1, -1, 1})
                            .expand_as(result.logsumexp)
                            .masked_fill(result.logsumexp.eq(-kInfinity), -kInfinity);
    const auto value = at::zeros({1}, result.output.options()).expand_as(result.output);
    result = merge_attention({result, {value, {}, logits}});
  }
  result.output = result.output.to(call.whole.dtype());
  return result;
}

}  // namespace

std::string_view to_string(ContextMethod value) {
  return enum_name(value, {"gather", "heads", "ring"});
}

at::Tensor zigzag_shard(const at::Tensor& whole, const Group& group, int64_t dim) {
  constexpr const char* kShard = "zigzag_shard";
  const auto along = checked_dim(kShard, whole, dim);
  if (group.size() == 1) return whole;
  check_cut(kShard, whole.size(along), 2 * group.size(), "the tokens");
  return distributed::part_of(whole, group.rank(), group.size(), along);
}

at::Tensor zigzag_positions(int64_t length, const Group& group) {
  TORCH_CHECK_VALUE(length >= 0, "zigzag_positions: expected a length >= 0, got ", length);
  if (group.size() > 1) check_cut("zigzag_positions", length, 2 * group.size(), "the tokens");
  return zigzag_shard(at::arange(length, at::kLong), group, 0);
}

at::Tensor zigzag_gather(const at::Tensor& part, Group& group, int64_t dim) {
  constexpr const char* kGather = "zigzag_gather";
  const auto along = checked_dim(kGather, part, dim);
  if (group.size() == 1) return part.detach();
  check_cut(kGather, part.size(along), 2, "the tokens");
  return distributed::in_order(group.gather(part), along);
}

AttentionResult context_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const std::shared_ptr<Group>& group, const AttentionOptions& options,
                                  const AttentionExtras& extras, ContextMethod method) {
  TORCH_CHECK_VALUE(group, kContextAttention, ": expected a group, got a null pointer");
  if (group->size() == 1) return attention(q, k, v, options, extras);
  const auto connection = distributed::connection_of(*group);
  std::optional<ContextCall> made;
  distributed::begin_call(*connection, kContextAttention, "calls", [&] {
    WholeAttention whole(kContextAttention, q, k, v, options, extras, group->size());
    const auto dtype = whole.dtype();
    made.emplace(ContextCall{connection, std::move(whole), q.to(dtype), k.to(dtype), v.to(dtype)});
    check_method(*made, extras, method);
    return text_of(*made, extras, method);
  });
  auto& call = *made;
  call.tag = connection->next_tag();
  agree_on_dropout(call);
  auto result = method == ContextMethod::Gather  ? by_gather(call)
                : method == ContextMethod::Heads ? by_heads(call, extras.logsumexp)
                                                 : by_ring(call);
  if (!extras.logsumexp) result.logsumexp.reset();
  return result;
}

ContextParallel::ContextParallel(std::shared_ptr<Group> group, ContextMethod method)
    : group_(std::move(group)), method_(method) {
  TORCH_CHECK_VALUE(group_, "ContextParallel: expected a group, got a null pointer");
}

int64_t ContextParallel::size() const {
  return group_->size();
}

std::vector<AttentionContext::Run> ContextParallel::runs(int64_t tokens) const {
  if (size() == 1) return {{0, tokens}};
  check_cut("ContextParallel", tokens, 2, "the tokens of a process");
  std::vector<Run> runs;
  for (const int64_t chunk : distributed::chunks_of(group_->rank(), size()))
    runs.push_back({chunk * tokens / 2, tokens / 2});
  return runs;
}

AttentionResult ContextParallel::attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                           const AttentionOptions& options, const AttentionExtras& extras) {
  return context_attention(q, k, v, group_, options, extras, method_);
}

}  // namespace attentive
